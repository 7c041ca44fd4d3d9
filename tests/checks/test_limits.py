from __future__ import annotations

import pytest

from distlaunch.checks.limits import problems
from distlaunch.checks.request_view import WEEK, JobRequest, PoolRequest

CHIEF = PoolRequest("chief", 1, "n1-standard-8")
WORKERS = PoolRequest("workers", 3, "n1-standard-8")
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
BOARD = "projects/123/locations/us-central1/tensorboards/456"
KEY = "projects/my-project/locations/us-central1/keyRings/ring/cryptoKeys/key"
DAY = 24 * 3600
STUDY = {
    "metrics": [{"metricId": "loss"}],
    "parameters": [{"parameterId": "rate", "categoricalValueSpec": {"values": ["a"]}}],
}


def asked(*pools, name="digits", region="us-central1", **rest):
    return JobRequest(name, "my-project", region, pools or (CHIEF, WORKERS), **rest)


def of_chief(**rest):
    return asked(PoolRequest("chief", 1, **({"machine": "n1-standard-8"} | rest)))


def labels(count):
    return tuple((f"label-{number}", "") for number in range(count))


GOOD = {
    "plain": asked(),
    "all pools": asked(
        *(PoolRequest(role, 1, "n1-standard-8") for role in ("chief", "c", "d", "e"))
    ),
    "the longest name": asked(name="n" * 128),
    "the most labels": asked(labels=labels(64)),
    "the most variables": of_chief(variables=100),
    "the smallest disk": of_chief(disk_gb=100),
    "the largest disk": of_chief(disk_gb=64_000, disk_type="pd-standard"),
    "a disk that a machine has by default": of_chief(
        machine="a4-highgpu-8g", disk_type="hyperdisk-balanced"
    ),
    "the longest run": asked(timeout=WEEK),
    "the longest run by FLEX_START": asked(timeout=WEEK, strategy="FLEX_START", max_wait=0),
    "a TensorBoard": asked(tensorboard=BOARD, service_account=ACCOUNT),
    "a TensorBoard where no region is said": asked(
        region="", tensorboard=BOARD, service_account=ACCOUNT
    ),
    "an account of Compute Engine's": asked(
        service_account="123-compute@developer.gserviceaccount.com"
    ),
    "a key": asked(encryption_key=KEY),
    "a key where no region is said": asked(region="", encryption_key=KEY),
    "a network": asked(network="projects/123/global/networks/my-net"),
}

