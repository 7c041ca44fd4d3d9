"""Names of jobs and projects, from any text."""

from __future__ import annotations

import keyword
import re
import unicodedata

LONGEST_NAME = 63  # characters in a label's value
JOB_NAME = r"[a-z][a-z0-9_-]{0,62}"


def project_name(text: str) -> str:
    """Return a name made from any text, a folder's as a rule.

    It can be a Python package, a part of an image's name, a label's value and a job's name:
    a-z, 0-9 and single underscores inside, a letter first, at most 63 characters, no keyword.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if not name[:1].isalpha():
        name = f"job_{name}".strip("_")
    if keyword.iskeyword(name):
        name = f"{name}_job"
    return name[:LONGEST_NAME].rstrip("_")


def job_name(text: str) -> str:
    """Return a text as it is where it can be a job's name, else one made from it."""
    return text if re.fullmatch(JOB_NAME, text, re.ASCII) else project_name(text)
