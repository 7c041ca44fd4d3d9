"""Images that Google's Cloud Build builds, from the command line to the registry."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest
from fake_google import Refused
from fake_google.cloud_build import ACCOUNT, FakeCloudBuild
from fake_registry import FakeRegistry
from requests.adapters import HTTPAdapter

from distlaunch.image import cloud_build

HOST = "us-central1-docker.pkg.dev"
NAME = "demo-project/training/digits"
FOLDER = "demo-bucket/.distlaunch-builds"
JOB = f"""\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
image:
  repository: {HOST}/{NAME}
  base: {HOST}/demo-project/training/base:1
  builder: cloud-build
cluster:
  chief: {{machine: n1-standard-4}}
"""
OUTCOME = {"status": "FAILURE", "failureInfo": {"type": "USER_BUILD_STEP"}}


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "trainer").mkdir(parents=True)
    (folder / "distlaunch.yaml").write_text(JOB)
    (folder / "trainer/__init__.py").touch()
    (folder / "trainer/task.py").write_text("print('trained')\n")
    (folder / "requirements.txt").write_text("six==1.16.0\n")
    return folder


@pytest.fixture
def builds(google, monkeypatch, tmp_path):
    """Cloud Build in a project that has all, a base image, and no Docker."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "NETRC": str(tmp_path / "no-netrc"),
        "DOCKER_CONFIG": str(tmp_path / "docker"),
        "DOCKER_HOST": "unix:///nowhere.sock",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cloud_build, "_INTERVAL", 0.0)
    send = HTTPAdapter.send
    with FakeRegistry() as registry:

        def send_to_registry(adapter, request, **options):
            request.url = request.url.replace(f"https://{HOST}/", f"http://{registry.host}/")
            return send(adapter, request, **options)

        monkeypatch.setattr(HTTPAdapter, "send", send_to_registry)
        config = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": []}}
        registry.put_image("demo-project/training/base", "1", config, b"base")
        service = FakeCloudBuild(registry)
        service.google = google(services=[service])
        yield service


@pytest.fixture
def build(run, project):
    return functools.partial(run, "build", cwd=project)


def fail(build, **words):
    done = build()
    assert (done.code, done.out) == (1, ""), done
    assert "Traceback" not in done.err
    return done.err


def test_cloud_build_builds_the_environment_once(run, build, builds, project):
    submitted = run("submit", "--detach", cwd=project)
    assert submitted.code == 0, submitted.err
    assert "a full build by Cloud Build, billed by build minute" in submitted.err
    assert "Cloud Build: WORKING" in submitted.err
    (environment,) = (each["results"]["images"][0] for each in builds.builds)
    (job,) = builds.google.jobs["customJobs"]
    (image,) = (p["containerSpec"]["imageUri"] for p in job["jobSpec"]["workerPoolSpecs"])
    manifests = builds.registry.repository(NAME).manifests
    layers = [manifests[key][1] for key in (environment["digest"], image.partition("@")[2])]
    assert len({*layers}) == 2
    # The source is gone; the log is where the console reads it.
    assert [*builds.objects] == [f"{FOLDER}/log-0000-0.txt"]

    (project / "trainer/task.py").write_text("print('trained more')\n")
    done = build()
    assert done.code == 0, done.err
    assert done.out.startswith(f"{HOST}/{NAME}@sha256:")
    assert "the registry has the environment, not this code" in done.err
    assert len(builds.builds) == 1
