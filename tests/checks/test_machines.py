"""Machines, accelerators and regions compared with the catalogue, with remedies that work."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distlaunch.checks import limits
from distlaunch.checks.cloud.quota import demand
from distlaunch.checks.machines import problems
from distlaunch.image.recipe import read_recipe
from distlaunch.job.machine_catalogue import FILE_NAME, load, of_project
from distlaunch.job.model import Cluster, Job, Pool
from distlaunch.job.vertex.view import JobRequest, PoolRequest
from distlaunch.price import estimate_cost
from distlaunch.price.book import PriceBook
from distlaunch.price.forecast import Clusters

KNOWN = load(None)
TODAY = date(2026, 11, 21)
RETIRED = {name for name, entry in KNOWN.retired.accelerators.items() if entry.since <= TODAY}
COMBINATIONS = [
    (machine, accelerator, count)
    for machine, kind in KNOWN.machines.items()
    for accelerator, counts in kind.accelerators.items()
    for count in counts
    if accelerator not in RETIRED
]
CHANGE = re.compile(
    r"(?:machine: (?P<machine>[\w-]+))?(?: with )?"
    r"(?:accelerator: \{type: (?P<type>\w+), count: (?P<number>\d+)\}|count: (?P<count>\d+)"
    r"|(?P<none>no accelerator))?"
)


def pool(machine, accelerator=None, count=0, *, role="chief", replicas=1, topology=None):
    return PoolRequest(role, replicas, machine, accelerator, count, topology, image="host/path:1")


def check(*pools, region="", today=TODAY, strategy="STANDARD", catalogue=KNOWN):
    request = JobRequest("digits", "my-project", region, pools, strategy=strategy)
    return list(problems(request, catalogue, today))


def codes(*pools, **options):
    return [problem.code for problem in check(*pools, **options)]


def changed(remedy, wanted):
    """Apply a remedy to a pool: one pool for each of its alternatives."""
    for text in remedy.removeprefix("write ").split(", or "):
        match = CHANGE.fullmatch(text)
        assert match, text
        machine = match["machine"] or wanted.machine
        accelerator, count = wanted.accelerator, wanted.accelerator_count
        if match["type"]:
            accelerator, count = match["type"], int(match["number"])
        elif match["count"]:
            count = int(match["count"])
        elif match["none"]:
            accelerator, count = None, 0
        topologies = KNOWN.machines[machine].topologies
        topology = topologies[0] if topologies else None
        yield pool(machine, accelerator, count, topology=topology)


def refused(code, wanted, **options):
    """Check that a pool has an error whose alternatives have none."""
    [problem] = [each for each in check(wanted, **options) if each.severity == "error"]
    assert problem.code == code, wanted
    for alternative in changed(problem.remedy, wanted):
        assert check(alternative, **options) == [], (wanted, problem.remedy)
    return problem


def test_a_new_machine_is_one_entry(tmp_path):
    entry = {
        "accelerators": {"NVIDIA_B200": [4]},
        "needs_accelerator": True,
        "cpus": 112,
        "rdma": True,
        "egress_gbps": 1_600,
        "boot_disks": ["hyperdisk-balanced"],
        "cpu_quota": "blackwell_cpus",
        "price_includes_gpus": True,
    }
    (tmp_path / FILE_NAME).write_text(json.dumps({"machines": {"z5-highgpu-4g": entry}}))
    known, own = of_project(tmp_path), {"z5-highgpu-4g": Decimal(40)}
    wanted = replace(pool("z5-highgpu-4g", "NVIDIA_B200", 4), disk_type="pd-ssd")
    assert codes(wanted, region="us-central1", catalogue=known) == []
    request = JobRequest("digits", "my-project", "us-central1", (wanted,))
    [problem] = limits.problems(request, known)
    assert problem.what == "boot disk of z5-highgpu-4g must be hyperdisk-balanced, got pd-ssd"
    assert demand([wanted], known, "STANDARD") == {
        "custom_model_training_nvidia_b200_gpus": 4,
        "custom_model_training_blackwell_cpus": 112,
    }
    prices = PriceBook("us-central1", "STANDARD", own=own)
    assert estimate_cost(request, known, prices).an_hour == 40
    both = replace(prices, own=own | {"NVIDIA_B200": Decimal(5)})
    assert estimate_cost(request, known, both).an_hour == 40 + 4 * 5
    target = Clusters(tmp_path).target("z5-highgpu-4g", "NVIDIA_B200", 4)
    assert target.egress == 1_600
    job = Job("digits", Cluster(Pool(target.machine)))
    (tmp_path / "trainer").mkdir()
    assert "set_nccl_env.sh" in read_recipe(job, tmp_path).dockerfile


def test_every_combination_of_the_catalogue_passes():
    for machine, accelerator, count in COMBINATIONS:
        assert check(pool(machine, accelerator, count)) == []
    for machine, kind in KNOWN.machines.items():
        for topology in kind.topologies:
            assert check(pool(machine, topology=topology)) == []
        if not kind.needs_accelerator and not kind.tpu:
            assert check(pool(machine)) == []


def test_every_other_combination_is_an_error_with_alternatives_that_pass():
    for machine, accelerator, count in COMBINATIONS:
        code = "tpu-count" if accelerator.startswith("TPU_") else "accelerator-count"
        for other in (count - 1, count + 1):
            if not KNOWN.machines[machine].takes(accelerator, other):
                problem = refused(code, pool(machine, accelerator, other))
                assert problem.where == "cluster.chief.accelerator.count"
    for machine, kind in KNOWN.machines.items():
        topology = kind.topologies[0] if kind.topologies else None
        for accelerator in KNOWN.accelerators - kind.accelerators.keys() - RETIRED:
            for count in (1, 8):
                wanted = pool(machine, accelerator, count, topology=topology)
                problem = refused("accelerator-not-on-machine", wanted)
                assert problem.where == "cluster.chief.accelerator.type"
        if kind.needs_accelerator:
            problem = refused("accelerator-missing", pool(machine))
            assert problem.where == "cluster.chief.accelerator"


def test_a_count_without_a_type_and_one_of_another_pool_are_errors():
    refused("accelerator-missing", pool("g2-standard-96", None, 1))
    assert "no accelerator" in refused("accelerator-missing", pool("e2-standard-4", None, 1)).remedy
    [problem] = check(pool("n1-standard-8", None, 1), region="australia-southeast1")
    assert "type: NVIDIA_TESLA_T4" in problem.remedy  # the only one there
    for role, where in (("workers", "cluster.workers.accelerator.count"), ("pool 4", "vertex")):
        [problem] = check(pool("g2-standard-8", "NVIDIA_L4", 3, role=role))
        assert problem.where == where


def test_a_built_image_does_not_run_on_arm():
    wanted = replace(pool("a4x-highgpu-4g", "NVIDIA_GB200", 4), image=None)
    [problem] = check(wanted)
    assert (problem.where, problem.code) == ("cluster.chief.machine", "image-architecture")
    assert "image.uri" in problem.remedy


def with_accelerator(name):
    if name.endswith("_POD"):
        return pool("cloud-tpu", name.removesuffix("_POD"), 32)
    for machine, kind in KNOWN.machines.items():
        if kind.tpu == name:
            return pool(machine, topology=kind.topologies[0])
        if name in kind.accelerators:
            return pool(machine, name, kind.accelerators[name][0])
    raise AssertionError(name)


def test_an_accelerator_passes_in_the_regions_that_offer_it():
    for name in KNOWN.accelerators - RETIRED:
        wanted = with_accelerator(name)
        for region, uses in KNOWN.regions.items():
            problems_there = check(wanted, region=region)
            if not uses:
                [problem] = problems_there
                assert problem.severity == "warning"
                assert problem.code == "accelerator-in-region-unknown"
            elif uses.get(name) == "training":
                assert problems_there == []
            else:
                [problem] = problems_there
                assert (problem.code, problem.where) == ("accelerator-not-in-region", "region")
                assert ("for other uses" in problem.what) == (name in uses)
                others = re.split(", | or ", problem.remedy.removeprefix("write region: "))
                assert set(others) == set(KNOWN.regions_with(name))


def test_regions_of_the_same_continent_and_with_all_accelerators_are_first():
    [problem] = check(pool("g2-standard-8", "NVIDIA_L4", 1), region="europe-west3")
    assert problem.remedy.startswith("write region: europe-west2, europe-west4, me-central2, asia-")
    chief = pool("g2-standard-8", "NVIDIA_L4", 1)
    workers = pool("n1-standard-8", "NVIDIA_TESLA_P4", 1, role="workers")
    remedies = {problem.remedy for problem in check(chief, workers, region="europe-north1")}
    assert remedies == {"write region: europe-west4, asia-southeast1, us-central1 or us-east4"}


def test_a_retired_accelerator_is_an_error_with_replacements():
    for name in RETIRED:
        for machine, kind in KNOWN.machines.items():
            topology = kind.topologies[0] if kind.topologies else None
            for count in (1, 2, 4, 8):
                wanted = pool(machine, name, count, topology=topology)
                problem = refused("accelerator-retired", wanted)
                assert str(KNOWN.retired.accelerators[name].since) in problem.what
    [problem] = check(pool("n1-standard-8", "NVIDIA_TESLA_K80", 1), region="me-central2")
    assert problem.remedy == (
        "write machine: g2-standard-8 with accelerator: {type: NVIDIA_L4, count: 1}"
    )


def test_an_accelerator_is_a_warning_until_it_is_retired():
    wanted = pool("n1-standard-8", "NVIDIA_TESLA_P100", 2)
    before = date(2026, 9, 14)
    assert codes(wanted, today=before) == ["accelerator-ending"]
    assert codes(wanted, today=date(2026, 9, 15)) == ["accelerator-retired"]
    three = replace(wanted, accelerator_count=3)
    assert codes(three, today=before) == ["accelerator-ending", "accelerator-count"]


def test_a_retired_machine_name_is_an_error_with_the_current_machine():
    for name, retired in KNOWN.retired.machines.items():
        problem = refused("machine-retired", pool(name))
        assert problem.where == "cluster.chief.machine"
        assert retired.replacement.type in problem.remedy
    [problem] = check(pool("standard", "NVIDIA_TESLA_T4", 1))
    assert problem.remedy == "write machine: n1-standard-4"


def own_catalogue(tmp_path, remedy):
    """Return the catalogue with the addition that a remedy proposes."""
    path = tmp_path / FILE_NAME
    path.write_text(re.search(f"'([^']*)' to {FILE_NAME}", remedy)[1])
    return load(path)


@pytest.mark.parametrize(
    ("wanted", "region", "code", "hint"),
    [
        (pool("n1-standrd-8"), "", "machine-unknown", "did you mean 'n1-standard-8'?"),
        (pool("n1-standard-2"), "", "machine-unknown", "did you mean 'n1-standard-4'?"),
        (pool("n1-standard-128"), "", "machine-unknown", "did you mean 'n1-standard-96'?"),
        (pool("n1-standard-8", "A100", 1), "", "accelerator-unknown", "mean 'NVIDIA_TESLA_A100'?"),
        (pool("g2-standard-8", "NVIDIA_TESLA_L4", 1), "", "accelerator-unknown", "'NVIDIA_L4'?"),
        (pool("cloud-tpu", "TPU_V4", 8), "", "accelerator-unknown", "'TPU_V4_POD'?"),
        (pool("n1-standard-8"), "us-central9", "region-unknown", "did you mean 'us-central1'?"),
        (pool("g2-standard-8", "NVIDIA_L4", 1), "mars-north1", "region-unknown", ""),
        (
            pool("g2-standard-8", "NVIDIA_L4", 1),
            "europe-west8",
            "accelerator-in-region-unknown",
            "write region: europe-west2, europe-west4 or me-central2; or if it does, add",
        ),
    ],
)
def test_an_unknown_name_is_a_warning_with_the_entry_that_makes_it_known(
    tmp_path, wanted, region, code, hint
):
    warnings = check(wanted, region=region)
    assert {problem.severity for problem in warnings} == {"warning"}
    [problem] = [problem for problem in warnings if problem.code == code]
    assert KNOWN.date in problem.what
    assert hint in problem.remedy
    after = check(wanted, region=region, catalogue=own_catalogue(tmp_path, problem.remedy))
    assert code not in [problem.code for problem in after]


def test_a_tpu_needs_one_of_its_topologies():
    for machine, topology, nearest in (
        ("ct5lp-hightpu-4t", "3x5", "4x4"),
        ("ct6e-standard-8t", "8x8", "2x4"),
        ("tpu7x-standard-4t", "none", "2x2x1"),
    ):
        [problem] = check(pool(machine, topology=topology))
        assert problem.code == "tpu-topology"
        pools = f"[{{machineSpec: {{tpuTopology: {nearest}}}}}]"
        assert problem.remedy == f"write vertex: {{jobSpec: {{workerPoolSpecs: {pools}}}}}"


FLEX = pool("g2-standard-8", "NVIDIA_L4", 1)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (pool("n1-standard-8", "NVIDIA_TESLA_T4", 4), "NVIDIA_TESLA_T4"),
        (pool("n1-standard-8"), "CPUs"),
        (pool("ct6e-standard-1t", topology="1x1"), "TPU_V6E"),
    ],
)
def test_flex_start_needs_certain_accelerators(wanted, kind):
    for name in KNOWN.flex_start:
        assert codes(with_accelerator(name), strategy="FLEX_START") == []
    [problem] = check(wanted, strategy="FLEX_START")
    assert problem.code == "flex-start-accelerator"
    assert problem.what.endswith(f"this is on {kind}")
    remedy, _, spot = problem.remedy.rpartition(", or ")
    assert spot == "scheduling.strategy: SPOT"
    alternatives = list(changed(remedy, wanted))
    assert alternatives
    assert all(check(other, strategy="FLEX_START") == [] for other in alternatives)


def test_flex_start_needs_identical_machines():
    same = replace(FLEX, role="workers", replicas=3)
    assert codes(FLEX, same, strategy="FLEX_START") == []
    larger = pool("g2-standard-12", "NVIDIA_L4", 1, role="workers")
    [problem] = check(FLEX, larger, strategy="FLEX_START")
    assert (problem.code, problem.where) == ("flex-start-machines", "scheduling.strategy")
    others = codes(pool("n1-standard-8"), replace(FLEX, role="workers"), strategy="FLEX_START")
    assert others == ["flex-start-accelerator", "flex-start-machines"]


# Any job with any catalogue of a user.
MACHINES = st.sampled_from(["n1-standard-8", "a2-highgpu-1g", "cloud-tpu", "x9-new-4", "x9-old-2"])
KINDS = st.sampled_from(["NVIDIA_TESLA_T4", "NVIDIA_TESLA_A100", "NVIDIA_NEW", "TPU_V2", "TPU_NEW"])
REGIONS = st.sampled_from(["us-central1", "europe-west8", "mars-north1"])
DAYS = st.dates(date(2024, 1, 1), date(2028, 1, 1))


def optional(values):
    return st.none() | values


def several(keys, values):
    return st.dictionaries(keys, optional(values), max_size=3)


COUNTS = st.lists(st.integers(1, 16), min_size=1, max_size=3)
MACHINE = st.fixed_dictionaries(
    {},
    optional={
        "cpus": st.integers(1, 200),
        "memory_gb": st.floats(1, 4000),
        "accelerators": optional(several(KINDS, COUNTS)),
        "needs_accelerator": st.booleans(),
        "topologies": st.lists(st.sampled_from(["1x1", "2x4", "2x2x4"])),
        "tpu": optional(KINDS),
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
POOLS = st.builds(
    PoolRequest,
    st.sampled_from(["chief", "workers", "parameter_servers", "evaluators", "pool 4"]),
    st.integers(1, 9),
    MACHINES | WORDS | st.sampled_from([*KNOWN.machines, *KNOWN.retired.machines, ""]),
    optional(KINDS | st.sampled_from(sorted(KNOWN.accelerators))),
    st.integers(-1, 40),
    optional(st.sampled_from(["1x1", "2x4", "2x2x4", "", "x", "9x9"])),
    image=optional(st.just("host/path:1")),
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
