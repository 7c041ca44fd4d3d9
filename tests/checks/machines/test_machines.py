from __future__ import annotations

import re
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch.checks.machines import problems
from distlaunch.checks.request_view import JobRequest, PoolRequest, job_request
from distlaunch.job.load import load_job
from distlaunch.job.machine_catalogue import FILE_NAME, load
from distlaunch.submit.plan import LaunchRequest

KNOWN = load(None)
TODAY = date(2026, 11, 21)
GPUS = sorted(name for name in KNOWN.accelerators if name.startswith("NVIDIA_"))
TPUS = sorted(KNOWN.accelerators - set(GPUS))
GONE = {name for name, gone in KNOWN.retired_accelerators.items() if gone.since <= TODAY}
ALLOWED = [
    (machine, accelerator, count)
    for machine, kind in KNOWN.machines.items()
    for accelerator, counts in kind.accelerators.items()
    for count in counts
    if accelerator not in GONE
]
WRITTEN = re.compile(
    r"(?:machine: (?P<machine>[\w-]+))?(?: with )?"
    r"(?:accelerator: \{type: (?P<type>\w+), count: (?P<many>\d+)\}|count: (?P<count>\d+)"
    r"|(?P<none>no accelerator))?"
)


def pool(machine, accelerator=None, count=0, *, role="chief", replicas=1, topology=None):
    return PoolRequest(role, replicas, machine, accelerator, count, topology, image="host/path:1")


def found(*pools, region="", today=TODAY, strategy="STANDARD", catalogue=KNOWN):
    asked = JobRequest("digits", "my-project", region, pools, strategy=strategy)
    return list(problems(asked, catalogue, today))


def codes(*pools, **rest):
    return [(each.severity, each.code) for each in found(*pools, **rest)]


def alternatives(remedy, asked):
    """Read what a remedy says to write, as the pools that come of it."""
    for text in remedy.removeprefix("write ").split(", or "):
        said = WRITTEN.fullmatch(text)
        assert said, text
        machine = said["machine"] or asked.machine
        accelerator, count = asked.accelerator, asked.accelerator_count
        if said["type"]:
            accelerator, count = said["type"], int(said["many"])
        elif said["count"]:
            count = int(said["count"])
        elif said["none"]:
            accelerator, count = None, 0
        topologies = KNOWN.machines[machine].topologies
        topology = topologies[0] if topologies else None
        yield pool(machine, accelerator, count, topology=topology)


def refused(code, asked, **rest):
    """See that a pool is refused, with alternatives that are not."""
    told = [each for each in found(asked, **rest) if each.severity == "error"]
    assert [each.code for each in told] == [code], asked
    others = list(alternatives(told[0].remedy, asked))
    assert others, told[0].remedy
    for other in others:
        assert found(other, **rest) == [], (asked, told[0].remedy)
    return told[0]


def test_every_machine_passes_with_all_that_it_takes():
    for machine, accelerator, count in ALLOWED:
        assert found(pool(machine, accelerator, count)) == []
    for machine, kind in KNOWN.machines.items():
        for topology in kind.topologies:
            assert found(pool(machine, topology=topology)) == []
        if not kind.needs_accelerator and not kind.tpu:
            assert found(pool(machine)) == []


def test_every_other_count_is_refused_with_one_that_passes():
    for machine, accelerator, count in ALLOWED:
        code = "tpu-count" if accelerator.startswith("TPU_") else "accelerator-count"
        for other in (count - 1, count + 1):
            if not KNOWN.machines[machine].takes(accelerator, other):
                problem = refused(code, pool(machine, accelerator, other))
                assert problem.where == "cluster.chief.accelerator.count"


def test_every_other_accelerator_is_refused_with_machines_that_pass():
    for machine, kind in KNOWN.machines.items():
        topology = kind.topologies[0] if kind.topologies else None
        for accelerator in KNOWN.accelerators - kind.accelerators.keys() - GONE:
            for count in (1, 8):
                asked = pool(machine, accelerator, count, topology=topology)
                problem = refused("accelerator-not-on-machine", asked)
                assert problem.where == "cluster.chief.accelerator.type"


def test_a_machine_that_does_not_come_without_is_refused_without():
    for machine, kind in KNOWN.machines.items():
        if kind.needs_accelerator:
            problem = refused("accelerator-missing", pool(machine))
            assert problem.where == "cluster.chief.accelerator"


def test_an_image_that_is_built_does_not_run_on_arm_processors():
    asked = pool("a4x-highgpu-4g", "NVIDIA_GB200", 4)
    (told,) = found(replace(asked, image=None))
    assert (told.severity, told.code) == ("error", "image-architecture")
    assert told.where == "cluster.chief.machine"
    assert "image.uri" in told.remedy
    assert found(replace(pool("a4-highgpu-8g", "NVIDIA_B200", 8), image=None)) == []


