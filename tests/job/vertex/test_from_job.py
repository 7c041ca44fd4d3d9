"""Job → Vertex AI's request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distlaunch.job import vertex
from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    Program,
    RangeParameter,
    Scheduling,
    Tuning,
)
from distlaunch.job.vertex import proto
from distlaunch.job.vertex.tuning import read_tuning

CPU = Machine("n1-standard-4")
GPU = Machine("n1-standard-8", "NVIDIA_TESLA_T4", 2)
SMALL = Job("digits", Cluster(Pool(CPU)))
TUNED = replace(
    SMALL,
    tuning=Tuning(
        metric="val_accuracy",
        goal="maximize",
        parameters={
            "learning-rate": RangeParameter(1e-4, 0.1, scale="log"),
            "layers": RangeParameter(1, 4, is_integer=True),
            "optimizer": ChoiceParameter(("sgd", "adam")),
            "rate": ChoiceParameter(("0.5", "0.1", "2"), is_numeric=True, scale="reverse_log"),
        },
        trials=12,
        parallel_trials=3,
        algorithm="random",
    ),
)


def sent(job: Job, *, image: str | None = "a/b@sha256:1", **kwargs: Any) -> dict[str, Any]:
    """Return the request of a job; Google's own messages take it."""
    body = vertex.build_request(job, image=image, **{"labels": {}, "job_dir": None, **kwargs})
    proto.validate_request(vertex.collection(job), body)
    return body


