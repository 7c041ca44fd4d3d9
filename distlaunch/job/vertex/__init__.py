"""Vertex AI's job format: a Job → the request, and Google's files → a Job."""

from distlaunch.job.vertex.fields import SPECS, Collection
from distlaunch.job.vertex.from_job import (
    as_body_of,
    build_request,
    collection,
    is_tuned,
    needs_image,
    output_directory,
    plain_request,
)

__all__ = [
    "SPECS",
    "Collection",
    "as_body_of",
    "build_request",
    "collection",
    "is_tuned",
    "needs_image",
    "output_directory",
    "plain_request",
]
