"""What Vertex AI does not take, though it is a job by its form."""

from __future__ import annotations

import pytest

from distlaunch.emulator.service.parsing import parse
from distlaunch.emulator.service.rules import custom_job_problems, refusal
from distlaunch.emulator.service.tuning_rules import tuning_job_problems

from .google_jobs import changed

FIRST = "jobSpec.workerPoolSpecs.0"
MACHINE = f"{FIRST}.machineSpec"
SPEC = "job_spec.worker_pool_specs[0].machine_spec"


def problems(job: dict) -> list[tuple[str, str]]:
    if "trialJobSpec" in job:
        message = parse("hyperparameterTuningJobs", job)
        return list(tuning_job_problems(message, "us-central1"))
    return list(custom_job_problems(parse("customJobs", job), "us-central1"))


def machine(kind: str, accelerator: str = "", count: int = 0, **more: str) -> dict:
    made = {"machineType": kind, **more}
    return made | ({"acceleratorType": accelerator, "acceleratorCount": count} if count else {})


def on(custom_job: dict, *machines: dict, **spec: object) -> dict:
    """Return the job on other machines, one pool each and none for None."""
    pools = custom_job["jobSpec"]["workerPoolSpecs"]
    made = [
        {**pools[bool(number)], "machineSpec": each} if each else {}
        for number, each in enumerate(machines)
    ]
    return {**custom_job, "jobSpec": {**custom_job["jobSpec"], "workerPoolSpecs": made, **spec}}


def test_a_good_job_has_no_problems(custom_job, tuning_job):
    assert problems(custom_job) == []
    assert problems(tuning_job) == []


@pytest.mark.parametrize(
    "kind",
    [
        machine("e2-standard-4"),
        machine("n1-standard-4", "NVIDIA_TESLA_T4", 4),
        machine("n1-highcpu-64", "NVIDIA_TESLA_P100", 4),
        machine("n1-standard-32", "NVIDIA_TESLA_V100", 4),
        machine("a2-highgpu-4g", "NVIDIA_TESLA_A100", 4),
        machine("a3-highgpu-8g", "NVIDIA_H100_80GB", 8),
        machine("a4-highgpu-8g", "NVIDIA_B200", 8),
        machine("g2-standard-24", "NVIDIA_L4", 2),
        machine("m1-megamem-96"),
    ],
)
def test_machines_that_there_are(custom_job, kind):
    assert problems(on(custom_job, kind)) == []
    assert problems(on(custom_job, kind, None, kind, kind)) == []


@pytest.mark.parametrize(
    "kind",
    [
        machine("cloud-tpu", "TPU_V2", 8),
        machine("cloud-tpu", "TPU_V3", 64),
        machine("ct5lp-hightpu-4t", tpuTopology="4x4"),
        machine("tpu7x-standard-4t", tpuTopology="2x2x1"),
    ],
)
def test_tpus_are_for_one_pool_with_one_replica(custom_job, kind):
    said = "A job on TPUs has exactly one worker pool with one replica."
    assert problems(on(custom_job, kind)) == []
    assert problems(on(custom_job, kind, kind)) == [("job_spec.worker_pool_specs", said)]


