from __future__ import annotations

import pytest

from distlaunch.emulator.run.job_spec import Limits, read_workload, trial_workload

NAME = "projects/123/locations/us-central1/customJobs/456"


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


def test_a_trial_gets_its_parameters_as_arguments_of_all_replicas():
    pools = [
        {"containerSpec": {"imageUri": "image", "args": ["--epochs=5"]}},
        {"pythonPackageSpec": {"pythonModule": "trainer.task", "packageUris": ["gs://b/p.whl"]}},
    ]
    output = {"outputUriPrefix": "gs://bucket/job/"}
    workload = read_workload(NAME, {"workerPoolSpecs": pools, "baseOutputDirectory": output})
    parameters = {"rate": 0.25, "layers": 2, "units": 64.0, "kind": "a b"}
    trial = trial_workload(workload, "3", parameters)
    options = ("--rate=0.25", "--layers=2", "--units=64", "--kind=a b")
    assert [replica.args for replica in trial.replicas] == [("--epochs=5", *options), options]
    assert (trial.trial, trial.job_dir) == ("3", "gs://bucket/job/3")
    assert trial_workload(read_workload(NAME, {}), "1", {}).job_dir is None
