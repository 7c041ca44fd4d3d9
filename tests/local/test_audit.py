"""What `--audit` proves and refutes: the judgement by itself, then with programs that run."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.local.audit import judge

ALL = [[0, 10]]


def ready(step: int = 0, examples: int = 10, steps: int = 2) -> dict:
    return {"event": "ready", "examples": examples, "steps_per_epoch": steps, "step": step}


def seen(start: int, end: int, positions: object, **more: object) -> dict:
    event = {"event": "audit", "kind": "seen", "from": start, "to": end, "positions": positions}
    return event | more


def read(count: int | None, records: int = 5, index: int = 40, data: int = 1000) -> dict:
    event = {"bytes": count, "index_bytes": index, "data_bytes": data, "records": records}
    return {"event": "audit", "kind": "read"} | event


def step(number: int) -> dict:
    return {"event": "step", "step": number}


def problems(*events: dict) -> list[str]:
    """Return the problems of one task with these events."""
    return list(judge([{"chief": events}]).problems)


def lines(*attempts: dict[str, list[dict]]) -> list[str]:
    """Return what is proved, and the table."""
    finding = judge(attempts)
    assert finding.problems == ()
    return finding.text.splitlines()


def test_what_is_proved_and_what_each_task_read():
    chief = [ready(), seen(0, 2, [[0, 6]]), read(300), seen(2, 4, [[0, 6]]), read(1200, 12)]
    worker = [ready(), seen(0, 1, [[6, 1]]), seen(0, 2, [[7, 2], [9, 1]]), seen(2, 4, [[6, 4]])]
    assert lines({"chief": chief, "worker:0": worker}) == [
        "audit: each of 10 examples was seen exactly once in each of 2 epochs "
        "(chief 6, worker:0 4 an epoch)",
        "    task  examples seen  records read  bytes read  of the data an epoch  index bytes",
        "   chief             12            12       1,200                60.0 %           40",
        "worker:0              8",
    ]


def test_rows_that_differ_from_epoch_to_epoch_and_many_tasks():
    halves = [[[0, 5]], [[5, 5]]]
    found = lines({
        "chief": [ready(), seen(0, 2, halves[0]), seen(2, 4, [[0, 4]])],
        "worker:0": [ready(), seen(0, 2, halves[1]), seen(2, 4, [[4, 6]])],
    })  # fmt: skip
    assert found[0].endswith("(chief 4-5, worker:0 5-6 an epoch)")
    events = {f"worker:{k}": [ready(), seen(0, 2, [[k, 1 if k < 4 else 6]])] for k in range(5)}
    assert lines(events)[0].endswith("(5 tasks, 1-6 each an epoch)")


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ([[0, 3], [4, 1], [6, 4]], "2 examples were never seen (positions 3, 5)"),
        ([[1, 9]], "1 example was never seen (position 0)"),
        ([], "10 examples were never seen (positions 0-9)"),
        ([[0, 10], [4, 1]], "1 example was seen more than once by chief (position 4: 2 times)"),
        (
            [[0, 8], [2, 3], [4, 2], [4, 1]],
            "2 examples were never seen (positions 8-9), 4 were seen more than once by chief "
            "(positions 2-3: 2 times, 4: 4 times, 5: 2 times)",
        ),
        (
            [[0, 10], *([9, 1] for _ in range(300))],
            "1 example was seen more than once by chief (position 9: 255 times or more)",
        ),
    ],
)
def test_what_is_wrong_with_an_epoch(runs, problem):
    assert problems(ready(), seen(0, 2, runs)) == [f"audit: epoch 1: {problem}"]


def test_only_some_positions_are_listed():
    found = problems(ready(0, 100), seen(0, 2, [[at, 1] for at in range(0, 100, 2)]))
    assert found == [
        "audit: epoch 1: 50 examples were never seen (positions 1, 3, 5, 7, 9, 11, 13, 15, 17, "
        "19, …)"
    ]


def test_tasks_that_saw_the_same_are_named():
    events = {
        "chief": [ready(), seen(0, 2, [[0, 6]])],
        "worker:0": [ready(), seen(0, 2, [[6, 2]])],
        "worker:1": [ready(), seen(0, 2, [[8, 2], [5, 1]])],
    }
    assert judge([events]).problems == (
        "audit: epoch 1: 1 example was seen more than once by chief and worker:1 "
        "(position 5: 2 times)",
    )
    events = {f"worker:{number}": [ready(), seen(0, 2, ALL)] for number in range(5)}
    assert "seen more than once by 5 tasks (positions 0-9: 5 times)" in judge([events]).problems[0]


def test_rows_of_no_example_are_a_problem():
    assert problems(ready(), seen(0, 2, ALL, unknown=1), seen(2, 4, ALL, unknown=2000)) == [
        "audit: epoch 1: 1 row was of no known example",
        "audit: epoch 2: 2,000 rows were of no known example",
    ]


def test_only_some_epochs_are_listed():
    events = [seen(at, at + 2, [[0, 9]]) for at in range(0, 16, 2)]
    found = problems(ready(), *events)
    assert [line.split(": ")[1] for line in found[:5]] == [f"epoch {n}" for n in range(1, 6)]
    assert found[5:] == ["audit: and 3 more epochs"]
    assert len(judge([{"chief": [ready(), *events]}]).text.splitlines()) == 2  # the table


def test_epochs_without_reports():
    assert problems(ready(), seen(0, 2, ALL), seen(4, 6, ALL), step(7)) == [
        "audit: epoch 2 and 1 other: no example is reported"
    ]
    assert problems(ready(), read(5), step(2)) == ["audit: epoch 1: no example is reported"]
    assert problems(ready(), seen(0, 2, ALL), step(2**63 - 1)) == [
        "audit: epoch 2 and 4,611,686,018,427,387,902 others: no example is reported"
    ]


def test_epoch_that_an_earlier_run_began():
    events = [ready(3), seen(3, 4, [[2, 3]]), seen(4, 6, ALL)]
    assert lines({"chief": events})[:2] == [
        "audit: each of 10 examples was seen exactly once in 1 epoch (chief 10 an epoch)",
        "audit: epoch 2 was begun by an earlier run, of which nothing is known: "
        "no example was seen more than once from step 3 on",
    ]
    assert problems(ready(3), seen(3, 4, [[2, 3], [2, 1]]), seen(4, 6, ALL)) == [
        "audit: epoch 2: 1 example was seen more than once by chief (position 2: 2 times)"
    ]


def test_epoch_that_ended_early():
    events = [ready(), seen(0, 2, ALL), seen(2, 3, [[2, 3]])]
    assert lines({"chief": events})[1] == (
        "audit: epoch 2 ended after 1 of its 2 steps: no example was seen more than once"
    )


@pytest.mark.parametrize(
    "events",
    [
        [ready(3), read(0)],
        [ready(3), seen(3, 4, [[2, 3]])],
        [ready(4), read(0)],
        [ready(0), read(0)],
        [ready(0), seen(0, 1, [[2, 3]])],
    ],
)
def test_without_a_whole_epoch_nothing_is_proved(events):
    assert problems(*events) == [
        "audit: nothing was proved, as no epoch was trained from its first step to its last"
    ]


def test_what_is_trained_again_does_not_count_twice():
    first = [ready(), seen(0, 2, ALL), seen(2, 3, [[0, 5]]), seen(3, 4, [[5, 2]]), step(4)]
    second = [ready(3), seen(3, 4, [[5, 5]]), seen(4, 6, ALL), seen(6, 7, [[0, 1]])]
    third = [ready(4), seen(4, 6, [[9, 1], [0, 9]])]
    found = lines({"chief": first}, {"chief": second}, {"chief": []}, {"chief": third})
    assert found[0].endswith("exactly once in each of 3 epochs (chief 10 an epoch)")
    assert len(found) == 3


def test_reading_is_of_all_attempts():
    first, second = [ready(), seen(0, 2, ALL), read(900, 9)], [ready(2), seen(2, 4, ALL)]
    found = lines({"chief": first}, {"chief": [*second, read(1100, 11, 0)]})
    assert found[2].split() == ["chief", "20", "20", "2,000", "100.0", "%", "40"]
    found = lines({"chief": first}, {"chief": [*second, read(None, 11, 0)]})
    assert found[2].split() == ["chief", "20", "20", "40"]


def test_program_without_audit_events():
    (problem,) = judge([{"chief": [ready(), step(2)], "worker:0": []}]).problems
    assert problem == (
        "audit: the program reports nothing of what it read; "
        "only the bundled trainer (trainer.task) does"
    )


def test_task_without_audit_events():
    events = {"chief": [ready(), seen(0, 2, ALL)], "worker:0": [ready()], "worker:1": []}
    assert judge([events]).problems == (
        "audit: nothing of what it read is reported by worker:0 and worker:1",
    )


@pytest.mark.parametrize("other", [ready(examples=11), ready(steps=3), ready(step=2)])
def test_tasks_that_do_not_go_alike(other):
    (problem,) = judge([{"chief": [ready(), seen(0, 2, ALL)], "worker:0": [other]}]).problems[1:]
    assert problem.startswith(
        "audit: the tasks do not go through the same data alike: "
        "10 examples, 2 steps an epoch, from step 0; 1"
    )
    if other["step"] == 0:
        assert judge([{"chief": [ready()]}, {"chief": [other, read(0)]}]).problems == (problem,)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (seen(0, 2, [[9, 2]]), "positions has [9, 2], not a first and a count of 10"),
        (seen(0, 2, [[-1, 2]]), "positions has [-1, 2], not a first and a count of 10"),
        (seen(0, 2, [[0, True]]), "positions has [0, True], not a first and a count of 10"),
        (seen(0, 2, [[0, 1, 2]]), "positions is [[0, 1, 2]], no list of pairs"),
        (seen(0, 2, None), "positions is None, no list of pairs"),
        (seen(0, 2, "x" * 50), f"positions is '{'x' * 12}...{'x' * 13}', no list of pairs"),
        (seen(0, 2, [[3] * 99]), "positions is [[3, 3, 3, 3, 3, 3, ...]], no list of pairs"),
        (seen(0, 2, {"ab": 3}), "positions has ['a', 'b'], not a first and a count of 10"),
        (seen(0, 2, ALL, unknown="3"), "unknown is '3', not a count"),
        (seen(-1, 2, ALL), "from is -1, not a count"),
        (seen(0, 2.0, ALL), "to is 2.0, not a count"),
        (
            seen(1, 3, ALL),
            "steps 1 to 3 are no part of an epoch: 10 examples, 2 steps an epoch, from step 0",
        ),
        (
            seen(2, 2, ALL),
            "steps 2 to 2 are no part of an epoch: 10 examples, 2 steps an epoch, from step 0",
        ),
        (seen(0, 2, ALL), "it goes back from epoch 2 to 1"),
        (read(-3), "bytes is -3, not a count"),
        ({"event": "audit", "kind": "read"}, "bytes is None, not a count"),
        (read(3, None), "records is None, not a count"),
        ({"event": "audit"}, "kind is None, neither seen nor read"),
        (ready(), "it was ready a second time"),
    ],
)
def test_event_that_cannot_be_understood(event, why):
    events = [ready(), seen(0, 2, ALL), seen(2, 4, ALL), event]
    assert problems(*events) == [f"audit: chief: 1 event not understood ({why})"]
    assert problems(*events, read(-1)) == [f"audit: chief: 2 events not understood ({why})"]


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (step(0), "no ready before it with examples, steps_per_epoch and step"),
        (ready(examples="many"), "no ready before it with examples, steps_per_epoch and step"),
        (ready(examples=10**15), "1,000,000,000,000,000 examples in 2 steps cannot be counted"),
        (ready(steps=0), "10 examples in 0 steps cannot be counted"),
    ],
)
def test_ready_without_what_an_audit_needs(first, why):
    found = problems(first, seen(0, 2, ALL))
    assert found[0] == "audit: nothing of what it read is reported by chief"
    assert found[1].endswith(f"not understood ({why})")


def runs_of(examples: list[int]) -> list[list[int]]:
    """Return examples as runs of consecutive ones."""
    runs: list[list[int]] = []
    for example in sorted(examples):
        if runs and example == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([example, 1])
    return runs


@st.composite
def trainings(draw) -> tuple[list[dict[str, list[dict]]], int, list[Counter[int]]]:
    """Make the events of a training that is restarted, and count the examples of each epoch.

    Each attempt resumes at a step of the one before it up to which the tasks have reported what
    they saw; later reports are lost with what was trained.
    """
    n, steps, epochs = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    tasks = draw(st.sampled_from([["chief"], ["chief", "worker:0"]]))
    end = steps * epochs
    marks = draw(st.sets(st.integers(0, end), max_size=5)) | {*range(0, end + 1, steps)}
    spans = list(pairwise(sorted(marks)))
    each_once, any_at_all = st.permutations(range(n)), st.lists(st.integers(0, n - 1))
    saw = [draw(each_once | any_at_all) for _ in range(epochs)]
    rows = [
        (draw(st.sampled_from(tasks)), draw(st.sampled_from(inside)), example)
        for epoch, examples in enumerate(saw)
        for inside in [[span for span in spans if span[0] // steps == epoch]]
        for example in examples
    ]

    def events(task: str, first: int, last: int) -> list[dict]:
        parts = [
            seen(*span, runs_of([row[2] for row in rows if row[:2] == (task, span)]))
            for span in spans
            if first <= span[0] and span[1] <= last
        ]
        return [ready(first, n, steps), *parts, read(0), step(last)]

    starts = [0, *sorted(draw(st.lists(st.sampled_from(sorted(marks)), max_size=2)))]
    lasts = [draw(st.integers(start, end)) for start in starts[1:]] + [end]
    attempts = [
        {task: events(task, first, last) for task in tasks}
        for first, last in zip(starts, lasts, strict=True)
    ]
    return attempts, n, [Counter(examples) for examples in saw]


@given(trainings())
def test_proved_is_what_is_so(training):
    attempts, n, counts = training
    wrong = [
        number
        for number, count in enumerate(counts, start=1)
        if [count[example] for example in range(n)] != [1] * n
    ]
    found = [line.split(": ")[1] for line in judge(attempts).problems]
    assert found == [f"epoch {number}" for number in wrong]


SEES = """
def sees(start, end, *runs, **more):
    report("audit", kind="seen", **{"from": start, "to": end}, positions=runs, **more)

