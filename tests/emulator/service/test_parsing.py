"""What is no job at all, told in Google's words."""

from __future__ import annotations

import pytest

from distlaunch.emulator.service.answers import Refused
from distlaunch.emulator.service.parsing import as_json, parse, with_numbers

from .google_jobs import changed

POOL = "custom_job.job_spec.worker_pool_specs[0]"
TYPES = "type.googleapis.com/google.cloud.aiplatform.v1"


@pytest.mark.parametrize(
    ("path", "value", "where", "said"),
    [
        (
            "jobSpec.scheduling.timout",
            "3s",
            "custom_job.job_spec.scheduling",
            'Invalid JSON payload received. Unknown name "timout" at '
            "'custom_job.job_spec.scheduling': Cannot find field.",
        ),
        (
            "colour",
            1,
            "custom_job",
            "Invalid JSON payload received. Unknown name \"colour\" at 'custom_job': "
            "Cannot find field.",
        ),
        (
            "jobSpec.workerPoolSpecs.0.replicaCount",
            "one",
            f"{POOL}.replica_count",
            f"Invalid value at '{POOL}.replica_count' (TYPE_INT64), \"one\"",
        ),
        (
            "jobSpec.workerPoolSpecs.0.replicaCount",
            1.5,
            f"{POOL}.replica_count",
            f"Invalid value at '{POOL}.replica_count' (TYPE_INT64), 1.5",
        ),
        (
            "jobSpec.workerPoolSpecs.0.machineSpec.acceleratorType",
            "NVIDIA_T4",
            f"{POOL}.machine_spec.accelerator_type",
            f"Invalid value at '{POOL}.machine_spec.accelerator_type' ({TYPES}.AcceleratorType), "
            '"NVIDIA_T4"',
        ),
        (
            "jobSpec.scheduling.timeout",
            "12h",
            "custom_job.job_spec.scheduling.timeout",
            "Invalid value at 'custom_job.job_spec.scheduling.timeout' "
            '(type.googleapis.com/google.protobuf.Duration), "12h"',
        ),
        (
            "jobSpec.scheduling",
            [],
            "custom_job.job_spec.scheduling",
            f"Invalid value at 'custom_job.job_spec.scheduling' ({TYPES}.Scheduling), []",
        ),
        (
            "jobSpec.workerPoolSpecs",
            {},
            "custom_job.job_spec.worker_pool_specs",
            "Invalid value at 'custom_job.job_spec.worker_pool_specs' "
            f"({TYPES}.WorkerPoolSpec), {{}}",
        ),
        (
            "jobSpec.enableWebAccess",
            1,
            "custom_job.job_spec.enable_web_access",
            "Invalid value at 'custom_job.job_spec.enable_web_access' (TYPE_BOOL), 1",
        ),
        (
            "displayName",
            5,
            "custom_job.display_name",
            "Invalid value at 'custom_job.display_name' (TYPE_STRING), 5",
        ),
        (
            "labels.size",
            3,
            "custom_job.labels[0].value",
            "Invalid value at 'custom_job.labels[0].value' (TYPE_STRING), 3",
        ),
        (
            "jobSpec.workerPoolSpecs.0.pythonPackageSpec",
            {"pythonModule": "trainer.task"},
            POOL,
            f"Invalid value at '{POOL}' (oneof), oneof field 'task' is already set. "
            "Cannot set 'pythonPackageSpec'",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(custom_job, path, value, where, said):
    with pytest.raises(Refused) as refused:
        parse("customJobs", changed(custom_job, path, value))
    assert refused.value.code == 400
    assert refused.value.message == said
    (detail,) = refused.value.details
    assert detail == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": where, "description": said}],
    }


def test_all_that_does_not_fit_is_told_at_once(custom_job):
    custom_job |= {"one": 1, "displayName": 2}
    with pytest.raises(Refused) as refused:
        parse("customJobs", custom_job)
    assert refused.value.message.count("\n") == 1
    assert len(refused.value.details[0]["fieldViolations"]) == 2


def test_both_ways_to_write_a_name_are_taken_and_google_s_json_is_given(custom_job):
    pool = custom_job["jobSpec"]["workerPoolSpecs"]
    snake = {
        "display_name": "digits",
        "job_spec": {
            "worker_pool_specs": [
                {
                    "machine_spec": {"machine_type": "n1-standard-8"},
                    "replica_count": count,
                    "container_spec": {
                        "image_uri": pool[0]["containerSpec"]["imageUri"],
                        "args": pool[0]["containerSpec"]["args"],
                    },
                }
                for count in (1, "2")
            ],
            "base_output_directory": {"output_uri_prefix": "gs://my-bucket/digits/1"},
        },
    }
    assert as_json(parse("customJobs", snake)) == custom_job


def test_what_only_google_fills_in_is_left_out_and_null_is_nothing(custom_job):
    sent = {**custom_job, "name": "x", "state": "JOB_STATE_FAILED", "labels": None}
    sent |= {"createTime": "2026-01-01T00:00:00Z", "error": {"code": 3}}
    assert as_json(parse("customJobs", sent)) == custom_job


def test_a_skipped_pool_stays_and_enums_are_names_or_numbers(custom_job):
    custom_job["jobSpec"]["workerPoolSpecs"].insert(1, {})
    custom_job["jobSpec"]["scheduling"] = {"strategy": 4, "timeout": "3600s"}
    made = as_json(parse("customJobs", custom_job))
    assert made["jobSpec"]["workerPoolSpecs"][1] == {}
    assert made["jobSpec"]["scheduling"] == {"strategy": "SPOT", "timeout": "3600s"}
    numbers = with_numbers("customJobs", made | {"state": "JOB_STATE_RUNNING"})
    assert numbers["jobSpec"]["scheduling"]["strategy"] == 4
    assert numbers["state"] == 3


@pytest.mark.parametrize("count", [str(2**63 - 1), 2**63 - 1, 2.0, "2"])
def test_whole_numbers_have_many_forms(custom_job, count):
    custom_job["jobSpec"]["workerPoolSpecs"][1]["replicaCount"] = count
    made = as_json(parse("customJobs", custom_job))
    assert made["jobSpec"]["workerPoolSpecs"][1]["replicaCount"] == str(int(count))


@pytest.mark.parametrize("count", [2**63, "1e400", "1_0", " 1", "", [], None, True, {}])
def test_others_are_none(custom_job, count):
    custom_job["jobSpec"]["workerPoolSpecs"][1]["replicaCount"] = count
    if count is None:
        assert "replicaCount" not in as_json(parse("customJobs", custom_job))
        return
    with pytest.raises(Refused, match="TYPE_INT64"):
        parse("customJobs", custom_job)