def test_a_count_of_nothing_is_refused():
    refused("accelerator-missing", pool("n1-standard-8", None, 2))
    refused("accelerator-missing", pool("g2-standard-96", None, 1))
    assert "no accelerator" in refused("accelerator-missing", pool("e2-standard-4", None, 1)).remedy


def with_accelerator(name):
    """Return a pool that a region has to offer an accelerator for."""
    if name.endswith("_POD"):
        return pool("cloud-tpu", name.removesuffix("_POD"), 32)
    for machine, kind in KNOWN.machines.items():
        if kind.tpu == name:
            return pool(machine, topology=kind.topologies[0])
        if name in kind.accelerators:
            return pool(machine, name, kind.accelerators[name][0])
    raise AssertionError(name)


@pytest.mark.parametrize("name", sorted(KNOWN.accelerators - GONE))
def test_an_accelerator_passes_where_it_is_offered_and_only_there(name):
    asked = with_accelerator(name)
    for region, kind in KNOWN.regions.items():
        told = found(asked, region=region)
        if kind.training is None:
            assert [each.code for each in told] == ["accelerator-in-region-unknown"]
            assert told[0].severity == "warning"
        elif name in kind.training:
            assert told == []
        else:
            assert [each.code for each in told] == ["accelerator-not-in-region"]
            assert told[0].severity == "error"
            assert told[0].where == "region"
            assert ("for other uses" in told[0].what) == (name in kind.not_for_training)
            others = re.split(", | or ", told[0].remedy.removeprefix("write region: "))
            assert set(others) == set(KNOWN.regions_with(name))
            assert all(found(asked, region=other) == [] for other in others)


def test_regions_of_the_same_continent_are_told_first():
    (told,) = found(pool("g2-standard-8", "NVIDIA_L4", 1), region="europe-west3")
    assert told.remedy.startswith("write region: europe-west2, europe-west4, me-central2, asia-")
    (told,) = found(pool("n1-standard-8", "NVIDIA_TESLA_P4", 1), region="us-south1")
    assert told.remedy.startswith("write region: us-central1, us-east4, us-west2, northamerica-")


def test_regions_that_offer_all_of_a_job_are_told_where_there_are_some():
    chief = pool("g2-standard-8", "NVIDIA_L4", 1)
    workers = pool("n1-standard-8", "NVIDIA_TESLA_P4", 1, role="workers")
    told = {each.remedy for each in found(chief, workers, region="europe-north1")}
    assert told == {"write region: europe-west4, asia-southeast1, us-central1 or us-east4"}


def test_what_is_to_be_taken_instead_can_be_had_in_the_region():
    (told,) = found(pool("n1-standard-8", None, 1), region="australia-southeast1")
    assert "type: NVIDIA_TESLA_T4" in told.remedy
    (told,) = found(pool("n1-standard-8", "NVIDIA_TESLA_K80", 1), region="me-central2")
    assert (
        told.remedy == "write machine: g2-standard-8 with accelerator: {type: NVIDIA_L4, count: 1}"
    )


@pytest.mark.parametrize("name", sorted(GONE))
def test_a_retired_accelerator_is_refused_with_its_day_and_what_to_take(name):
    for machine, kind in KNOWN.machines.items():
        topology = kind.topologies[0] if kind.topologies else None
        for count in (1, 2, 4, 8):
            asked = pool(machine, name, count, topology=topology)
            problem = refused("accelerator-retired", asked)
            assert str(KNOWN.retired_accelerators[name].since) in problem.what


def test_an_accelerator_that_is_to_end_is_told_of_until_then():
    asked = pool("n1-standard-8", "NVIDIA_TESLA_P100", 2)
    assert codes(asked, today=date(2026, 9, 14)) == [("warning", "accelerator-ending")]
    assert codes(asked, today=date(2026, 9, 15)) == [("error", "accelerator-retired")]
    wrong = replace(asked, accelerator_count=3)
    assert codes(wrong, today=date(2026, 9, 14)) == [
        ("warning", "accelerator-ending"),
        ("error", "accelerator-count"),
    ]
    assert codes(asked, today=date(2026, 9, 14), region="us-east4") == [
        ("warning", "accelerator-ending"),
        ("error", "accelerator-not-in-region"),
    ]


@pytest.mark.parametrize("name", KNOWN.retired_machines)
def test_a_machine_of_the_past_is_refused_with_what_it_is_today(name):
    problem = refused("machine-retired", pool(name))
    assert problem.where == "cluster.chief.machine"
    assert KNOWN.retired_machines[name].replacement.type in problem.remedy


