"""What is changed in Google's files: variables, timeouts, retired accelerators."""

from __future__ import annotations

import pytest

from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.load import LoadedJob, load_job
from distlaunch.job.model import Machine

VERTEX = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-8}
  replicaCount: 1
  containerSpec: {imageUri: x/y:1, args: [ARGS]}
"""
OLD = "trainingInput: {scaleTier: BASIC, masterConfig: {imageUri: 'x/y:1'}}\n"


@pytest.fixture
def project(tmp_path):
    text = "name: digits\ncluster: {chief: {machine: n1-standard-4}}\nscheduling: {timeout: 2h}\n"
    (tmp_path / "distlaunch.yaml").write_text(text)
    return tmp_path


def load_config(project, config: str, **options) -> LoadedJob:
    (project / "config.yaml").write_text(config)
    return load_job(project, config=project / "config.yaml", **options)


def test_replaced_variables_are_reported_and_others_too(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setenv("TOKEN", "secret")
    args = '"${TOKEN}", "${TOKEN}/a", $HOME/b, "$${TOKEN}", "${IMAGE_URI}"'
    loaded = load_config(project, VERTEX.replace("ARGS", args), image="x/z:1")
    assert loaded.job.cluster.chief.program.args[:3] == ("secret", "secret/a", "$HOME/b")
    assert loaded.notes[:2] == (
        "config.yaml:4:43: ${TOKEN}: replaced by the value of TOKEN on this machine; write "
        "$${TOKEN} to keep the text",
        "config.yaml:4:69: $HOME: not replaced; write ${HOME} for the value of HOME on this "
        "machine",
    )
    assert len([note for note in loaded.notes if "replaced" in note]) == 2


@pytest.mark.parametrize("config", [VERTEX, OLD])
def test_a_timeout_of_distlaunch_yaml_does_not_apply_to_a_config_file(project, config):
    loaded = load_config(project, config)
    assert loaded.job.scheduling.timeout is None
    assert loaded.notes[-1] == (
        f"{project}/distlaunch.yaml: scheduling.timeout is not used, and {project}/config.yaml "
        "sets none: Google's default is 7 days; use --set scheduling.timeout=… for another"
    )
    overridden = load_config(project, config, overrides=["scheduling.timeout=3h"])
    assert overridden.job.scheduling.timeout == 3 * 3600


RETIRED_VERTEX = VERTEX.replace(
    "n1-standard-8", "n1-standard-8, acceleratorType: NVIDIA_TESLA_K80, acceleratorCount: 8"
)
RETIRED_OLD = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-16
  masterConfig: {acceleratorConfig: {type: NVIDIA_TESLA_P100, count: 4}}
"""


@pytest.mark.parametrize(
    ("config", "machine"),
    [
        (RETIRED_OLD, Machine("n1-standard-16", "NVIDIA_TESLA_T4", 4)),
        (RETIRED_VERTEX, Machine("n1-standard-8", "NVIDIA_TESLA_V100", 8)),  # 8 of T4 do not fit
    ],
)
def test_retired_accelerators_are_replaced_on_request(project, config, machine):
    loaded = load_config(project, config, replace_retired=True)
    assert loaded.job.cluster.chief.machine == machine
    body = vertex.build_request(loaded.job, image=None, labels={}, job_dir=None)
    [pool] = body["jobSpec"]["workerPoolSpecs"]
    assert pool["machineSpec"]["acceleratorType"] == machine.accelerator
    [note] = [note for note in loaded.notes if "--replace-retired" in note]
    assert note.endswith(
        f"by {machine.accelerator_count} {machine.accelerator} (--replace-retired)"
    )


def test_other_retired_accelerators_are_errors_of_an_old_file_and_of_check(project):
    with pytest.raises(JobFileError, match="--replace-retired"):
        load_config(project, RETIRED_OLD)
    kept = load_config(project, RETIRED_VERTEX).job
    assert kept.cluster.chief.machine.accelerator == "NVIDIA_TESLA_K80"