def reads(count, records):
    report("audit", kind="read", bytes=count, index_bytes=0, data_bytes=1000, records=records)

def begins(step=0):
    report("ready", examples=10, steps_per_epoch=2, step=step, epochs=2)

"""
WHOLE = (
    SEES
    + """
begins()
for epoch in (0, 2):
    sees(epoch, epoch + 2, [0, 5] if TASK == "chief" else [5, 5])
reads(1000, 10)
"""
)
WITH_OTHERS = "time.sleep(60 if TASK == 'evaluator-0' else 0)" + WHOLE
MUCH = (
    WHOLE
    + """
for _ in range(4 << 10):
    sees(2, 3, pad="x" * 1000)
report("end", summary={"global_batch": 64})
"""
)


def test_job_that_is_proved(run):
    code, out, err = run(WHOLE, "--audit")
    assert (code, "error" in err) == (0, False)
    assert out == (
        "audit: each of 10 examples was seen exactly once in each of 2 epochs "
        "(chief 5, worker:0 5 an epoch)\n"
        "    task  examples seen  records read  bytes read  of the data an epoch  index bytes\n"
        "   chief             10            10       1,000                50.0 %            0\n"
        "worker:0             10            10       1,000                50.0 %            0\n"
    )


def test_job_that_is_refuted_fails_after_its_summary(run):
    code, out, err = run(
        WHOLE + "sees(2, 4, [5, 1])\nreport('end', summary={'global_batch': 64})\n", "--audit"
    )
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["global", "task", "chief", "worker:0"]
    assert err.splitlines()[-1] == (
        "distlaunch: error: audit: epoch 2: 1 example was seen more than once by chief and "
        "worker:0 (position 5: 3 times)"
    )


def test_job_that_fails_keeps_its_code_and_proves_nothing(run):
    code, out, err = run(WHOLE + "sys.exit(7)\n", "--audit", workers=1)
    assert (code, out) == (7, "")
    assert err.splitlines()[-1] == (
        "distlaunch: warning: audit: not verified, because the job failed"
    )


def test_tasks_that_do_not_train_need_no_events(run, tmp_path):
    machine = "{machine: n1-standard-4}"
    (tmp_path / "distlaunch.yaml").write_text(
        f"name: digits\ncluster: {{chief: {machine}, workers: {machine}, evaluators: {machine}}}\n"
    )
    code, out, _ = run(WITH_OTHERS, "--audit", workers=None)
    assert (code, out.count("\n")) == (0, 4)


def test_all_events_at_the_end_are_read(run):
    """A poll takes no more than a part of it."""
    code, out, _ = run(MUCH, "--audit")
    assert code == 0
    assert out.splitlines()[0] == "global batch  64"
    assert "exactly once in each of 2 epochs" in out


def test_nothing_is_reported_without_the_option(run, tmp_path):
    code, out, err = run(WHOLE + "sees(2, 4, [5, 1])\n", "--job-dir=job")
    assert (code, out, "audit" in err) == (0, "", False)
    (path,) = tmp_path.glob("job/task-logs/*/chief.events.jsonl")
    assert json.loads(path.read_text().splitlines()[-1])["kind"] == "seen"
