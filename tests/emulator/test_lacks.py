from __future__ import annotations

import pytest

from distlaunch.emulator.faults import Faults
from distlaunch.emulator.lacks import FORMATS, THINGS, Lacks, location_type
from distlaunch.emulator.service.apis import APIS
from distlaunch.errors import UsageError


def lacks(spec: str) -> Lacks:
    return Faults.parse(spec).lacks


def test_nothing_is_lacking_by_itself():
    assert lacks("503@quotas#*") == Lacks()
    assert not [each for each in (*THINGS, *APIS, "storage.objects.create") if each in Lacks()]


def test_what_is_lacking_adds_up():
    found = lacks(
        "without:billing,limit:cpus=8,503, without:iam.serviceAccounts.actAs,limit:cpus=2"
    )
    assert found.names == {"billing", "iam.serviceAccounts.actAs"}
    assert found.limits == {"cpus": 2}


@pytest.mark.parametrize("name", [*THINGS, *APIS, "storage.objects.create"])
def test_each_thing_api_and_permission_can_be_lacking(name):
    found = lacks(f"without:{name}")
    assert name in found
    assert found.names == {name}


@pytest.mark.parametrize(
    ("said", "location", "kind"),
    [
        ("EU", "EU", "multi-region"),
        ("us", "US", "multi-region"),
        ("nam4", "NAM4", "dual-region"),
        ("europe-west1", "EUROPE-WEST1", "region"),
        ("ASIA-EAST1", "ASIA-EAST1", "region"),
    ],
)
def test_where_buckets_are(said, location, kind):
    found = lacks(f"bucket-in:{said}").bucket_location
    assert (found, location_type(found)) == (location, kind)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_repositories_hold(kind):
    assert lacks(f"repository-format:{kind}").repository_format == kind


def test_limits_may_be_none_at_all():
    assert lacks("limit:nvidia_t4_gpus=0,limit:tpu_v3=-1").limits == {
        "nvidia_t4_gpus": 0,
        "tpu_v3": -1,
    }


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("without", "'without': expected an API, a permission or one of project, billing, "),
        ("without:bukket", "agent; did you mean 'bucket'?"),
        ("without:aiplatfrom.googleapis.com", "; did you mean 'aiplatform.googleapis.com'?"),
        ("without:bucket@get", "'without:bucket@get': without is not about calls"),
        ("without:bucket#2", "'without:bucket#2': without is not about calls"),
        ("bucket-in:mars", "expected a place as EU, NAM4 or europe-west1, got 'mars'"),
        ("repository-format:DOKER", "got 'DOKER'; did you mean 'DOCKER'?"),
        ("limit:cpus", "expected METRIC=NUMBER behind ':', got 'cpus'"),
        ("limit:cpus=-2", "expected METRIC=NUMBER behind ':', got 'cpus=-2'"),
        ("limit:nvidia_t4=2", "no metric is named 'nvidia_t4'; did you mean 'nvidia_t4_gpus'?"),
        ("witout:bucket", "'witout:bucket': no such fault; did you mean 'without'?"),
    ],
)
def test_what_cannot_be_lacking(spec, said):
    with pytest.raises(UsageError) as problem:
        Faults.parse(spec)
    assert said in str(problem.value)
    assert str(problem.value).endswith("(see 'distlaunch emulator --help')")
