"""Google's own command line against the emulator; nothing here needs it to be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from distlaunch.emulator.emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import Callable

GCLOUD = shutil.which("gcloud")
CONFIG = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-4}
  replicaCount: 1
  containerSpec:
    imageUri: us-docker.pkg.dev/my-project/training/digits:1
    command: [sh, -c, "echo from $0; sleep 300", gcloud]
scheduling: {timeout: 3600s, strategy: SPOT}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed here"),
]


@pytest.fixture
def gcloud(tmp_path):
    """Run `gcloud ai …` against an emulator of its own."""
    (tmp_path / "job.yaml").write_text(CONFIG)
    with Emulator(storage=tmp_path / "storage", project_dir=tmp_path) as emulator:
        env = {
            **os.environ,
            "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
            "CLOUDSDK_CORE_PROJECT": "my-project",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{emulator.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{emulator.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{emulator.url}/storage/v1/",
        }

        def run(line: str, *words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [GCLOUD, "ai", *line.split(), *words, "--region=us-central1"],
                cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip

        run.env = env
        yield run


def test_a_job_is_created_described_listed_followed_and_cancelled(gcloud, tmp_path):
    created = gcloud(
        "custom-jobs create --display-name=digits --config=job.yaml --format=value(name)"
    )
    assert created.returncode == 0, created.stderr
    name = created.stdout.strip()

    listed = gcloud("custom-jobs list", "--format=value(name,displayName)").stdout
    assert listed.split() == [name, "digits"]

    wanted = (
        "--format=value(state,jobSpec.scheduling.strategy,jobSpec.workerPoolSpecs[0].replicaCount)"
    )
    described = wait_for(lambda: gcloud("custom-jobs describe", name, wanted).stdout, "RUNNING")
    assert described.split() == ["JOB_STATE_RUNNING", "SPOT", "1"]

    with subprocess.Popen(
        [GCLOUD, "ai", "custom-jobs", "stream-logs", name, "--polling-interval=5"],
        env=gcloud.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as follower:  # fmt: skip
        lines = []
        while not lines or "from gcloud" not in lines[-1]:
            lines.append(follower.stdout.readline())
            assert lines[-1]
        follower.terminate()
    assert [line.split("\t")[2] for line in lines][-1] == "workerpool0-0"

    assert gcloud("custom-jobs cancel", name).returncode == 0
    ended = wait_for(
        lambda: gcloud("custom-jobs describe", name, "--format=value(state)").stdout, "CANCELLED"
    )
    assert ended.strip() == "JOB_STATE_CANCELLED"


def test_a_refusal_is_shown_as_google_words_it(gcloud, tmp_path):
    config = tmp_path / "job.yaml"
    config.write_text(config.read_text().replace("n1-standard-4", "n1-standard-2"))
    refused = gcloud("custom-jobs create --display-name=digits --config=job.yaml")
    assert refused.returncode == 1
    reason = 'Machine type "n1-standard-2" is not supported for custom training.'
    assert reason in refused.stderr


def test_gcloud_storage_uploads_lists_and_downloads(gcloud, tmp_path):
    content = b"ends of lines\r\n\n"
    (tmp_path / "data.csv").write_bytes(content)

    def storage(*words: str) -> str:
        done = subprocess.run(
            [GCLOUD, "storage", *words],
            cwd=tmp_path, env=gcloud.env, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    storage("cp", "data.csv", "gs://my-bucket/in/data.csv")
    assert (tmp_path / "storage/my-bucket/in/data.csv").read_bytes() == content
    assert storage("ls", "gs://my-bucket/in/").split() == ["gs://my-bucket/in/data.csv"]
    storage("cp", "gs://my-bucket/in/data.csv", "copy.csv")
    assert (tmp_path / "copy.csv").read_bytes() == content
    storage("rm", "gs://my-bucket/in/data.csv")
    assert not (tmp_path / "storage/my-bucket/in/data.csv").exists()


def wait_for(read: Callable[[], str], word: str) -> str:
    deadline = time.monotonic() + 60
    while word not in (text := read()):
        assert time.monotonic() < deadline, text
    return text