@pytest.mark.parametrize(
    ("kind", "field", "said"),
    [
        (machine(""), "machine_type", "Machine type is required."),
        (
            machine("n1-standard-2"),
            "machine_type",
            'Machine type "n1-standard-2" is not supported for custom training.',
        ),
        (
            {"machineType": "n1-standard-8", "acceleratorCount": 1},
            "accelerator_type",
            "Both `accelerator_type` and `accelerator_count` should be specified or none.",
        ),
        (
            {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4"},
            "accelerator_type",
            "Both `accelerator_type` and `accelerator_count` should be specified or none.",
        ),
        (
            machine("n1-standard-8", "NVIDIA_TESLA_T4", -1),
            "accelerator_count",
            "Accelerator count must not be negative.",
        ),
        (
            machine("n1-standard-8", "NVIDIA_TESLA_T4", 3),
            "accelerator_count",
            "Accelerator count 3 of NVIDIA_TESLA_T4 is not supported on machine type "
            '"n1-standard-8"; supported: 1, 2, 4.',
        ),
        (
            machine("n1-standard-8", "NVIDIA_TESLA_K80", 1),
            "accelerator_type",
            'Accelerator "NVIDIA_TESLA_K80" is not compatible with machine type "n1-standard-8".',
        ),
        (
            machine("e2-standard-8", "NVIDIA_TESLA_T4", 1),
            "accelerator_type",
            'Accelerator "NVIDIA_TESLA_T4" is not compatible with machine type "e2-standard-8".',
        ),
        (
            machine("a2-highgpu-1g"),
            "accelerator_type",
            'Machine type "a2-highgpu-1g" requires accelerator_type NVIDIA_TESLA_A100 '
            "with count 1.",
        ),
        (
            machine("cloud-tpu", "NVIDIA_TESLA_T4", 8),
            "accelerator_type",
            'Machine type "cloud-tpu" requires accelerator_type TPU_V2 or TPU_V3.',
        ),
        (
            machine("cloud-tpu", "TPU_V3", 16),
            "accelerator_count",
            "The accelerator count of cloud-tpu must be 8 or a multiple of 32.",
        ),
        (
            machine("ct6e-standard-1t", tpuTopology="2x2"),
            "tpu_topology",
            'TPU topology "2x2" is not supported on machine type "ct6e-standard-1t"; '
            "supported: 1x1.",
        ),
        (
            machine("ct6e-standard-1t", "TPU_V5_LITEPOD", 1, tpuTopology="1x1"),
            "accelerator_type",
            'Machine type "ct6e-standard-1t" takes a tpu_topology and no accelerator_type.',
        ),
    ],
)
def test_machines_that_there_are_not(custom_job, kind, field, said):
    assert problems(on(custom_job, kind)) == [(f"{SPEC}.{field}", said)]


def flex(custom_job: dict, *machines: dict) -> list[tuple[str, str]]:
    return problems(on(custom_job, *machines, scheduling={"strategy": "FLEX_START"}))


def test_flex_start_is_for_some_accelerators_and_for_machines_that_are_alike(custom_job):
    small = machine("g2-standard-8", "NVIDIA_L4", 1)
    large = machine("g2-standard-24", "NVIDIA_L4", 2)
    path = "job_spec.scheduling.strategy"
    assert flex(custom_job, small, small) == []
    assert flex(custom_job, small, large) == [
        (path, "FLEX_START requires the same machine spec in all worker pools.")
    ]
    for kind in (machine("n1-standard-8"), machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)):
        ((where, said),) = flex(custom_job, kind)
        assert where == path
        assert said.startswith("FLEX_START supports these accelerators only: NVIDIA_L4, ")


LABEL_RULE = (
    "Label keys and values can be no longer than 64 characters and can only contain lowercase "
    "letters, numeric characters, underscores and dashes; a key starts with a letter."
)
NETWORK = "projects/{project number}/global/networks/{network}"
BOARD = "projects/{project}/locations/{location}/tensorboards/{tensorboard}"
CONTAINER = "job_spec.worker_pool_specs[0].container_spec"
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"


