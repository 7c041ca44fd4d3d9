from __future__ import annotations

import pytest

from distlaunch.checks import limits
from distlaunch.job import machine_catalogue
from distlaunch.job.vertex.fields import DEFAULT_TIMEOUT as WEEK
from distlaunch.job.vertex.view import JobRequest, PoolRequest

ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
EXPERIMENT = "projects/123/locations/us-central1/metadataStores/default/contexts/digits"
BOARD = "projects/123/locations/us-central1/tensorboards/456"
KEY = "projects/my-project/locations/us-central1/keyRings/ring/cryptoKeys/key"
FLEX = {"strategy": "FLEX_START"}
DISK, LABELS = {"disk_gb": 64_000, "disk_type": "pd-standard"}, {"labels": (("a", ""),) * 64}


def problems(request, *, is_moved=False):
    return list(limits.problems(request, machine_catalogue.load(None), is_moved=is_moved))


def pool(role="chief", replicas=1, machine="n1-standard-8", **fields):
    return PoolRequest(role, replicas, machine, **fields)


def request(*pools, name="digits", region="us-central1", **fields):
    return JobRequest(name, "my-project", region, pools or (pool(),), **fields)


def search(trials=4, parallel=2, parameters=("rate",)):
    spec = {"metrics": [{"metricId": "loss"}], "parameters": parameters}
    counts = {"maxTrialCount": trials, "parallelTrialCount": parallel}
    return request(search={**counts, "studySpec": spec})


@pytest.mark.parametrize(
    "allowed",
    [
        request(name="n" * 128, timeout=WEEK, **LABELS),
        request(*[pool(), pool("workers", 10_000)] * 2),
        request(pool(variables=100, disk_gb=100)),
        request(pool(**DISK)),
        request(pool(machine="a4-highgpu-8g", disk_type="hyperdisk-balanced")),
        request(timeout=WEEK, max_wait=0, **FLEX),
        request(tensorboard=BOARD, service_account=ACCOUNT),
        request(experiment=EXPERIMENT, experiment_run=f"{EXPERIMENT}-a", service_account=ACCOUNT),
        request(region="", tensorboard=BOARD, service_account=ACCOUNT, encryption_key=KEY),
        request(service_account="123-compute@developer.gserviceaccount.com"),
        request(encryption_key=KEY, network="projects/123/global/networks/my-net"),
        search(4, 4),
    ],
)
def test_jobs_within_the_limits_have_no_problem(allowed):
    assert problems(allowed) == []


@pytest.mark.parametrize(
    ("exceeding", "code", "words"),
    [
        (request(pool(machine="a4x-highgpu-4g", disk_type="pd-ssd")), "disk-type", "must be hyper"),
        (request(timeout=WEEK + 43_200, **FLEX), "timeout-too-long", "7.5 days is more than the 7"),
        (request(network="projects/other/global/networks/net"), "network-form", "projects/NUMBER/"),
        (
            request(tensorboard="456", service_account=ACCOUNT),
            "tensorboard-region",
            "expected projects/my-project/locations/us-central1/tensorboards/ID, got 456",
        ),
        (
            request(experiment=EXPERIMENT, tensorboard=BOARD, service_account=ACCOUNT),
            "experiment-conflict",
            "experiment: cannot be used with tensorboard",
        ),
        (
            request(experiment=EXPERIMENT.replace("us-", "eu-"), service_account=ACCOUNT),
            "experiment-region",
            "is in eu-central1, and the job in us-central1",
        ),
        (search(0, 1), "tuning-impossible", "tuning.trials: needs 1 trial or more, got 0"),
        (search(parameters=()), "tuning-impossible", "tuning.parameters: needs a parameter"),
    ],
)
def test_a_limit_is_an_error_with_its_remedy(exceeding, code, words):
    [problem] = problems(exceeding)
    assert (problem.code, problem.severity) == (code, "error")
    assert words in problem.line


def test_a_job_that_may_be_moved_has_no_tensorboard_and_only_flex_start_refuses_longer_jobs():
    board = request(tensorboard=BOARD, service_account=ACCOUNT, region="us-east4")
    [problem] = problems(board, is_moved=True)
    assert (problem.code, problem.severity) == ("tensorboard-region", "error")
    assert "the job may be moved to us-east4; remove scheduling.regions" in problem.line
    [problem] = problems(request(timeout=WEEK + 1))
    assert (problem.code, problem.severity) == ("timeout-too-long", "warning")
