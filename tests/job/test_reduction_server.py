"""Reduction Server: from the job file to worker pool 2 of the request, and back from Google's."""

from __future__ import annotations

import pytest
import yaml

from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.load import load_job
from distlaunch.job.model import Job, ReductionServer
from distlaunch.job.vertex import proto
from distlaunch.render import render_config

IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
JOB = """\
name: digits
region: us-central1
image: {uri: "us-docker.pkg.dev/p/r/digits:1"}
cluster:
  chief: &machine {machine: MACHINE, accelerator: {type: ACCELERATOR, count: 8}}
  workers: {<<: *machine, count: 4}
reduction_server: {replicas: auto}
"""
V100 = JOB.replace("MACHINE", "n1-highmem-96").replace("ACCELERATOR", "NVIDIA_TESLA_V100")
WITHOUT = V100.partition("reduction_server")[0]
UNKNOWN = JOB.replace("MACHINE", "g4-standard-384").replace("ACCELERATOR", "NVIDIA_RTX_PRO_6000")
LEGACY = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-highmem-8
  masterConfig: {imageUri: x/y:1, acceleratorConfig: {type: NVIDIA_TESLA_T4, count: 1}}
"""
SERVERS = "  parameterServerType: n1-highmem-8\n  parameterServerCount: 2\n"
POOL = """\
- machineSpec: {machineType: n2-highcpu-16}
  replicaCount: 5
  containerSpec: {imageUri: europe-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:1}