def test_a_machine_of_the_past_keeps_the_accelerator_that_stands_beside_it():
    (told,) = found(pool("standard", "NVIDIA_TESLA_T4", 1))
    assert told.remedy == "write machine: n1-standard-4"


def own(tmp_path, remedy):
    text = re.search(f"'([^']*)' in {FILE_NAME}", remedy)
    path = tmp_path / FILE_NAME
    path.write_text(text[1])
    return load(path)


@pytest.mark.parametrize(
    ("asked", "region", "code", "hint"),
    [
        (pool("n1-standrd-8"), "", "machine-unknown", "did you mean 'n1-standard-8'?"),
        (pool("h9-giga-3", "NVIDIA_Z9", 2), "", "machine-unknown", ""),
        (pool("h9-giga-3", "NVIDIA_L4", 2), "us-central1", "machine-unknown", ""),
        (pool("n1-standard-8", "T4", 1), "", "accelerator-unknown", "mean 'NVIDIA_TESLA_T4'?"),
        (pool("n1-standard-8", "A100", 1), "", "accelerator-unknown", "mean 'NVIDIA_TESLA_A100'?"),
        (pool("n1-standard-8", "NVIDIA_H100", 1), "", "accelerator-unknown", "NVIDIA_H100_80GB"),
        (pool("n1-standard-8", "NVIDIA_TESLA_M100", 1), "", "accelerator-unknown", "did you mean"),
        (pool("n1-standard-8", "ZZZ", 1), "us-central1", "accelerator-unknown", ""),
        (pool("n1-standard-8"), "us-central9", "region-unknown", "did you mean 'us-central1'?"),
        (pool("g2-standard-8", "NVIDIA_L4", 1), "mars-north1", "region-unknown", ""),
        (
            pool("g2-standard-8", "NVIDIA_L4", 1),
            "europe-west8",
            "accelerator-in-region-unknown",
            "write region: europe-west2, europe-west4 or me-central2; or if it does, say",
        ),
    ],
)
def test_what_is_unknown_is_told_with_what_makes_it_known(tmp_path, asked, region, code, hint):
    told = found(asked, region=region)
    assert {each.severity for each in told} == {"warning"}
    (problem,) = [each for each in told if each.code == code]
    assert KNOWN.date in problem.what
    assert hint in problem.remedy
    after = found(asked, region=region, catalogue=own(tmp_path, problem.remedy))
    assert code not in [each.code for each in after]
    assert {each.severity for each in after} <= {"warning"}


WORDS = st.from_regex(r"[a-z][a-z0-9-]{1,12}", fullmatch=True)
KINDS = st.from_regex(r"[A-Z][A-Z0-9_]{1,12}", fullmatch=True)
POOLS = st.builds(
    PoolRequest,
    st.sampled_from(["chief", "workers", "parameter_servers", "evaluators", "pool 4"]),
    st.integers(1, 9),
    WORDS | st.sampled_from([*KNOWN.machines, *KNOWN.retired_machines, ""]),
    st.none() | KINDS | st.sampled_from(sorted(KNOWN.accelerators)),
    st.integers(-1, 40),
    st.none() | st.sampled_from(["2x2", "2x2x4", "", "x", "9x9"]),
    image=st.none() | st.just("host/path:1"),
)
REGIONS = WORDS | st.sampled_from([*KNOWN.regions, ""])
STRATEGIES = st.sampled_from(["STANDARD", "SPOT", "FLEX_START"])


@settings(max_examples=100)
@given(st.lists(POOLS, max_size=5), REGIONS, STRATEGIES, st.dates())
def test_whatever_is_asked_is_answered_in_lines_with_a_remedy(pools, region, strategy, today):
    for each in found(*pools, region=region, strategy=strategy, today=today):
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", each.code)
        assert each.where
        assert each.what
        assert each.remedy
        assert "\n" not in each.line
        assert not each.line.endswith(".")
        assert "None" not in each.line
        assert not each.where.startswith("cluster.pool")


@given(WORDS, KINDS, st.integers(1, 99), WORDS)
def test_what_the_catalogue_does_not_know_is_never_refused(machine, accelerator, count, region):
    told = found(pool(machine, accelerator, count), region=region, strategy="FLEX_START")
    known = (
        machine in {*KNOWN.machines, *KNOWN.retired_machines} or accelerator in KNOWN.accelerators
    )
    assert known or {each.severity for each in told} == {"warning"}


def tpu(**rest):
    return pool("ct5lp-hightpu-4t", topology="2x2", **rest)


def test_a_job_on_tpus_is_one_pool_of_one_machine():
    assert codes(tpu()) == []
    assert codes(tpu(), pool("n1-standard-8", role="workers")) == [("error", "tpu-pools")]
    assert codes(pool("n1-standard-8"), tpu(role="workers")) == [("error", "tpu-pools")]
    assert codes(tpu(replicas=2)) == [("error", "tpu-replicas")]
    assert codes(pool("cloud-tpu", "TPU_V2", 8, replicas=3)) == [("error", "tpu-replicas")]


