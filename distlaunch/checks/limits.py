"""What Vertex AI allows of a job, whatever machines it asks for.

The limits are those of its documentation: https://cloud.google.com/vertex-ai/docs/quotas and the
reference of CustomJobSpec, https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distlaunch.checks import tuning
from distlaunch.checks.problem import error, warning
from distlaunch.checks.request_view import WEEK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest, PoolRequest

_POOLS = 4
_NAME_LENGTH = 128
_LABELS = 64
_VARIABLES = 100
_DISK_GB = (100, 64_000)
_DISKS = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
_ONLY_HYPERDISK = ("a3-ultragpu-", "a4-", "a4x-")  # machines that boot from no other
_DAY = 24 * 3600
_NETWORK = re.compile(
    r"projects/(?P<project>[^/]+)/global/networks/(?P<name>[a-z]([-a-z0-9]*[a-z0-9])?)", re.ASCII
)
_KEY = re.compile(r"projects/[^/]+/locations/(?P<region>[^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+")
_ACCOUNT = re.compile(r"[^\s@]+@([a-z0-9-]+\.)+gserviceaccount\.com", re.ASCII)
_TENSORBOARD = re.compile(r"projects/[^/]+/locations/(?P<region>[^/]+)/tensorboards/[^/]+")


def problems(asked: JobRequest) -> Iterator[Problem]:
    """Yield where a job passes one of Vertex AI's limits.

    Parameters
    ----------
    asked
        What the job asks for.
    """
    yield from _pool_problems(asked)
    for pool in asked.pools:
        yield from _disk_problems(pool)
        yield from _variable_problems(pool)
    yield from _name_problems(asked)
    yield from _scheduling_problems(asked)
    yield from _tensorboard_problems(asked)
    yield from _network_problems(asked)
    yield from _account_problems(asked)
    yield from _key_problems(asked)
    yield from tuning.problems(asked)


def _pool_problems(asked: JobRequest) -> Iterator[Problem]:
    chief = next((pool for pool in asked.pools if pool.role == "chief"), None)
    if chief is None or chief.replicas != 1:
        has = f"{chief.replicas} machines" if chief else "no machine"
        yield error(
            "chief-count",
            "cluster.chief",
            f"the first pool is the chief's, and it has {has}",
            "give it one machine (replicaCount: 1), and others to the workers",
        )
    if len(asked.pools) > _POOLS:
        yield error(
            "pool-count",
            "vertex",
            f"a job has {_POOLS} pools at most, and this has {len(asked.pools)}",
            "put machines of one kind into one pool",
        )


def _disk_problems(pool: PoolRequest) -> Iterator[Problem]:
    least, most = _DISK_GB
    if pool.disk_gb is not None and not least <= pool.disk_gb <= most:
        yield error(
            "disk-size",
            pool.section,
            f"a boot disk has {least} to {most} GB, and this is to have {pool.disk_gb}",
            f"write bootDiskSizeGb: {min(max(pool.disk_gb, least), most)}",
        )
    if pool.disk_type is None:
        return
    if pool.disk_type not in _DISKS:
        yield error(
            "disk-type",
            pool.section,
            f"a boot disk is one of {', '.join(_DISKS)}, and this is to be {pool.disk_type}",
            f"write bootDiskType: {boot_disk(pool.machine)}, or leave it out",
        )
    elif pool.disk_type != boot_disk(pool.machine) == "hyperdisk-balanced":
        yield error(
            "disk-type",
            pool.section,
            f"{pool.machine} boots from hyperdisk-balanced alone, and not from {pool.disk_type}",
            "write bootDiskType: hyperdisk-balanced, or leave it out",
        )


def boot_disk(machine: str) -> str:
    """Return the boot disk that a machine has where a job does not say one."""
    return "hyperdisk-balanced" if machine.startswith(_ONLY_HYPERDISK) else "pd-ssd"


def _variable_problems(pool: PoolRequest) -> Iterator[Problem]:
    if pool.variables > _VARIABLES:
        yield error(
            "variable-count",
            "env",
            f"{pool.role} sets {pool.variables} variables, and Vertex AI takes {_VARIABLES}",
            f"take {pool.variables - _VARIABLES} out, or put them into a file of the image",
        )


def _name_problems(asked: JobRequest) -> Iterator[Problem]:
    if len(asked.name) > _NAME_LENGTH:
        yield error(
            "name-length",
            "name",
            f"a job's name has {_NAME_LENGTH} characters at most, and this has {len(asked.name)}",
            f"take {len(asked.name) - _NAME_LENGTH} away",
        )
    if len(asked.labels) > _LABELS:
        yield error(
            "label-count",
            "labels",
            f"a job has {_LABELS} labels at most, and this has {len(asked.labels)}, one of them "
            "the launch's own",
            f"take {len(asked.labels) - _LABELS} out",
        )


def _scheduling_problems(asked: JobRequest) -> Iterator[Problem]:
    if asked.timeout > WEEK:
        days = f"{asked.timeout / _DAY:.3g} days"
        if asked.strategy == "FLEX_START":
            what = f"FLEX_START runs a job for 7 days at most, and this says {days}"
            yield error("timeout-too-long", "scheduling.timeout", what, "write timeout: 7d")
        else:
            yield warning(
                "timeout-too-long",
                "scheduling.timeout",
                f"{days} are more than the 7 that Vertex AI documents",
                "write timeout: 7d, and go on from the last checkpoint after that",
            )
    if asked.timeout < 0:
        yield _negative(asked.timeout, "timeout", "write timeout: 7d, which is the default")
    if asked.max_wait is not None and asked.max_wait < 0:
        yield _negative(asked.max_wait, "max_wait", "write max_wait: 24h, or 0s to wait forever")
    elif asked.max_wait is not None and asked.strategy != "FLEX_START":
        yield warning(
            "max-wait-ignored",
            "scheduling.max_wait",
            f"{asked.strategy} does not wait for machines, so max_wait says nothing",
            "leave it out, or write strategy: FLEX_START",
        )


def _negative(seconds: int, field: str, remedy: str) -> Problem:
    what = f"no time is less than none, and this is {seconds} seconds"
    return error("duration-negative", f"scheduling.{field}", what, remedy)


def _tensorboard_problems(asked: JobRequest) -> Iterator[Problem]:
    if asked.tensorboard is None:
        return
    form = f"projects/{asked.project or 'PROJECT'}/locations/{asked.region or 'REGION'}"
    found = _TENSORBOARD.fullmatch(asked.tensorboard)
    if found is None or (asked.region and found["region"] != asked.region):
        where = f"is in {found['region']}" if found else "is no TensorBoard's name"
        yield error(
            "tensorboard-region",
            "tensorboard",
            f"{asked.tensorboard} {where}, and the job takes one of {asked.region or 'its region'}",
            f"write {form}/tensorboards/ID; 'gcloud ai tensorboards list --region "
            f"{asked.region or 'REGION'}' tells them",
        )
    if asked.service_account is None:
        yield error(
            "tensorboard-without-account",
            "tensorboard",
            "the job needs an account of its own to write to a TensorBoard",
            "say service_account: EMAIL, of one with roles/aiplatform.user and roles/storage.admin",
        )


def _network_problems(asked: JobRequest) -> Iterator[Problem]:
    if asked.network is None:
        return
    found = _NETWORK.fullmatch(asked.network)
    if found is not None and found["project"].isdecimal():
        return
    project = found["project"] if found else asked.project or "PROJECT"
    name = found["name"] if found else "NAME"
    yield error(
        "network-form",
        "network",
        f"expected projects/NUMBER/global/networks/NAME, got {asked.network}",
        f"write projects/NUMBER/global/networks/{name}, with the number that 'gcloud projects "
        f'describe {project} --format="value(projectNumber)"\' tells',
    )


def _account_problems(asked: JobRequest) -> Iterator[Problem]:
    account = asked.service_account
    if account and not _ACCOUNT.fullmatch(account):
        yield error(
            "account-form",
            "service_account",
            f"a job runs as a service account, whose email ends in gserviceaccount.com, and not "
            f"as {account}",
            f"write NAME@{asked.project or 'PROJECT'}.iam.gserviceaccount.com; 'gcloud iam "
            f"service-accounts list --project={asked.project or 'PROJECT'}' tells them",
        )


def _key_problems(asked: JobRequest) -> Iterator[Problem]:
    """Yield what speaks against the key: it lies in the job's region itself (EncryptionSpec)."""
    if asked.encryption_key is None:
        return
    where, region = "vertex.encryptionSpec.kmsKeyName", asked.region or "REGION"
    found = _KEY.fullmatch(asked.encryption_key)
    if found is None:
        yield error(
            "key-form",
            where,
            f"expected projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY, got "
            f"{asked.encryption_key or 'nothing'}",
            f"write the name that 'gcloud kms keys list --location={region} --keyring=RING' tells",
        )
    elif asked.region and found["region"] != asked.region:
        yield error(
            "key-region",
            where,
            f"the key is in {found['region']}, and the job takes one of {region} alone",
            f"write a key of {region}; 'gcloud kms keyrings list --location={region}' tells where "
            "they are",
        )
