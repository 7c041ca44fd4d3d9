"""The service account that the job runs as."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from distlaunch.checks.cloud.context import unanswered
from distlaunch.checks.problem import error
from distlaunch.errors import GoogleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.cloud.context import About
    from distlaunch.checks.problem import Problem

_ACT_AS = "iam.serviceAccounts.actAs"


def problems(about: About, email: str) -> Iterator[Problem]:
    """Yield that there is no such account, that it is switched off or may not be used."""
    resource = f"projects/-/serviceAccounts/{quote(email, safe='@')}"
    refusal: GoogleError | None = None
    try:
        found = about.get("iam", resource)
    except GoogleError as problem:
        if problem.status == 404:
            yield _missing(about, email)
            return
        refusal = problem
    else:
        if found.get("disabled"):
            yield _disabled(email)
    if about.missing("iam", resource, [_ACT_AS]):
        yield _denied(about, email)
    elif refusal is not None and refusal.status != 403:
        yield unanswered(email, refusal)


def _missing(about: About, email: str) -> Problem:
    name, _, domain = email.partition("@")
    project = domain.removesuffix(".iam.gserviceaccount.com") or about.asked.project
    return error(
        "account-missing",
        email,
        "there is no such service account",
        f"run 'gcloud iam service-accounts create {name} --project={project}'",
    )


def _disabled(email: str) -> Problem:
    return error(
        "account-denied",
        email,
        "it is disabled",
        f"run 'gcloud iam service-accounts enable {email}'",
    )


def _denied(about: About, email: str) -> Problem:
    return error(
        "account-denied",
        email,
        f"{about.who} may not run a job as it ({_ACT_AS} is missing)",
        f"who may grant it runs 'gcloud iam service-accounts add-iam-policy-binding {email} "
        f"--member={about.member} --role=roles/iam.serviceAccountUser'",
    )