def pools(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["jobSpec"]["workerPoolSpecs"]


def env_of(program: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in program["env"]}


def test_a_whole_job():
    job = Job(
        name="digits",
        cluster=Cluster(chief=Pool(GPU), workers=Pool(GPU, 3), evaluators=Pool(CPU)),
        args=("--epochs=5", 'it\'s "quoted"\n'),
        scheduling=Scheduling("FLEX_START", timeout=36 * 3600, max_wait=90 * 60),
        labels={"team": "vision"},
        service_account="trainer@p.iam.gserviceaccount.com",
        network="projects/1/global/networks/default",
        tensorboard="projects/1/locations/r/tensorboards/2",
    )
    accelerators = {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}
    container = {"imageUri": "a/b@sha256:1", "args": list(job.args)}
    env = [{"name": "DISTLAUNCH_EXPECTED_GPUS", "value": "2"}]
    gpu_pool = {
        "machineSpec": {"machineType": "n1-standard-8", **accelerators},
        "replicaCount": 1,
        "containerSpec": {**container, "env": env},
    }
    machine = {"machineType": "n1-standard-4"}
    evaluator = {"machineSpec": machine, "replicaCount": 1, "containerSpec": container}
    labels = {"distlaunch-launch": "digits-1"}
    times = {"timeout": "129600s", "maxWaitDuration": "5400s"}
    assert sent(job, labels=labels, job_dir="gs://b/digits/digits-1") == {
        "displayName": "digits",
        "labels": {"team": "vision", **labels},
        "jobSpec": {
            "workerPoolSpecs": [gpu_pool, {**gpu_pool, "replicaCount": 3}, {}, evaluator],
            "scheduling": {"strategy": "FLEX_START", **times},
            "serviceAccount": job.service_account,
            "network": job.network,
            "tensorboard": job.tensorboard,
            "baseOutputDirectory": {"outputUriPrefix": "gs://b/digits/digits-1"},
        },
    }


STORE = "projects/p/locations/r/metadataStores/default"


@pytest.mark.parametrize(
    ("place", "names", "written"),
    [
        ({"project": "p", "region": "r"}, ("digits", "a"), (f"{STORE}/contexts/digits", "-a")),
        ({"project": "p", "region": "r"}, ("digits", None), (f"{STORE}/contexts/digits", None)),
        ({}, ("projects/1/x/digits", "projects/1/x/digits-a"), ("projects/1/x/digits", "-a")),
        ({}, ("projects/1/x/digits", "a"), ("projects/1/x/digits", "-a")),
        ({}, (None, None), (None, None)),
    ],
)
def test_an_experiment_and_its_run_are_written_as_resource_names(place, names, written):
    experiment, run = names
    spec = sent(replace(SMALL, experiment=experiment, experiment_run=run, **place))["jobSpec"]
    name, suffix = written
    assert spec.get("experiment") == name
    assert spec.get("experimentRun") == (suffix and f"{name}{suffix}")


ENV = {"NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    "program",
    [
        None,
        Program(image="a/b:1", env={"DISTLAUNCH_EXPECTED_GPUS": "8"}),
        Program(image="a/b:1", module="trainer", packages=("gs://b/t.tar.gz",)),
    ],
)
@pytest.mark.parametrize(
    ("machine", "expected"),
    [(CPU, {}), (GPU, {"DISTLAUNCH_EXPECTED_GPUS": "2"}), (Machine("cloud-tpu", "TPU_V3", 8), {})],
)
def test_a_task_has_the_variables_of_the_job_and_the_number_of_its_gpus(program, machine, expected):
    cluster = Cluster(Pool(machine, 1, program), Pool(CPU, 2))
    chief, workers = pools(sent(Job("j", cluster, env=ENV)))
    assert env_of(chief.get("containerSpec") or chief["pythonPackageSpec"]) == ENV | expected
    assert env_of(workers["containerSpec"]) == ENV


def test_pools_without_machines_are_skipped():
    cluster = Cluster(Pool(CPU), workers=Pool(CPU, 0), parameter_servers=Pool(CPU, 2))
    chief, workers, servers = pools(sent(replace(SMALL, cluster=cluster)))
    assert (chief["replicaCount"], workers, servers["replicaCount"]) == (1, {}, 2)
    cluster = Cluster(Pool(CPU), workers=Pool(CPU, 0))
    assert len(pools(sent(replace(SMALL, cluster=cluster)))) == 1


def test_a_pool_with_a_program_of_its_own():
    program = Program("x/y:1", ("python", "-m"), ("other",), {"A": "2", "B": "3"})
    cluster = Cluster(Pool(CPU), parameter_servers=Pool(CPU, program=program))
    job = replace(SMALL, args=("--epochs=5",), env={"A": "1", "C": "4"}, cluster=cluster)
    chief, _, server = pools(sent(job))
    assert env_of(chief["containerSpec"]) == {"A": "1", "C": "4"}
    assert env_of(server["containerSpec"]) == {"A": "2", "C": "4", "B": "3"}
    del server["containerSpec"]["env"]
    values = {"imageUri": "x/y:1", "command": ["python", "-m"], "args": ["other"]}
    assert server["containerSpec"] == values


@pytest.mark.parametrize(
    ("programs", "uri", "needed"),
    [
        ((None, None), None, True),
        ((None, None), "x/y:1", False),
        ((Program("x/y:1"), Program("x/y:2")), None, False),
        ((Program("x/y:1"), Program(args=("--a",))), None, True),
        ((Program("x/y:1"), None), None, True),
    ],
)
def test_whether_an_image_is_needed(programs, uri, needed):
    chief, workers = programs
    cluster = Cluster(Pool(CPU, program=chief), workers=Pool(CPU, 2, program=workers))
    assert vertex.needs_image(replace(SMALL, cluster=cluster, image=Image(uri=uri))) is needed


def test_a_search_is_read_as_it_was_written():
    body = sent(TUNED)
    assert (body["maxTrialCount"], body["parallelTrialCount"]) == (12, 3)
    study = body["studySpec"]
    assert study["metrics"] == [{"metricId": "val_accuracy", "goal": "MAXIMIZE"}]
    assert study["algorithm"] == "RANDOM_SEARCH"
    ends = {"minValue": 1e-4, "maxValue": 0.1}
    rate, layers, optimizer, choice = study["parameters"]
    scale = "UNIT_LOG_SCALE"
    assert rate == {"parameterId": "learning-rate", "doubleValueSpec": ends, "scaleType": scale}
    assert layers["integerValueSpec"] == {"minValue": 1, "maxValue": 4}
    assert optimizer["categoricalValueSpec"] == {"values": ["sgd", "adam"]}
    assert choice["discreteValueSpec"] == {"values": [0.1, 0.5, 2.0]}
    [pool] = body["trialJobSpec"]["workerPoolSpecs"]
    assert pool["containerSpec"] == {"imageUri": "a/b@sha256:1"}
    numbers = ChoiceParameter(("0.1", "0.5", "2"), is_numeric=True, scale="reverse_log")  # sorted
    parameters = {**TUNED.tuning.parameters, "rate": numbers}
    assert read_tuning(body) == replace(TUNED.tuning, parameters=parameters)


CONDITION = {"parameterSpec": {"parameterId": "y", "discreteValueSpec": {"values": [1]}}}
PARAMETER = {"parameterId": "x", "integerValueSpec": {"maxValue": 3}}
SPECS = {
    "two metrics": {"metrics": [{"metricId": "a", "goal": "MAXIMIZE"}] * 2},
    "a condition": {"parameters": [{**PARAMETER, "conditionalParameterSpecs": [CONDITION]}]},
    "a number too large for a float": {
        "parameters": [{"parameterId": "x", "integerValueSpec": {"maxValue": 2**53 + 1}}]
    },
}


@pytest.mark.parametrize("name", SPECS)
def test_a_search_that_tuning_cannot_express_is_passed_through(name):
    study = {
        "metrics": [{"metricId": "a", "goal": "MAXIMIZE"}],
        "parameters": [PARAMETER],
    } | SPECS[name]
    assert read_tuning({"studySpec": study}) is None
    job = replace(SMALL, vertex={"studySpec": study})
    assert vertex.collection(job) == "hyperparameterTuningJobs"
    assert sent(job)["studySpec"] == study


def test_where_a_job_s_file_wants_its_output():
    folder = {"jobSpec": {"baseOutputDirectory": {"outputUriPrefix": "gs://b/x/"}}}
    job = replace(SMALL, vertex=folder)
    assert vertex.output_directory(job) == "gs://b/x"
    assert vertex.output_directory(SMALL) is None
    assert sent(job)["jobSpec"]["baseOutputDirectory"] == {"outputUriPrefix": "gs://b/x/"}
    directory = sent(job, job_dir="gs://b/y")["jobSpec"]["baseOutputDirectory"]
    assert directory == {"outputUriPrefix": "gs://b/y"}