@pytest.mark.parametrize(
    ("path", "value", "where", "said"),
    [
        ("displayName", "", "display_name", "Display name is required."),
        ("displayName", "x" * 129, "display_name", "Display name must not exceed 128 characters."),
        ("displayName", "ü" * 128, None, None),
        ("labels", {"team-1": "a_b", "größe": ""}, None, None),
        ("labels", {"Team": "a"}, "labels['Team']", f"Invalid label key 'Team'. {LABEL_RULE}"),
        ("labels", {"1a": "a"}, "labels['1a']", f"Invalid label key '1a'. {LABEL_RULE}"),
        ("labels", {"a": "B"}, "labels['a']", f"Invalid label value 'B'. {LABEL_RULE}"),
        ("labels", {"a": "b.c"}, "labels['a']", f"Invalid label value 'b.c'. {LABEL_RULE}"),
        (
            "labels",
            {f"k{number}": "" for number in range(65)},
            "labels",
            "No more than 64 labels can be associated with one resource.",
        ),
        ("jobSpec", None, "job_spec", "Job spec is required."),
        (
            "jobSpec.workerPoolSpecs",
            [],
            "job_spec.worker_pool_specs",
            "At least one worker pool is required.",
        ),
        (
            f"{FIRST}.replicaCount",
            2,
            "job_spec.worker_pool_specs[0].replica_count",
            "The replica count of the first worker pool must be 1.",
        ),
        (
            "jobSpec.workerPoolSpecs.1.replicaCount",
            0,
            "job_spec.worker_pool_specs[1].replica_count",
            "Replica count must be greater than 0.",
        ),
        (
            FIRST,
            {},
            "job_spec.worker_pool_specs[0]",
            "The first worker pool must not be empty.",
        ),
        (
            f"{FIRST}.containerSpec",
            None,
            "job_spec.worker_pool_specs[0]",
            "One of container_spec and python_package_spec is required.",
        ),
        (f"{FIRST}.containerSpec.imageUri", "", f"{CONTAINER}.image_uri", "Image URI is required."),
        (
            f"{FIRST}.containerSpec.imageUri",
            "host/Path:tag",
            f"{CONTAINER}.image_uri",
            'Invalid image URI "host/Path:tag".',
        ),
        (f"{FIRST}.containerSpec.imageUri", f"localhost:5000/a/b@sha256:{'0' * 64}", None, None),
        (
            f"{FIRST}.containerSpec.env",
            [{"name": "A-B", "value": ""}],
            f"{CONTAINER}.env[0].name",
            '"A-B" is not a valid C identifier.',
        ),
        (
            f"{FIRST}.containerSpec.env",
            [{"name": f"A{number}"} for number in range(101)],
            f"{CONTAINER}.env",
            "No more than 100 environment variables can be specified.",
        ),
        (
            f"{FIRST}.diskSpec",
            {"bootDiskSizeGb": 50},
            "job_spec.worker_pool_specs[0].disk_spec.boot_disk_size_gb",
            "Boot disk size must be between 100 and 64000 GB.",
        ),
        (
            f"{FIRST}.diskSpec",
            {"bootDiskType": "ssd"},
            "job_spec.worker_pool_specs[0].disk_spec.boot_disk_type",
            'Disk type "ssd" is not supported; supported: pd-ssd, pd-standard, hyperdisk-balanced.',
        ),
        ("jobSpec.scheduling.timeout", "604800s", None, None),
        (
            "jobSpec.scheduling.timeout",
            "604801s",
            "job_spec.scheduling.timeout",
            "The timeout must not exceed 7 days (604800s).",
        ),
        (
            "jobSpec.scheduling.maxWaitDuration",
            "-1s",
            "job_spec.scheduling.max_wait_duration",
            "The duration must not be negative.",
        ),
        (
            "jobSpec.baseOutputDirectory.outputUriPrefix",
            "s3://bucket/x",
            "job_spec.base_output_directory.output_uri_prefix",
            '"s3://bucket/x" is not a Cloud Storage URI (gs://…).',
        ),
        (
            "jobSpec.serviceAccount",
            "trainer",
            "job_spec.service_account",
            'Invalid service account "trainer"; an email address is expected.',
        ),
        ("jobSpec.network", "projects/123/global/networks/my-net", None, None),
        (
            "jobSpec.network",
            "projects/my-project/global/networks/my-net",
            "job_spec.network",
            'Invalid network "projects/my-project/global/networks/my-net"; '
            f"expected the form {NETWORK}.",
        ),
        (
            "jobSpec.tensorboard",
            "projects/p/locations/us-central1/tensorboards/1",
            "job_spec.service_account",
            "A service account is required where tensorboard is set.",
        ),
        (
            "encryptionSpec",
            {"kmsKeyName": "projects/p/locations/us-east1/keyRings/r/cryptoKeys/k"},
            "encryption_spec.kms_key_name",
            "The key needs to be in the same region as the job, us-central1.",
        ),
    ],
)
def test_each_rule(custom_job, path, value, where, said):
    expected = [(where, said)] if where else []
    assert problems(changed(custom_job, path, value)) == expected


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        ("projects/p/locations/us-central1/tensorboards/1", []),
        (
            "projects/p/locations/us-east1/tensorboards/1",
            [
                (
                    "job_spec.tensorboard",
                    "The tensorboard must be in the job's location, us-central1.",
                )
            ],
        ),
        (
            "boards/1",
            [
                (
                    "job_spec.tensorboard",
                    f'Invalid tensorboard "boards/1"; expected the form {BOARD}.',
                )
            ],
        ),
    ],
)
def test_a_tensorboard(custom_job, board, expected):
    custom_job["jobSpec"] |= {"tensorboard": board, "serviceAccount": ACCOUNT}
    assert problems(custom_job) == expected


