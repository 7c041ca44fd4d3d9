"""Jobs as Google's JSON, for the tests of what is taken and what is not."""

from __future__ import annotations

import json
from typing import Any


def changed(job: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a job with one field set, as ``jobSpec.workerPoolSpecs.0.replicaCount``."""
    made = here = json.loads(json.dumps(job))
    *way, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in way:
        here = here[part] if isinstance(part, int) else here.setdefault(part, {})
    here[last] = value
    return made