BAD = {
    "two chiefs": (
        asked(PoolRequest("chief", 2, "n1-standard-8")),
        ("error", "chief-count", "cluster.chief", "2 machines", "replicaCount: 1"),
    ),
    "no chief": (asked(WORKERS), ("error", "chief-count", "cluster.chief", "no machine", "1")),
    "five pools": (
        asked(CHIEF, *[WORKERS] * 4),
        ("error", "pool-count", "vertex", "4 pools at most, and this has 5", "one pool"),
    ),
    "a long name": (
        asked(name="n" * 130),
        ("error", "name-length", "name", "128 characters at most, and this has 130", "take 2 away"),
    ),
    "many labels": (
        asked(labels=labels(67)),
        ("error", "label-count", "labels", "64 labels at most, and this has 67", "take 3 out"),
    ),
    "many variables": (
        asked(CHIEF, PoolRequest("workers", 1, "n1-standard-8", variables=101)),
        ("error", "variable-count", "env", "workers sets 101 variables", "take 1 out"),
    ),
    "a small disk": (
        of_chief(disk_gb=99),
        ("error", "disk-size", "cluster.chief", "100 to 64000 GB", "bootDiskSizeGb: 100"),
    ),
    "a large disk": (
        of_chief(disk_gb=64_001),
        ("error", "disk-size", "cluster.chief", "64001", "bootDiskSizeGb: 64000"),
    ),
    "a disk of no kind": (
        of_chief(disk_type="pd-balanced"),
        ("error", "disk-type", "cluster.chief", "hyperdisk-balanced", "bootDiskType: pd-ssd"),
    ),
    "a disk of no kind where there is one kind": (
        of_chief(machine="a3-ultragpu-8g", disk_type="ssd"),
        ("error", "disk-type", "cluster.chief", "ssd", "bootDiskType: hyperdisk-balanced"),
    ),
    "a disk that a machine does not boot from": (
        of_chief(machine="a4x-highgpu-4g", disk_type="pd-ssd"),
        ("error", "disk-type", "cluster.chief", "not from pd-ssd", "hyperdisk-balanced"),
    ),
    "a long run by FLEX_START": (
        asked(timeout=WEEK + DAY // 2, strategy="FLEX_START"),
        ("error", "timeout-too-long", "scheduling.timeout", "7 days at most", "timeout: 7d"),
    ),
    "a long run": (
        asked(timeout=10 * DAY, strategy="SPOT"),
        ("warning", "timeout-too-long", "scheduling.timeout", "10 days", "timeout: 7d"),
    ),
    "a wait that nobody waits": (
        asked(max_wait=3600),
        ("warning", "max-wait-ignored", "scheduling.max_wait", "STANDARD", "FLEX_START"),
    ),
    "no wait that nobody waits": (
        asked(max_wait=0, strategy="SPOT"),
        ("warning", "max-wait-ignored", "scheduling.max_wait", "SPOT", "FLEX_START"),
    ),
    "a TensorBoard without an account": (
        asked(tensorboard=BOARD),
        ("error", "tensorboard-without-account", "tensorboard", "account", "service_account:"),
    ),
    "a TensorBoard elsewhere": (
        asked(region="us-east1", tensorboard=BOARD, service_account=ACCOUNT),
        ("error", "tensorboard-region", "tensorboard", "is in us-central1", "--region us-east1"),
    ),
    "a TensorBoard by its id alone": (
        asked(tensorboard="456", service_account=ACCOUNT),
        (
            "error",
            "tensorboard-region",
            "tensorboard",
            "456 is no TensorBoard's name",
            "write projects/my-project/locations/us-central1/tensorboards/ID",
        ),
    ),
    "a network by its name alone": (
        asked(network="default"),
        ("error", "network-form", "network", "got default", "describe my-project --format"),
    ),
    "a network by its project's name": (
        asked(network="projects/other-1/global/networks/my-net"),
        (
            "error",
            "network-form",
            "network",
            "got projects/other-1/",
            "write projects/NUMBER/global/networks/my-net, with the number that 'gcloud projects "
            "describe other-1 ",
        ),
    ),
    "a timeout before the start": (
        asked(timeout=-60),
        ("error", "duration-negative", "scheduling.timeout", "-60 seconds", "timeout: 7d"),
    ),
    "a wait before the start": (
        asked(max_wait=-1),
        ("error", "duration-negative", "scheduling.max_wait", "-1 seconds", "max_wait: 24h"),
    ),
    "an account by its name alone": (
        asked(service_account="trainer"),
        (
            "error",
            "account-form",
            "service_account",
            "not as trainer",
            "NAME@my-project.iam.gserviceaccount.com",
        ),
    ),
    "a person in place of an account": (
        asked(service_account="me@example.com"),
        ("error", "account-form", "service_account", "me@example.com", "--project=my-project"),
    ),
    "a version of a key": (
        asked(encryption_key=f"{KEY}/cryptoKeyVersions/1"),
        (
            "error",
            "key-form",
            "vertex.encryptionSpec.kmsKeyName",
            "got projects/my-project/",
            "--location=us-central1",
        ),
    ),
    "no key in the place of one": (
        asked(encryption_key=""),
        ("error", "key-form", "vertex.encryptionSpec.kmsKeyName", "got nothing", "gcloud kms"),
    ),
    "a key of several regions": (
        asked(encryption_key=KEY.replace("us-central1", "us")),
        (
            "error",
            "key-region",
            "vertex.encryptionSpec.kmsKeyName",
            "is in us, and the job takes one of us-central1",
            "a key of us-central1",
        ),
    ),
    "a search that cannot be": (
        asked(search={"maxTrialCount": 1, "parallelTrialCount": 2, "studySpec": STUDY}),
        ("error", "tuning-impossible", "tuning.parallel_trials", "1 in all", "trials: 2 or more"),
    ),
}


@pytest.mark.parametrize("wanted", GOOD.values(), ids=GOOD)
def test_what_is_within_the_limits_passes(wanted):
    assert list(problems(wanted)) == []


@pytest.mark.parametrize(("wanted", "told"), BAD.values(), ids=BAD)
def test_what_passes_a_limit_is_told_with_what_to_write(wanted, told):
    severity, code, where, what, remedy = told
    (problem,) = problems(wanted)
    assert (problem.severity, problem.code, problem.where) == (severity, code, where)
    assert what in problem.what
    assert remedy in problem.remedy


def test_all_is_told_at_once():
    wanted = asked(
        PoolRequest("chief", 2, "n1-standard-8", disk_gb=1, variables=200),
        name="n" * 200,
        max_wait=3,
        network="x",
    )
    assert [each.code for each in problems(wanted)] == [
        "chief-count",
        "disk-size",
        "variable-count",
        "name-length",
        "max-wait-ignored",
        "network-form",
    ]
