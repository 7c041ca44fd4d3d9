"""What a --config file gets from this machine and from distlaunch.yaml, and what it does not."""

from __future__ import annotations

import pytest

from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.load import LoadedJob, load_job
from distlaunch.job.model import Machine

PROJECT = """\
name: digits
cluster: {chief: {machine: n1-standard-4}}
scheduling: {timeout: 2h}
"""
VERTEX = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-8}
  replicaCount: 1
  containerSpec: {imageUri: x/y:1, args: [ARGS]}
"""
OLD = "trainingInput: {scaleTier: BASIC, masterConfig: {imageUri: 'x/y:1'}}\n"


def load_config(folder, config: str, **options) -> LoadedJob:
    (folder / "distlaunch.yaml").write_text(PROJECT)
    (folder / "config.yaml").write_text(config)
    return load_job(folder, config=folder / "config.yaml", **options)


def test_replaced_variables_are_reported_and_others_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "secret")
    args = '"${TOKEN}", "${TOKEN}/a", $HOME/b, "$${TOKEN}", "${IMAGE_URI}"'
    loaded = load_config(tmp_path, VERTEX.replace("ARGS", args), image="x/z:1")
    assert loaded.job.cluster.chief.program.args[:3] == ("secret", "secret/a", "$HOME/b")
    assert loaded.notes[:2] == (
        "config.yaml:4:43: ${TOKEN}: replaced by the value of TOKEN on this machine; write "
        "$${TOKEN} to keep the text",
        "config.yaml:4:69: $HOME: not replaced; write ${HOME} for the value of HOME on this "
        "machine",
    )
    assert len([note for note in loaded.notes if "replaced" in note]) == 2


@pytest.mark.parametrize("config", [VERTEX, OLD])
def test_a_timeout_of_distlaunch_yaml_does_not_apply_to_a_config_file(tmp_path, config):
    loaded = load_config(tmp_path, config)
    assert loaded.job.scheduling.timeout is None
    assert loaded.notes[-1] == (
        f"{tmp_path}/distlaunch.yaml: scheduling.timeout is not used, and {tmp_path}/config.yaml "
        "sets none: Google's default is 7 days; use --set scheduling.timeout=… for another"
    )
    overridden = load_config(tmp_path, config, overrides=["scheduling.timeout=3h"])
    assert overridden.job.scheduling.timeout == 3 * 3600


RETIRED_VERTEX = VERTEX.replace(
    "n1-standard-8", "n1-standard-8, acceleratorType: NVIDIA_TESLA_K80, acceleratorCount: 8"
)
RETIRED_OLD = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: standard_gpu
  workerType: n1-standard-16
  workerCount: 2
  masterConfig: {imageUri: 'x/y:1'}
  workerConfig: {acceleratorConfig: {type: NVIDIA_TESLA_P100, count: 4}}
"""


def test_retired_accelerators_of_an_old_file_are_replaced_on_request(tmp_path):
    with pytest.raises(JobFileError) as error:
        load_config(tmp_path, RETIRED_OLD)
    assert all("--replace-retired" in line for line in error.value.lines)
    loaded = load_config(tmp_path, RETIRED_OLD, replace_retired=True)
    cluster = loaded.job.cluster
    assert cluster.chief.machine == Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)
    assert cluster.workers.machine == Machine("n1-standard-16", "NVIDIA_TESLA_T4", 4)
    assert [note for note in loaded.notes if "--replace-retired" in note] == [
        "replaced 1 NVIDIA_TESLA_K80 on n1-standard-8, which Google withdrew, by 1 NVIDIA_TESLA_T4 "
        "(--replace-retired)",
        "replaced 4 NVIDIA_TESLA_P100 on n1-standard-16, which Google withdrew, by 4 "
        "NVIDIA_TESLA_T4 (--replace-retired)",
    ]


def test_retired_accelerators_of_a_vertex_file_are_replaced_on_request(tmp_path):
    kept = load_config(tmp_path, RETIRED_VERTEX).job
    assert kept.cluster.chief.machine.accelerator == "NVIDIA_TESLA_K80"  # an error of `check`
    job = load_config(tmp_path, RETIRED_VERTEX, replace_retired=True).job
    body = vertex.build_request(job, image=None, labels={}, job_dir=None)
    [pool] = body["jobSpec"]["workerPoolSpecs"]
    assert pool["machineSpec"] == {
        "machineType": "n1-standard-8",
        "acceleratorType": "NVIDIA_TESLA_V100",  # 8 of T4 do not fit
        "acceleratorCount": 8,
    }
