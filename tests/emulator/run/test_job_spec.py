from __future__ import annotations

import pytest

from distlaunch.emulator.run.job_spec import Limits, read_workload, trial_workload

NAME = "projects/123/locations/us-central1/customJobs/456"


def container(**fields):
    return {"containerSpec": {"imageUri": "image", **fields}}


def test_replicas_are_in_the_order_of_the_pools():
    workload = read_workload(
        NAME,
        {
            "workerPoolSpecs": [
                container(command=["run"], args=["a"], env=[{"name": "A", "value": "1"}]),
                {"replicaCount": "2", **container()},
                {},
                {"replicaCount": 1, **container(args=["evaluate"])},
            ],
            "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/job"},
        },
    )
    assert (workload.job_id, workload.project_number) == ("456", "123")
    assert workload.job_dir == "gs://bucket/job"
    assert [replica.name for replica in workload.replicas] == [
        "workerpool0-0",
        "workerpool1-0",
        "workerpool1-1",
        "workerpool3-0",
    ]
    first, *_, last = workload.replicas
    assert (first.command, first.args, first.env) == (("run",), ("a",), {"A": "1"})
    assert last.args == ("evaluate",)


def test_a_python_package_is_a_module_in_an_executor_image():
    spec = {
        "executorImageUri": "executor",
        "pythonModule": "trainer.task",
        "packageUris": ["gs://bucket/trainer.tar.gz"],
        "args": ["--epochs=1"],
    }
    (replica,) = read_workload(NAME, {"workerPoolSpecs": [{"pythonPackageSpec": spec}]}).replicas
    assert (replica.image, replica.module) == ("executor", "trainer.task")
    assert (replica.packages, replica.args) == (("gs://bucket/trainer.tar.gz",), ("--epochs=1",))


@pytest.mark.parametrize(
    ("scheduling", "limits"),
    [
        ({}, Limits(7 * 24 * 3600.0)),
        ({"timeout": "1.5s"}, Limits(1.5)),
        ({"timeout": "0s"}, Limits()),
        ({"restartJobOnWorkerRestart": True}, Limits(restarts_whole_job=True)),
        ({"restartJobOnWorkerRestart": True, "disableRetries": True}, Limits(retries=False)),
    ],
)
def test_scheduling(scheduling, limits):
    assert read_workload(NAME, {"scheduling": scheduling}).limits == limits


def test_a_trial_gets_its_parameters_as_arguments_and_a_job_folder():
    workload = read_workload(
        NAME,
        {
            "workerPoolSpecs": [container(args=["--epochs=5"]), container()],
            "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/job/"},
        },
    )
    parameters = {"rate": 0.25, "layers": 2, "units": 64.0, "kind": "a b"}
    trial = trial_workload(workload, "3", parameters)
    options = ("--rate=0.25", "--layers=2", "--units=64", "--kind=a b")
    assert [replica.args for replica in trial.replicas] == [("--epochs=5", *options), options]
    assert (trial.trial, trial.job_dir) == ("3", "gs://bucket/job/3")
    assert trial_workload(read_workload(NAME, {}), "1", {}).job_dir is None
