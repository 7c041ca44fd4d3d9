"""The APIs that a job needs, and the account that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.cloud.context import CONSOLE
from distlaunch.checks.problem import error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.cloud.context import About
    from distlaunch.checks.problem import Problem

_ALWAYS = ("aiplatform", "logging", "storage")


def problems(about: About, *, with_images: bool) -> Iterator[Problem]:
    """Yield the APIs that are not enabled.

    Parameters
    ----------
    with_images
        Whether the project's own Artifact Registry has the job's images.
    """
    project = about.asked.project
    needed = (*_ALWAYS, "artifactregistry") if with_images else _ALWAYS
    names = [f"projects/{project}/services/{each}.googleapis.com" for each in needed]
    path = f"projects/{about.project}/services:batchGet"
    answer = about.get("serviceusage", path, params={"names": names})
    for service in answer.get("services") or []:
        if service.get("state") != "ENABLED":
            api = str(service.get("name")).rpartition("/")[2]
            yield error(
                "api-disabled",
                api,
                f"is not enabled in project {project}",
                f"run 'gcloud services enable {api} --project={project}' and wait a minute",
            )


def billing(about: About) -> Iterator[Problem]:
    """Yield that nobody pays for the project, if so."""
    project = about.asked.project
    answer = about.get("cloudbilling", f"projects/{about.project}/billingInfo")
    if not answer.get("billingEnabled"):
        yield error(
            "billing-off",
            f"project {project}",
            "no billing account pays for it",
            f"run 'gcloud billing projects link {project} --billing-account=ACCOUNT', or see "
            f"{CONSOLE}/billing/linkedaccount?project={project}",
        )
