from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import googleapiclient.discovery_cache
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.job import machine_catalogue
from distlaunch.job.machine_catalogue import (
    MachineType,
    load,
)
from distlaunch.job.model import Machine
from distlaunch.job.yaml_document import deep_merge

KNOWN = load(None)
# TPUs that machines come with, and that Google's AcceleratorType has no name for.
ONLY_OURS = {"TPU_V6E", "TPU_7X", "TPU_V2_POD", "TPU_V3_POD"}
FILE = """\
machines:
  n1-standard-8:
    accelerators: {NVIDIA_TESLA_T4: [1, 2, 4, 8], NVIDIA_TESLA_P4: null}
  h4-standard-8: {cpus: 8, memory_gb: 31.5, accelerators: {NVIDIA_Z1: [1]}, needs_accelerator: true}
  x9-ultra: {}
  a2-highgpu-1g: null
  ct9-hightpu-4t: {tpu: TPU_V9, topologies: [2x2, 2x2x4]}
regions:
  us-central1: {NVIDIA_L4: null, NVIDIA_Z1: training, NVIDIA_TESLA_T4: elsewhere}
  mars-north1: {}
  us-west4: null
flex_start: [NVIDIA_Z1]
retired:
  accelerators: {NVIDIA_Z1: {since: 2030-01-31, instead: [NVIDIA_L4]}, NVIDIA_TESLA_K80: null}
  machines: {n1-highmem-2: {since: 2027-01-01, machine: n2-highmem-2}}
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / machine_catalogue.FILE_NAME
    return lambda text: (path.write_text(text), path)[1]


def test_accelerators_have_googles_names():
    folder = Path(googleapiclient.discovery_cache.__file__).parent / "documents"
    schemas = json.loads((folder / "aiplatform.v1.json").read_text())["schemas"]
    spec = schemas["GoogleCloudAiplatformV1MachineSpec"]
    googles = set(spec["properties"]["acceleratorType"]["enum"])
    assert not ONLY_OURS & googles
    assert KNOWN.accelerators - ONLY_OURS <= googles
    assert set(KNOWN.flex_start) <= KNOWN.accelerators


def test_a_region_offers_what_is_known_of_it():
    for region, accelerator, is_offered in (
        ("us-central1", "NVIDIA_TESLA_T4", True),
        ("us-south1", "NVIDIA_TESLA_T4", False),
        ("europe-west8", "NVIDIA_TESLA_T4", None),
        ("nowhere", "NVIDIA_TESLA_T4", None),
        ("us-central1", "NVIDIA_Z1", None),
        ("europe-west6", "NVIDIA_L4", False),  # for other uses only
    ):
        assert KNOWN.offers(region, accelerator) is is_offered
        assert (region in KNOWN.regions_with(accelerator)) is bool(is_offered)


def test_machines_with_an_accelerator_come_the_smallest_first():
    assert KNOWN.machines_with("NVIDIA_TESLA_V100", 1)[:2] == ("n1-highmem-2", "n1-standard-4")
    assert KNOWN.machines_with("NVIDIA_L4", 3) == ()


def test_a_machine_has_the_facts_of_its_family():
    assert KNOWN.machine("a3-ultragpu-8g").boot_disks == ("hyperdisk-balanced",)
    assert KNOWN.machine("a4-of-tomorrow-8g").boot_disks == ("hyperdisk-balanced",)
    assert KNOWN.machine("n1-standard-4").egress_gbps == 10
    assert KNOWN.machine("n1-standard-96").egress_gbps == 32
    assert [name for name, kind in KNOWN.machines.items() if kind.rdma] == [
        "a3-ultragpu-8g",
        "a4-highgpu-8g",
    ]


def test_the_egress_limit_depends_on_the_gpus():
    for machine, accelerator, count, gbps in (
        ("n1-standard-4", "NVIDIA_TESLA_T4", 1, 8),  # 2 a vCPU
        ("n1-standard-96", "NVIDIA_TESLA_T4", 1, 32),
        ("n1-standard-96", "NVIDIA_TESLA_T4", 4, None),  # not documented
        ("n1-standard-96", "NVIDIA_TESLA_V100", 8, 100),
        ("n1-standard-16", "NVIDIA_TESLA_P100", 1, 32),
        ("g4-standard-384", "NVIDIA_RTX_PRO_6000", 8, None),
    ):
        assert KNOWN.machines[machine].egress_limit(accelerator, count) == gbps


def test_a_users_file_has_the_shape_of_the_bundled_one_and_adds_overrides_and_removes(own):
    text = Path(machine_catalogue.__file__).with_name("catalogue.json").read_text()
    assert load(own(text)) == KNOWN
    merged = load(own(FILE))
    n1 = merged.machines["n1-standard-8"]
    assert n1.accelerators["NVIDIA_TESLA_T4"] == [1, 2, 4, 8]
    assert ("NVIDIA_TESLA_P4" in n1.accelerators, n1.cpus) == (False, 8)
    accelerators = {"NVIDIA_Z1": [1]}
    h4 = MachineType(
        family="H4", cpus=8, memory_gb=31.5, accelerators=accelerators, needs_accelerator=True
    )
    assert merged.machines["h4-standard-8"] == h4
    assert merged.machines["x9-ultra"] == MachineType(family="X9")
    assert "a2-highgpu-1g" not in merged.machines
    assert merged.machines["ct9-hightpu-4t"].topologies == ("2x2", "2x2x4")
    assert {"NVIDIA_Z1", "TPU_V9"} <= merged.accelerators
    names = ["NVIDIA_L4", "NVIDIA_Z1", "NVIDIA_TESLA_T4", "NVIDIA_TESLA_V100"]
    offered = [merged.offers("us-central1", name) for name in names]
    assert offered == [False, True, False, True]
    assert merged.regions["mars-north1"] == {}
    assert "us-west4" not in merged.regions
    assert merged.flex_start == ("NVIDIA_Z1",)
    assert merged.retired.accelerators["NVIDIA_Z1"].since == date(2030, 1, 31)
    assert "NVIDIA_TESLA_K80" not in merged.retired.accelerators
    assert merged.retired.machines["n1-highmem-2"].replacement == Machine("n2-highmem-2")
    assert merged.retired.machines["standard_gpu"] == KNOWN.retired.machines["standard_gpu"]


MAPPINGS = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(
        st.integers() | st.none(),
        lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(MAPPINGS, MAPPINGS)
def test_a_merged_mapping_wins_and_changes_nothing_else(below, above):
    merged = deep_merge(below, above, drop_none=True)
    assert deep_merge(merged, above, drop_none=True) == merged
    for key in below.keys() | above.keys():
        if above.get(key, below.get(key)) is None:
            assert merged.get(key) is None
        elif not isinstance(above.get(key), dict):
            assert merged[key] == above.get(key, below.get(key))
