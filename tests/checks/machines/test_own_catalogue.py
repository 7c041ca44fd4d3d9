"""Any job with any catalogue of a user: every problem has one line with a remedy."""

from __future__ import annotations

import json
import re
import tempfile
from datetime import date
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from distlaunch.checks.machines import problems
from distlaunch.checks.request_view import JobRequest, PoolRequest
from distlaunch.job.machine_catalogue import load

MACHINES = st.sampled_from(["n1-standard-8", "a2-highgpu-1g", "cloud-tpu", "x9-new-4", "x9-old-2"])
KINDS = st.sampled_from(["NVIDIA_TESLA_T4", "NVIDIA_TESLA_A100", "NVIDIA_NEW", "TPU_V2", "TPU_NEW"])
REGIONS = st.sampled_from(["us-central1", "europe-west8", "mars-north1"])
DAYS = st.dates(date(2024, 1, 1), date(2028, 1, 1))


def some(values):
    return st.none() | values


def several(keys, values):
    return st.dictionaries(keys, some(values), max_size=3)


COUNTS = st.lists(st.integers(1, 16), min_size=1, max_size=3)
MACHINE = st.fixed_dictionaries(
    {},
    optional={
        "cpus": st.integers(1, 200),
        "memory_gb": st.floats(1, 4000),
        "accelerators": some(several(KINDS, COUNTS)),
        "needs_accelerator": st.booleans(),
        "topologies": st.lists(st.sampled_from(["1x1", "2x4", "2x2x4"])),
        "tpu": some(KINDS),
        "architecture": st.sampled_from(["amd64", "arm64"]),
    },
)
RETIRED_ACCELERATOR = st.fixed_dictionaries(
    {"since": DAYS.map(str)}, optional={"instead": st.lists(KINDS, max_size=3)}
)
RETIRED_MACHINE = st.fixed_dictionaries(
    {"since": DAYS.map(str), "machine": MACHINES},
    optional={"accelerator": KINDS, "count": st.integers(1, 8), "why": st.just("it is old")},
)
FILES = st.fixed_dictionaries(
    {},
    optional={
        "machines": several(MACHINES, MACHINE),
        "regions": several(REGIONS, several(KINDS, st.sampled_from(["training", "elsewhere"]))),
        "flex_start": st.lists(KINDS, min_size=1, max_size=2),
        "retired": st.fixed_dictionaries(
            {},
            optional={
                "machines": several(MACHINES, RETIRED_MACHINE),
                "accelerators": several(KINDS, RETIRED_ACCELERATOR),
            },
        ),
    },
)
WORDS = st.from_regex(r"[a-z][a-z0-9-]{1,12}", fullmatch=True)
KNOWN = load(None)
POOLS = st.builds(
    PoolRequest,
    st.sampled_from(["chief", "workers", "parameter_servers", "evaluators", "pool 4"]),
    st.integers(1, 9),
    MACHINES | WORDS | st.sampled_from([*KNOWN.machines, *KNOWN.retired_machines, ""]),
    some(KINDS | st.sampled_from(sorted(KNOWN.accelerators))),
    st.integers(-1, 40),
    some(st.sampled_from(["1x1", "2x4", "2x2x4", "", "x", "9x9"])),
    image=some(st.just("host/path:1")),
)
JOBS = st.builds(
    JobRequest,
    st.just("digits"),
    st.just("my-project"),
    REGIONS | WORDS | st.sampled_from([*KNOWN.regions, ""]),
    st.lists(POOLS, max_size=5).map(tuple),
    st.sampled_from(["STANDARD", "SPOT", "FLEX_START"]),
)
A100 = JobRequest("digits", "my-project", "", (PoolRequest("chief", 1, "a2-highgpu-1g"),))
A100_ENDS = {"retired": {"accelerators": {"NVIDIA_TESLA_A100": {"since": "2026-01-01"}}}}


@settings(max_examples=150)
@example(A100_ENDS, A100, date(2026, 1, 1))
@given(st.just({}) | FILES, JOBS, DAYS)
def test_every_problem_has_one_line_with_a_remedy(entries, job, today):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yaml"
        path.write_text(json.dumps(entries))
        known = load(path)
    for problem in problems(job, known, today):
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", problem.code)
        assert problem.where
        assert not problem.where.startswith("cluster.pool")
        assert problem.what
        assert problem.remedy not in ("", "write ")
        assert re.search(r"None|  |\n|\.$", problem.line) is None
        if problem.what.endswith("and it needs one"):
            assert problem.remedy.startswith(("write accelerator: ", "choose another machine"))