def test_a_python_package_needs_its_executor_its_module_and_its_packages(custom_job):
    pool = custom_job["jobSpec"]["workerPoolSpecs"][0]
    del pool["containerSpec"]
    pool["pythonPackageSpec"] = {
        "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
        "packageUris": ["gs://my-bucket/trainer.tar.gz"],
        "pythonModule": "trainer.task",
    }
    assert problems(custom_job) == []
    pool["pythonPackageSpec"] = {"packageUris": ["trainer.tar.gz"]}
    where = "job_spec.worker_pool_specs[0].python_package_spec"
    assert problems(custom_job) == [
        (f"{where}.executor_image_uri", "Image URI is required."),
        (f"{where}.python_module", "Python module is required."),
        (f"{where}.package_uris[0]", '"trainer.tar.gz" is not a Cloud Storage URI (gs://…).'),
    ]


def test_all_problems_are_told_at_once_as_vertex_ai_lists_them(custom_job):
    custom_job["displayName"] = ""
    custom_job["jobSpec"]["workerPoolSpecs"][0]["replicaCount"] = 3
    refused = refusal(problems(custom_job))
    assert refused.message == (
        "List of found errors:\t1.Field: display_name; Message: Display name is required.\t"
        "2.Field: job_spec.worker_pool_specs[0].replica_count; "
        "Message: The replica count of the first worker pool must be 1.\t"
    )
    assert [each["field"] for each in refused.details[0]["fieldViolations"]] == [
        "display_name",
        "job_spec.worker_pool_specs[0].replica_count",
    ]


RATE = "studySpec.parameters.0"
UNITS = "studySpec.parameters.1"


@pytest.mark.parametrize(
    ("path", "value", "where", "said"),
    [
        ("displayName", "", "display_name", "Display name is required."),
        ("maxTrialCount", 0, None, None),
        (
            "parallelTrialCount",
            5,
            "parallel_trial_count",
            "Parallel trial count must not exceed max_trial_count.",
        ),
        (
            "parallelTrialCount",
            0,
            "parallel_trial_count",
            "Parallel trial count must be greater than 0.",
        ),
        (
            "maxFailedTrialCount",
            -1,
            "max_failed_trial_count",
            "Max failed trial count must not be negative.",
        ),
        ("studySpec", None, "study_spec", "Study spec is required."),
        ("trialJobSpec", None, "trial_job_spec", "Trial job spec is required."),
        (
            "trialJobSpec.workerPoolSpecs",
            [],
            "trial_job_spec.worker_pool_specs",
            "At least one worker pool is required.",
        ),
        ("studySpec.metrics", [], "study_spec.metrics", "At least one metric is required."),
        (
            "studySpec.metrics.0.metricId",
            "my metric",
            "study_spec.metrics[0].metric_id",
            "The metric_id 'my metric' must not contain whitespace.",
        ),
        (
            "studySpec.parameters",
            [],
            "study_spec.parameters",
            "At least one parameter is required.",
        ),
        (
            f"{UNITS}.parameterId",
            "rate",
            "study_spec.parameters[1].parameter_id",
            "The parameter_id 'rate' is not unique.",
        ),
        (
            UNITS,
            {"parameterId": "units"},
            "study_spec.parameters[1]",
            "One of double_, integer_, categorical_ and discrete_value_spec is required.",
        ),
        (
            f"{RATE}.doubleValueSpec.maxValue",
            0.0001,
            "study_spec.parameters[0].double_value_spec",
            "min_value must not be greater than max_value.",
        ),
        (
            f"{RATE}.doubleValueSpec.minValue",
            0,
            "study_spec.parameters[0].scale_type",
            "With UNIT_LOG_SCALE the entire feasible space must be strictly positive.",
        ),
        (
            f"{UNITS}.discreteValueSpec.values",
            [32, 16],
            "study_spec.parameters[1].discrete_value_spec.values",
            "The values should be in increasing order.",
        ),
        (
            UNITS,
            {
                "parameterId": "units",
                "categoricalValueSpec": {"values": ["a"]},
                "scaleType": "UNIT_LINEAR_SCALE",
            },
            "study_spec.parameters[1].scale_type",
            "Leave scale_type unset for categorical parameters.",
        ),
        (
            "studySpec.algorithm",
            "GRID_SEARCH",
            "study_spec.algorithm",
            "To use grid search, all parameters must be INTEGER, CATEGORICAL, or DISCRETE.",
        ),
    ],
)
def test_each_rule_of_tuning(tuning_job, path, value, where, said):
    found = problems_of_tuning(changed(tuning_job, path, value))
    if where is None:
        assert [path for path, _ in found] == ["max_trial_count", "parallel_trial_count"]
    else:
        assert found == [(where, said)]


def problems_of_tuning(job: dict) -> list[tuple[str, str]]:
    return list(tuning_job_problems(parse("hyperparameterTuningJobs", job), "us-central1"))
