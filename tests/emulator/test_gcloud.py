"""Google's own command line against the emulator; nothing here needs it to be installed."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from distlaunch.emulator.emulator import Emulator

GCLOUD = shutil.which("gcloud")
CONFIG = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-4}
  replicaCount: 1
  containerSpec:
    imageUri: us-docker.pkg.dev/my-project/training/digits:1
    command: [sh, -c, "echo from $0", gcloud]
scheduling: {timeout: 3600s, strategy: SPOT}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed here"),
]


@pytest.fixture
def gcloud(tmp_path):
    """Start `gcloud` with an emulator."""
    with Emulator(storage=tmp_path / "storage", project_dir=tmp_path) as emulator:
        address, _, token = emulator.url.rpartition("/")
        (tmp_path / "token").write_text(token)
        settings = {
            "CONFIG": str(tmp_path / "gcloud"),
            "CORE_PROJECT": "my-project",
            "CORE_DISABLE_PROMPTS": "1",
            "AI_REGION": "us-central1",
            "AUTH_ACCESS_TOKEN_FILE": str(tmp_path / "token"),
            "API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{address}/",
            "API_ENDPOINT_OVERRIDES_LOGGING": f"{address}/",
            "API_ENDPOINT_OVERRIDES_STORAGE": f"{address}/storage/v1/",
        }
        env = os.environ | {f"CLOUDSDK_{name}": value for name, value in settings.items()}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        yield lambda *words: subprocess.Popen([GCLOUD, *words], cwd=tmp_path, env=env, **pipes)


def output(process: subprocess.Popen[str], code: int = 0) -> str:
    """Return what it printed, to stderr if it is to fail."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return err if code else out.strip()


CREATE = ("create", "--display-name=digits", "--config=job.yaml", "--format=value(name)")


def test_a_job_is_created_listed_followed_and_described(gcloud, tmp_path):
    jobs = ("ai", "custom-jobs")
    (tmp_path / "job.yaml").write_text(CONFIG)
    name = output(gcloud(*jobs, *CREATE))
    listing = output(gcloud(*jobs, "list", "--format=value(name,displayName)"))
    assert listing.split() == [name, "digits"]
    with gcloud(*jobs, "stream-logs", name, "--polling-interval=1") as follower:
        assert any("workerpool0-0\tfrom gcloud" in line for line in follower.stdout)
        follower.kill()
    fields = "state,jobSpec.scheduling.strategy,jobSpec.workerPoolSpecs[0].replicaCount"
    described = output(gcloud(*jobs, "describe", name, f"--format=value({fields})"))
    assert described.split() == ["JOB_STATE_SUCCEEDED", "SPOT", "1"]


def test_a_refusal_is_shown_as_google_words_it(gcloud, tmp_path):
    (tmp_path / "job.yaml").write_text(CONFIG.replace("n1-standard-4", "n1-standard-2"))
    reason = 'Machine type "n1-standard-2" is not supported for custom training.'
    assert reason in output(gcloud("ai", "custom-jobs", *CREATE), code=1)


def test_gcloud_storage_uploads_lists_and_downloads(gcloud, tmp_path):
    content = b"ends of lines\r\n\n"
    (tmp_path / "data.csv").write_bytes(content)
    uri = "gs://my-bucket/in/data.csv"
    output(gcloud("storage", "cp", "data.csv", uri))
    assert (tmp_path / "storage/my-bucket/in/data.csv").read_bytes() == content
    assert output(gcloud("storage", "ls", "gs://my-bucket/in/")) == uri
    output(gcloud("storage", "cp", uri, "copy.csv"))
    assert (tmp_path / "copy.csv").read_bytes() == content
    output(gcloud("storage", "rm", uri))
    assert not (tmp_path / "storage/my-bucket/in/data.csv").exists()
