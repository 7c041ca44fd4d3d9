"""A job's specification, read."""

from __future__ import annotations

import pytest

from distlaunch.emulator.run.work import Scheduling, scheduling, trial_of, work

NAME = "projects/123/locations/us-central1/customJobs/456"


def container(**more):
    return {"containerSpec": {"imageUri": "image", **more}}


def test_replicas_stand_in_the_order_of_the_pools_and_a_skipped_pool_has_none():
    read = work(
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
    assert (read.job_id, read.project_number, read.job_dir) == ("456", "123", "gs://bucket/job")
    assert [replica.name for replica in read.replicas] == [
        "workerpool0-0",
        "workerpool1-0",
        "workerpool1-1",
        "workerpool3-0",
    ]
    first, *_, last = read.replicas
    assert (first.command, first.args, first.env) == (("run",), ("a",), {"A": "1"})
    assert last.args == ("evaluate",)


def test_a_package_is_a_module_in_an_executor_image():
    spec = {
        "executorImageUri": "executor",
        "pythonModule": "trainer.task",
        "packageUris": ["gs://bucket/trainer.tar.gz"],
        "args": ["--epochs=1"],
    }
    (replica,) = work(NAME, {"workerPoolSpecs": [{"pythonPackageSpec": spec}]}).replicas
    assert (replica.image, replica.module) == ("executor", "trainer.task")
    assert (replica.packages, replica.args) == (("gs://bucket/trainer.tar.gz",), ("--epochs=1",))


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({}, Scheduling(7 * 24 * 3600.0)),
        ({"timeout": "90s"}, Scheduling(90.0)),
        ({"timeout": "1.5s"}, Scheduling(1.5)),
        ({"timeout": "0s"}, Scheduling()),
        ({"restartJobOnWorkerRestart": True}, Scheduling(restarts_whole_job=True)),
        ({"restartJobOnWorkerRestart": True, "disableRetries": True}, Scheduling(retries=False)),
    ],
)
def test_scheduling(told, read):
    assert scheduling({"scheduling": told}) == read


def test_a_trial_has_its_parameters_as_arguments_of_all_replicas_and_a_folder_of_its_own():
    whole = work(
        NAME,
        {
            "workerPoolSpecs": [container(args=["--epochs=5"]), container()],
            "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/job/"},
        },
    )
    trial = trial_of(whole, "3", {"rate": 0.25, "layers": 2, "units": 64.0, "kind": "a b"})
    more = ("--rate=0.25", "--layers=2", "--units=64", "--kind=a b")
    assert [each.args for each in trial.replicas] == [("--epochs=5", *more), more]
    assert (trial.trial, trial.job_dir) == ("3", "gs://bucket/job/3")
    assert trial_of(work(NAME, {}), "1", {}).job_dir is None
