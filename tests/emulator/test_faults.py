from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.faults import Faults
from distlaunch.errors import UsageError


def faults_of(spec: str, calls: str) -> list[str]:
    """Return the name of the fault of each call, '-' for none."""
    faults = Faults(spec)
    return [faults.next(call) or "-" for call in calls.split()]


@pytest.mark.parametrize(
    ("spec", "calls", "faults"),
    [
        ("", "create get", "- -"),
        ("503", "get get", "503 -"),
        ("503@create", "get create create", "- 503 -"),
        ("503@create#2", "create get create create", "- - 503 -"),
        ("503:0@create", "create create", "- -"),
        ("503#2-3", "get list logs get", "- 503 503 -"),
        ("lost@create#*", "create create", "lost lost"),
        ("reset@logs, 500@logs#1-2", "logs logs logs", "reset 500 -"),
        ("quota", "get create create", "- quota quota"),
        ("quota#1", "create create", "quota -"),
        ("denied@list", "list get list", "denied - denied"),
    ],
)
def test_which_calls_fail(spec, calls, faults):
    assert faults_of(spec, calls) == faults.split()


@given(st.integers(0, 1000), st.lists(st.sampled_from(["create", "get", "logs"]), max_size=30))
def test_random_faults_depend_on_the_seed_and_the_kind_of_call_only(seed, calls):
    spec = f"503:0.5@create,seed:{seed}"
    names = faults_of(spec, " ".join(calls))
    of_create = [name for name, call in zip(names, calls, strict=True) if call == "create"]
    assert of_create == faults_of(spec, " ".join(["create"] * len(of_create)))


def test_a_share_is_a_probability():
    names = faults_of("503:0.3,seed:4", " ".join(["get"] * 2000))
    assert 500 < names.count("503") < 700


def test_settings():
    faults = Faults("slow-states:2.5,expire-jobs,seed:3")
    assert (faults.slow_states, faults.expires) == (2.5, True)
    assert Faults("slow-states").slow_states == 5.0
    assert not Faults().expires
    faults = Faults("stockout:us-east4,no-start,stockout:us-west1")
    assert (faults.stockouts, faults.stalls) == ({"us-east4", "us-west1"}, {""})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bogus", "no such fault"),
        ("slow-sates", "no such fault; did you mean 'slow-states'?"),
        ("503@creat", "expected NAME[:SHARE][@CALL[#N]]"),
        ("503#0", "expected NAME[:SHARE][@CALL[#N]]"),
        ("slow-states:-1", "expected NAME or NAME:NUMBER"),
        ("slow-states@get", "expected NAME or NAME:NUMBER"),
        ("stockout:mars", "expected NAME or NAME:REGION"),
    ],
)
def test_what_is_not_a_fault_is_refused(spec, message):
    with pytest.raises(UsageError) as problem:
        Faults(f"503,{spec}")
    assert str(problem.value) == f"--faults: {spec!r}: {message} (see 'distlaunch emulator --help')"