@pytest.mark.parametrize(
    ("machine", "topology", "instead"),
    [
        ("ct5lp-hightpu-4t", None, "2x2"),
        ("ct5lp-hightpu-4t", "3x5", "4x4"),
        ("ct6e-standard-8t", "8x8", "2x4"),
        ("tpu7x-standard-4t", "2x2", "2x2x1"),
        ("tpu7x-standard-4t", "none", "2x2x1"),
    ],
)
def test_a_tpus_shape_is_one_that_it_comes_in(machine, topology, instead):
    (told,) = found(pool(machine, topology=topology))
    assert told.code == "tpu-topology"
    said = (
        f"vertex: {{jobSpec: {{workerPoolSpecs: [{{machineSpec: {{tpuTopology: {instead}}}}}]}}}}"
    )
    assert told.remedy == f"write {said}"


@pytest.mark.parametrize("accelerator", ["TPU_V5_LITEPOD", "TPU_V6E", "NVIDIA_TESLA_T4"])
def test_a_tpu_said_by_its_shape_has_no_accelerator_beside_it(accelerator):
    asked = pool("ct5lp-hightpu-4t", accelerator, 4, topology="2x2")
    assert "no accelerator" in refused("accelerator-not-on-machine", asked).remedy


FLEX = pool("g2-standard-8", "NVIDIA_L4", 1)


@pytest.mark.parametrize("name", KNOWN.flex_start)
def test_flex_start_starts_the_accelerators_that_it_has(name):
    assert codes(with_accelerator(name), strategy="FLEX_START") == []


@pytest.mark.parametrize(
    ("asked", "it"),
    [
        (pool("n1-standard-8", "NVIDIA_TESLA_T4", 4), "NVIDIA_TESLA_T4"),
        (pool("n1-standard-8"), "CPUs"),
        (pool("ct6e-standard-1t", topology="1x1"), "TPU_V6E"),
        (pool("cloud-tpu", "TPU_V2", 8), "TPU_V2"),
        (pool("g4-standard-384", "NVIDIA_RTX_PRO_6000", 8), "NVIDIA_RTX_PRO_6000"),
    ],
)
def test_flex_start_starts_no_others(asked, it):
    (told,) = found(asked, strategy="FLEX_START")
    assert told.code == "flex-start-accelerator"
    assert told.what.endswith(f"this is on {it}")
    remedy, _, spot = told.remedy.rpartition(", or ")
    assert spot == "scheduling.strategy: SPOT"
    assert codes(asked, strategy="SPOT") == []
    others = list(alternatives(remedy, asked))
    assert others
    assert all(found(other, strategy="FLEX_START") == [] for other in others)


def test_flex_start_starts_identical_machines():
    same = replace(FLEX, role="workers", replicas=3)
    assert codes(FLEX, same, strategy="FLEX_START") == []
    larger = pool("g2-standard-12", "NVIDIA_L4", 1, role="workers")
    (told,) = found(FLEX, larger, strategy="FLEX_START")
    assert (told.code, told.where) == ("flex-start-machines", "scheduling.strategy")
    assert told.remedy.startswith("give all pools g2-standard-8 with 1 NVIDIA_L4, or ")
    assert codes(FLEX, larger) == []


def test_flex_start_is_to_start_the_machines_that_it_can():
    told = found(pool("n1-standard-8"), replace(FLEX, role="workers"), strategy="FLEX_START")
    assert [each.code for each in told] == ["flex-start-accelerator", "flex-start-machines"]
    assert told[1].remedy.startswith("give all pools g2-standard-8 with 1 NVIDIA_L4, or ")


def test_pools_are_told_by_their_own_keys():
    wrong = [
        pool("g2-standard-8", "NVIDIA_L4", 3, role=role)
        for role in ("workers", "evaluators", "pool 4")
    ]
    assert [each.where for each in found(*wrong)] == [
        "cluster.workers.accelerator.count",
        "cluster.evaluators.accelerator.count",
        "vertex",
    ]


def test_a_job_file_may_say_a_machine_of_the_past_to_be_told_of_today(tmp_path):
    job = "name: digits\ncluster: {chief: {machine: complex_model_s}}\n"
    (tmp_path / "distlaunch.yaml").write_text(job)
    wanted = job_request(LaunchRequest(tmp_path, load_job(tmp_path).job))
    (told,) = problems(wanted, KNOWN, TODAY)
    assert (told.code, told.where) == ("machine-retired", "cluster.chief.machine")
    assert "Vertex AI has no n1-highcpu-8" in told.what
    assert told.remedy == "write machine: n1-standard-8"
