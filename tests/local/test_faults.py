from __future__ import annotations

import pytest

from distlaunch.errors import UsageError
from distlaunch.job.model import Task
from distlaunch.local.faults import Fault, check_faults


@pytest.mark.parametrize(
    ("text", "fault", "when"),
    [
        ("worker:0@step=40", Fault("kill", Task("worker", 0), step=40), "step 40"),
        ("chief@step=0", Fault("kill", Task("chief"), step=0), "step 0"),
        ("ps:1@5s", Fault("kill", Task("ps", 1), seconds=5.0), "5 s"),
        ("chief@0.25s", Fault("kill", Task("chief"), seconds=0.25), "0.25 s"),
        ("chief@0s", Fault("kill", Task("chief"), seconds=0.0), "0 s"),
    ],
)
def test_what_can_be_asked_for(text, fault, when):
    parsed = Fault.parse("kill", text)
    assert parsed == fault
    assert parsed.when == when
    assert str(parsed) == f"--kill {text}"


@pytest.mark.parametrize(
    "text",
    ["", "@5s", "worker:0", "worker:0@", "worker:0@5", "chief@step=", "chief@step=-1",
     "chief@step=1.5", "chief@-5s", "chief@infs", "chief@1e3s", "chief@٣s", "chief@5s\n"],
)  # fmt: skip
def test_what_is_no_fault_says_what_is(text):
    with pytest.raises(UsageError) as refusal:
        Fault.parse("freeze", text)
    assert str(refusal.value) == (
        f"--freeze: {text!r} is not TASK@step=N or TASK@SECONDSs, as worker:0@step=40 or chief@5s"
    )


@pytest.mark.parametrize("name", ["worker", "worker:x", "chief:0", "boss", "worker:0@worker:1"])
def test_what_is_no_task_says_what_is(name):
    with pytest.raises(UsageError, match=r"^--kill: .* is not a task; expected chief, worker:N"):
        Fault.parse("kill", f"{name}@5s")


def test_fault_for_a_task_that_there_is_not():
    tasks = (Task("chief"), Task("worker", 0))
    check_faults([Fault.parse("kill", "worker:0@5s")], tasks)
    with pytest.raises(UsageError) as refusal:
        check_faults([Fault.parse("freeze", "worker:1@step=3")], tasks)
    assert str(refusal.value) == (
        "--freeze worker:1@step=3: no such task in this cluster; there are: chief, worker:0"
    )
