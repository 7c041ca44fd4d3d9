"""The reason of a failed local run, and what to do next."""

from __future__ import annotations

import json

import pytest

WORKER_FAILS = """
if TASK == "worker-0":
    {}
time.sleep(60)
"""


def failure_of(out):
    events = [json.loads(line) for line in out.splitlines()]
    [failure] = [event for event in events if event["event"] == "failure"]
    return failure


@pytest.mark.parametrize(
    ("statement", "reason", "remedy"),
    [
        ("import pandas_x", "a Python module cannot be imported: pandas_x", "requirements.txt"),
        ("os.kill(os.getpid(), 9)", "it was killed (SIGKILL), by the system if", "--batch-size"),
        ("bytearray(1 << 60)", "the task ran out of memory", "--batch-size"),
        ("open('a.csv')", "a file is missing: [Errno 2] No such file", "its path"),
        ("sys.exit('the loss is not finite at step 3')", "the loss became NaN", "learning rate"),
        ("sys.exit('trainer: error: odd data')", "odd data", None),
        ("raise ValueError('unknown')", None, None),
    ],
)
def test_the_first_failed_task_its_reason_and_remedy(statement, reason, remedy, run):
    code, out, err = run(WORKER_FAILS.format(statement), "--json")
    failure = failure_of(out)
    assert (code != 0, failure["task"]) == (True, "worker:0")
    assert (failure["reason"] or "").startswith(reason or "")
    assert (remedy or "") in (failure["remedy"] or "")
    assert (failure["reason"] is None) is (reason is None)
    assert ("reason:" in err) is (reason is not None)
    assert err.count("full log: ") == 1


def test_a_task_that_was_killed_on_request_did_not_run_out_of_memory(run):
    code, out, err = run("time.sleep(60)", "--kill=worker:0@0.1s", "--json")
    assert (code, failure_of(out)["reason"], "reason:" in err) == (137, None, False)
