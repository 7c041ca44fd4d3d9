from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.faults import CALLS, CallFault, FaultCounter, Faults
from distlaunch.errors import UsageError


def faults_of(spec: str, calls: str) -> list[str]:
    """Return the name of the fault of each call, '-' for none."""
    counter = FaultCounter(Faults.parse(spec))
    return [counter.next(call) or "-" for call in calls.split()]


@pytest.mark.parametrize(
    ("spec", "calls", "faults"),
    [
        ("", "create get", "- -"),
        ("503", "get get", "503 -"),
        ("503@create", "get create create", "- 503 -"),
        ("503@create#2", "create get create create", "- - 503 -"),
        ("503:1@create", "create create get", "503 503 -"),
        ("503:0@create", "create create", "- -"),
        ("503#2-3", "get list logs get", "- 503 503 -"),
        ("503@3", "get list logs get", "- - 503 -"),
        ("lost@create#*", "create create", "lost lost"),
        ("lost-create", "get create create", "- lost -"),
        ("reset@logs, 500@logs#1-2", "logs logs logs", "reset 500 -"),
        ("quota", "get create create", "- quota quota"),
        ("quota#1", "create create", "quota -"),
        ("denied@list", "list get list", "denied - denied"),
        ("expired", "get get", "expired -"),
    ],
)
def test_which_calls_fail(spec, calls, faults):
    assert faults_of(spec, calls) == faults.split()


@given(st.integers(0, 1000), st.lists(st.sampled_from(CALLS), max_size=30))
def test_random_faults_depend_on_the_seed_and_the_kind_of_call_only(seed, calls):
    spec = f"503:0.5@create,seed:{seed}"
    line = " ".join(calls)
    names = faults_of(spec, line)
    assert names == faults_of(spec, line)
    of_create = [name for name, call in zip(names, calls, strict=True) if call == "create"]
    assert of_create == faults_of(spec, " ".join(["create"] * len(of_create)))


def test_a_share_is_a_probability():
    names = faults_of("503:0.3,seed:4", " ".join(["get"] * 2000))
    assert 500 < names.count("503") < 700


def test_settings():
    read = Faults.parse("slow-states:2.5,seed:7,expire-jobs")
    assert read == Faults((), 2.5, 7, True)
    assert Faults.parse("slow-states") == Faults((), 5.0)
    assert Faults.parse("504") == Faults((CallFault("504"),))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("5O3", "'5O3': expected NAME[:AMOUNT][@CALL[#N]]"),
        ("slow", "'slow': no such fault"),
        ("slow-sates", "'slow-sates': no such fault; did you mean 'slow-states'?"),
        ("lost-crate", "'lost-crate': no such fault; did you mean 'lost-create'?"),
        (
            "503@creat",
            "'503@creat': unknown call 'creat'; expected create, get, list, cancel, delete, "
            "logs, storage",
        ),
        ("503:2", "'503:2': expected a number from 0 to 1 behind ':', got '2'"),
        ("503:nan", "'503:nan': expected a number from 0 to 1 behind ':', got 'nan'"),
        ("slow-states:-1", "'slow-states:-1': expected a number from 0 behind ':', got '-1'"),
        ("503:0.5#2", "'503:0.5#2': give a share or the number of a call, not both"),
        ("503#0", "'503#0': expected #N, #N-M or #* behind the call"),
        ("slow-states@get", "'slow-states@get': slow-states is not about calls"),
        ("quota@get", "'quota@get': only 'create' can exceed a quota"),
    ],
)
def test_what_is_not_a_fault_is_refused(spec, message):
    with pytest.raises(UsageError) as problem:
        Faults.parse(spec)
    assert str(problem.value) == f"--faults: {message} (see 'distlaunch emulator --help')"
