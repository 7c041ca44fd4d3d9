from __future__ import annotations

import pytest

from distlaunch.checks.limits import problems
from distlaunch.checks.request_view import WEEK, JobRequest, PoolRequest

CHIEF = PoolRequest("chief", 1, "n1-standard-8")
WORKERS = PoolRequest("workers", 3, "n1-standard-8")
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
BOARD = "projects/123/locations/us-central1/tensorboards/456"
KEY = "projects/my-project/locations/us-central1/keyRings/ring/cryptoKeys/key"
STUDY = {"metrics": [{"metricId": "loss"}], "parameters": [{"parameterId": "rate"}]}


def request(*pools, name="digits", region="us-central1", **rest):
    return JobRequest(name, "my-project", region, pools or (CHIEF, WORKERS), **rest)


def chief(**rest):
    return request(PoolRequest("chief", 1, **({"machine": "n1-standard-8"} | rest)))


def labels(count):
    return tuple((f"label-{number}", "") for number in range(count))


def search(trials=4, parallel=2, study=STUDY):
    return request(
        search={"maxTrialCount": trials, "parallelTrialCount": parallel, "studySpec": study}
    )


@pytest.mark.parametrize(
    "allowed",
    [
        request(),
        request(name="n" * 128, labels=labels(64), timeout=WEEK),
        request(*[CHIEF, WORKERS] * 2),
        request(CHIEF, PoolRequest("workers", 10_000, "n1-standard-8")),
        chief(variables=100, disk_gb=100),
        chief(disk_gb=64_000, disk_type="pd-standard"),
        chief(machine="a4-highgpu-8g", disk_type="hyperdisk-balanced"),
        request(timeout=WEEK, strategy="FLEX_START", max_wait=0),
        request(tensorboard=BOARD, service_account=ACCOUNT),
        request(region="", tensorboard=BOARD, service_account=ACCOUNT, encryption_key=KEY),
        request(service_account="123-compute@developer.gserviceaccount.com"),
        request(encryption_key=KEY, network="projects/123/global/networks/my-net"),
        search(4, 4),
    ],
)
def test_jobs_within_the_limits_have_no_problem(allowed):
    assert list(problems(allowed)) == []


@pytest.mark.parametrize(
    ("exceeding", "code", "key", "words"),
    [
        (chief(disk_gb=64_001), "disk-size", "cluster.chief", ("bootDiskSizeGb: 64000",)),
        (
            chief(machine="a4x-highgpu-4g", disk_type="pd-ssd"),
            "disk-type",
            "cluster.chief",
            ("must be hyperdisk-balanced", "got pd-ssd"),
        ),
        (
            request(timeout=WEEK + 43_200, strategy="FLEX_START"),
            "timeout-too-long",
            "scheduling.timeout",
            ("7.5 days", "FLEX_START allows", "timeout: 7d"),
        ),
        (
            request(tensorboard="456", service_account=ACCOUNT),
            "tensorboard-region",
            "tensorboard",
            ("projects/my-project/locations/us-central1/tensorboards/ID, got 456",),
        ),
        (
            request(network="projects/other/global/networks/net"),
            "network-form",
            "network",
            ("expected projects/NUMBER/global/networks/NAME",),
        ),
        (
            request(encryption_key=KEY.replace("us-central1", "us")),
            "key-region",
            "vertex.encryptionSpec.kmsKeyName",
            ("is in us, and the job in us-central1",),
        ),
        (
            search(4, 9),
            "tuning-impossible",
            "tuning.parallel_trials",
            ("9 trials at once", "trials: 4 or less"),
        ),
        (search(0, 1), "tuning-impossible", "tuning.trials", ("got 0", "trials: 20")),
        (search(study={}), "tuning-impossible", "tuning.parameters", ("needs a parameter",)),
    ],
)
def test_a_limit_is_an_error_with_its_remedy(exceeding, code, key, words):
    [problem] = problems(exceeding)
    assert (problem.code, problem.severity, problem.where) == (code, "error", key)
    assert all(word in f"{problem.what}; {problem.remedy}" for word in words)
