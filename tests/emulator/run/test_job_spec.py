from __future__ import annotations

import pytest

from distlaunch.emulator.run.job_spec import read_workload, trial_workload

NAME = "projects/123/locations/us-central1/customJobs/456"
WEEK = 7 * 24 * 3600.0


@pytest.mark.parametrize(
    ("timeout", "seconds"), [({}, WEEK), ({"timeout": "0s"}, WEEK), ({"timeout": "1.5s"}, 1.5)]
)
def test_the_default_timeout_is_a_week(timeout, seconds):
    assert read_workload(NAME, {"workerPoolSpecs": [], "scheduling": timeout}).timeout == seconds


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