"""
GPUS = "{machineType: g2-standard-48, acceleratorType: NVIDIA_L4, acceleratorCount: 4}"
WORKERS = f"""\
workerPoolSpecs:
- {{machineSpec: {GPUS}, replicaCount: 1, containerSpec: {{imageUri: x/y:1}}}}
- {{machineSpec: {GPUS}, replicaCount: 3, containerSpec: {{imageUri: x/y:1}}}}
"""


def load(folder, text: str, config: str | None = None, *sets: str) -> Job:
    (folder / "distlaunch.yaml").write_text(text)
    if config is None:
        return load_job(folder, overrides=sets).job
    (folder / "config.yaml").write_text(config)
    return load_job(folder, config=folder / "config.yaml", overrides=sets).job


def request(job: Job) -> dict:
    body = vertex.build_request(job, image=None, labels={}, job_dir=None)
    proto.validate_request("customJobs", body)
    return body


def third_pool(job: Job) -> dict:
    return request(job)["jobSpec"]["workerPoolSpecs"][2]


def test_the_pool_is_that_of_google_s_example(tmp_path):
    pools = request(load(tmp_path, V100))["jobSpec"]["workerPoolSpecs"]
    assert len(pools) == 3
    assert pools[2] == {
        "machineSpec": {"machineType": "n1-highcpu-16"},
        "replicaCount": 16,
        "containerSpec": {"imageUri": IMAGE},
    }


def test_the_image_is_of_the_nearest_multi_region(tmp_path):
    for region, continent in {
        "me-west1": "europe",
        "asia-southeast1": "asia",
        "southamerica-east1": "us",
        "": "us",
    }.items():
        pool = third_pool(load(tmp_path, V100, None, f"region={region}"))
        assert pool["containerSpec"]["imageUri"] == continent + IMAGE.removeprefix("us")


def of(machine: str, accelerator: str, count: int) -> str:
    """Return the job file of a cluster of a machine with accelerators."""
    text = JOB.replace("MACHINE", machine).replace("ACCELERATOR", accelerator)
    return text.replace("count: 8", f"count: {count}")


@pytest.mark.parametrize(
    ("text", "sets", "replicas"),
    [
        # As much as the workers can send
        (of("n1-standard-8", "NVIDIA_TESLA_T4", 1), [], 3),  # 5 x 16 Gbps
        (of("n1-standard-32", "NVIDIA_TESLA_V100", 1), [], 5),  # 5 x 32
        (of("n1-standard-16", "NVIDIA_TESLA_P100", 1), [], 5),  # 5 x 32
        (of("a3-highgpu-8g", "NVIDIA_H100_80GB", 8), [], 157),  # 5 x 1000
        # By the job file or --set
        (V100.replace("auto", "3"), [], 3),
        (V100, ["reduction_server.replicas=8"], 8),
        (WITHOUT, ["reduction_server.replicas=auto"], 16),
        (UNKNOWN.replace("auto", "9"), [], 9),  # no egress limit is documented
    ],
)
def test_the_number_of_replicas(tmp_path, text, sets, replicas):
    assert third_pool(load(tmp_path, text, None, *sets))["replicaCount"] == replicas
    assert load(tmp_path, text, None, "reduction_server=").reduction_server is None


NOT_A_NUMBER = (
    "distlaunch.yaml:7:30: reduction_server.replicas: expected auto or a whole number of 1 or more"
)
NO_GPU = "needs NVIDIA accelerators on the chief and the workers; cluster.workers has none"


@pytest.mark.parametrize(
    ("text", "sets", "line"),
    [
        (
            V100,
            ["cluster.parameter_servers={machine: n1-highmem-8}"],
            "distlaunch.yaml:7:1: reduction_server: cannot be combined with parameter servers: "
            "both are worker pool 2",
        ),
        (
            WITHOUT,
            ["cluster.workers.accelerator=", "reduction_server.replicas=2"],
            f"--set reduction_server.replicas: reduction_server: {NO_GPU}",
        ),
        (
            V100.replace("{replicas: auto}", "{}"),
            ["cluster.workers.accelerator="],
            f"distlaunch.yaml:7:1: reduction_server: {NO_GPU}",
        ),
        (
            UNKNOWN,
            [],
            "distlaunch.yaml:7:20: reduction_server.replicas: no egress limit is documented for "
            "g4-standard-384 with 8 NVIDIA_RTX_PRO_6000; write reduction_server.replicas: N",
        ),
        (
            V100,
            ["scheduling.machines=[{machine: n1-standard-8}]"],
            "distlaunch.yaml:7:1: reduction_server: on machines of scheduling.machines: "
            f"{NO_GPU.replace('cluster.workers', 'cluster.chief')}",
        ),
        *(
            (V100.replace("auto", value), [], f"{NOT_A_NUMBER}, got {value!r}")
            for value in ("0", "1.5", "all")
        ),
    ],
)
def test_what_cannot_have_it_is_refused_where_it_is_set(tmp_path, text, sets, line):
    with pytest.raises(JobFileError) as error:
        load(tmp_path, text, None, *sets)
    assert error.value.lines == (f"{tmp_path}/{line}" if line.startswith("dist") else line,)


def test_it_is_added_to_the_pools_of_a_file_of_google_s(tmp_path):
    job = load(tmp_path, V100, WORKERS)
    assert third_pool(job) == {
        "machineSpec": {"machineType": "n1-highcpu-16"},
        "replicaCount": 7,  # 4 x 50 Gbps
        "containerSpec": {"imageUri": IMAGE},
    }
    assert third_pool(load(tmp_path, V100, LEGACY))["replicaCount"] == 1
    assert load(tmp_path, V100, LEGACY + SERVERS).reduction_server is None


def test_a_third_pool_of_google_s_file_wins(tmp_path):
    job = load(tmp_path, V100, WORKERS + POOL)
    assert job.reduction_server == ReductionServer(5)
    assert job.cluster.parameter_servers is None
    assert third_pool(job) == yaml.safe_load(POOL)[0]

    job = load(tmp_path, V100, WORKERS + POOL, "reduction_server.replicas=9")
    assert third_pool(job) == yaml.safe_load(POOL)[0] | {"replicaCount": 9}
    job = load(tmp_path, V100, WORKERS + POOL, "reduction_server=")
    assert third_pool(job) == {}


def test_parameter_servers_of_google_s_file_replace_it_with_a_note(tmp_path):
    servers = POOL.replace("vertex-ai-restricted/training/reductionserver:1", "p/r/servers:1")
    (tmp_path / "distlaunch.yaml").write_text(V100)
    (tmp_path / "config.yaml").write_text(WORKERS + servers)
    loaded = load_job(tmp_path, config=tmp_path / "config.yaml")
    assert loaded.job.reduction_server is None
    assert loaded.notes == (
        f"{tmp_path}/distlaunch.yaml: reduction_server is not used, as {tmp_path}/config.yaml "
        "defines worker pool 2",
    )


def test_ai_platform_s_format_cannot_express_it(tmp_path):
    _, notes = render_config(load(tmp_path, V100), format="ai-platform", image="x/y:1")
    assert "reduction_server: left out, as AI Platform had no Reduction Server" in notes
