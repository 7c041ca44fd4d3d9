"""The bucket that the job writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from distlaunch.checks.cloud.context import lacking, unanswered
from distlaunch.checks.problem import error
from distlaunch.errors import GoogleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from distlaunch.checks.cloud.context import About
    from distlaunch.checks.problem import Problem

_PERMISSIONS = tuple(f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list"))


def name_of(about: About) -> str | None:
    """Return the bucket's name, None where the job has none."""
    folder = about.order.job_dir_of("ID") or ""
    return folder.removeprefix("gs://").partition("/")[0] or None


def problems(about: About, name: str) -> Iterator[Problem]:
    """Yield that the bucket is not there, is somewhere else or may not be written to.

    Who may write to a bucket may not always see where it is: the usual role for that
    (roles/storage.objectAdmin) has no storage.buckets.get.
    """
    refusal: GoogleError | None = None
    try:
        found = about.get("storage", f"b/{quote(name, safe='')}")
    except GoogleError as problem:
        if problem.status == 404:
            yield _missing(about, name)
            return
        refusal = problem
    else:
        yield from _place(about, name, found)
    lacks = _lacks(about, name)
    if lacks:
        yield _denied(about, name, lacks)
    elif refusal is not None:
        grant = _grant(about, name, "roles/storage.legacyBucketReader")
        yield unanswered(f"gs://{name}", refusal, grant=grant)


def _lacks(about: About, name: str) -> list[str]:
    path = f"b/{quote(name, safe='')}/iam/testPermissions"
    answer = about.get("storage", path, params={"permissions": list(_PERMISSIONS)})
    return lacking(_PERMISSIONS, answer)


def _place(about: About, name: str, found: Mapping[str, Any]) -> Iterator[Problem]:
    region, location = about.asked.region, str(found.get("location", "")).lower()
    kind = found.get("locationType", "region")
    if kind != "region":
        yield error(
            "bucket-not-regional",
            f"gs://{name}",
            f"it is a {kind} bucket ({location}), and training needs a regional one",
            _another(about, name),
        )
    elif region and location and location != region:
        yield error(
            "bucket-elsewhere",
            f"gs://{name}",
            f"it is in {location}, and the job runs in {region}",
            f"{_another(about, name)}, or add --region {location}",
        )


def _missing(about: About, name: str) -> Problem:
    return error(
        "bucket-missing", f"gs://{name}", "there is no such bucket", f"run '{_create(about, name)}'"
    )


def _another(about: About, name: str) -> str:
    other = f"{name}-{about.asked.region or 'REGION'}"
    return f"run '{_create(about, other)}' and say bucket: gs://{other}"


def _create(about: About, name: str) -> str:
    project, region = about.asked.project or "PROJECT", about.asked.region or "REGION"
    return f"gcloud storage buckets create gs://{name} --project={project} --location={region}"


def _denied(about: About, name: str, lacks: list[str]) -> Problem:
    return error(
        "bucket-denied",
        f"gs://{name}",
        f"{about.who} lacks {', '.join(lacks)} there",
        _grant(about, name, "roles/storage.objectAdmin"),
    )


def _grant(about: About, name: str, role: str) -> str:
    return (
        f"who may grant it runs 'gcloud storage buckets add-iam-policy-binding gs://{name} "
        f"--member={about.member} --role={role}'"
    )
