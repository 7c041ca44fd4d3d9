"""`distlaunch resubmit`: the same job, in a folder of its own."""

from __future__ import annotations

import pytest

from distlaunch.cli import main

LABEL = "distlaunch-launch"
PROGRAM = {"imageUri": "gcr.io/p/i", "command": ["python", "-c", "print('hello')"]}


def created(cloud, job_dir, *args, labels=None):
    """Create a job that writes to a folder, with the args of each pool, and return it."""
    pools = [
        {
            "machineSpec": {"machineType": "n1-standard-4"},
            "replicaCount": "1",
            "containerSpec": {**PROGRAM, "args": each},
        }
        for each in args
    ]
    body = {
        "displayName": "digits",
        "labels": labels or {},
        "jobSpec": {
            "workerPoolSpecs": pools,
            **({"baseOutputDirectory": {"outputUriPrefix": job_dir}} if job_dir else {}),
        },
    }
    path = "projects/p/locations/us-central1/customJobs"
    return cloud.jobs.session.call("POST", "aiplatform", path, body=body, region="us-central1")


def resubmitted(cloud, job, capfd):
    """Resubmit a job through the command line and return the new one."""
    assert main(["resubmit", job["name"], *cloud.options, "--detach"]) == 0
    return cloud.jobs.find("customJobs", capfd.readouterr().out.strip())


def folders(job):
    """Return the output directory, and --job-dir of each pool."""
    spec = job["jobSpec"]
    args = [pool["containerSpec"].get("args") for pool in spec["workerPoolSpecs"]]
    return spec.get("baseOutputDirectory", {}).get("outputUriPrefix"), args


@pytest.fixture(autouse=True)
def _in_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("labels", "job_dir", "expected"),
    [
        ({LABEL: "digits-1"}, "gs://bucket/digits/digits-1", "gs://bucket/digits/{id}"),
        ({LABEL: "digits-1"}, "gs://bucket/fixed", "gs://bucket/fixed/{id}"),
        ({}, "gs://bucket/my-run", "gs://bucket/my-run/{id}"),
        ({}, "gs://bucket/", "gs://bucket/{id}"),
    ],
    ids=["ours", "with --job-dir", "foreign", "a whole bucket"],
)
def test_two_jobs_never_write_to_one_folder(labels, job_dir, expected, cloud, capfd):
    def args(folder):
        return ["--data=gs://bucket/fixed", f"--job-dir={folder}"], ["--job-dir", folder, "--x"]

    first = created(cloud, job_dir, *args(job_dir), labels=labels)
    second = resubmitted(cloud, first, capfd)
    third = resubmitted(cloud, second, capfd)
    for job in (second, third):
        folder = expected.format(id=job["labels"][LABEL])
        assert folders(job) == (folder, [*args(folder)])


@pytest.mark.parametrize("arg", ["--epochs=5", "--job-dir=gs://bucket/fixed"])
def test_a_job_that_names_no_folder_is_resubmitted_with_a_warning(arg, cloud, capfd):
    first = created(cloud, None, [arg])
    assert main(["resubmit", first["name"], *cloud.options, "--detach"]) == 0
    warning = "warning: this job names no output directory"
    assert (warning in capfd.readouterr().err) == ("job-dir" not in arg)


def test_fields_are_overridden_and_arguments_appended(cloud, capfd):
    first = created(cloud, "gs://bucket/fixed", ["--a=${HOME}"], ["--a=${HOME}"])
    words = ("--set", "cluster.workers.count=3", "--set", "labels.team=vision", "--", "--b", "2")
    assert main(["resubmit", first["name"], *cloud.options, "--detach", *words]) == 0
    job = cloud.jobs.find("customJobs", capfd.readouterr().out.strip())
    pools = job["jobSpec"]["workerPoolSpecs"]
    assert [int(pool["replicaCount"]) for pool in pools] == [1, 3]
    for pool in pools:
        assert pool["containerSpec"]["args"] == ["--a=${HOME}", "--b", "2"]
        assert pool["containerSpec"]["command"] == PROGRAM["command"]
    assert job["labels"]["team"] == "vision"
    assert folders(job)[0] == f"gs://bucket/fixed/{job['labels'][LABEL]}"
    assert main(["resubmit", first["name"], *cloud.options, "--set", "cluster.x=1"]) == 1
    assert "--set cluster.x" in capfd.readouterr().err
