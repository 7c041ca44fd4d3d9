"""What `--audit` proves and refutes: the judgement by itself, then with programs that run."""

from __future__ import annotations

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


def read(count: int | None, records: int = 5, index: int = 40) -> dict:
    event = {"bytes": count, "index_bytes": index, "data_bytes": 1000, "records": records}
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


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([seen(0, 2, [[0, 3], [4, 2]])], "epoch 1: 5 examples were never seen (positions 3, 6-9)"),
        (
            [seen(0, 2, [[0, 8], [2, 3], [4, 1], [9, 1]])],
            "epoch 1: 1 example was never seen (positions 8), 3 examples were seen more than once "
            "(positions 2-3: 2 times, 4: 3 times)",
        ),
        (
            [seen(0, 2, [[0, 10], *([9, 1] for _ in range(300))])],
            "epoch 1: 1 example was seen more than once (positions 9: 255 times or more)",
        ),
        (
            [seen(0, 2, ALL), seen(4, 6, ALL), step(7)],
            "no example is reported of 2 of 4 epochs",
        ),
        (
            [seen(0, 1, ALL)],
            "nothing was proved, as no epoch was trained from its first step to its last",
        ),
    ],
)
def test_problems(events, problem):
    assert problems(ready(), read(0), *events) == [f"audit: {problem}"]


def test_only_some_positions_and_epochs_are_listed():
    events = [seen(at, at + 2, [[at, 1] for at in range(0, 100, 2)]) for at in range(0, 16, 2)]
    listed = problems(ready(0, 100), *events)
    assert listed[0] == (
        "audit: epoch 1: 50 examples were never seen (positions 1, 3, 5, 7, 9, 11, 13, 15, 17, "
        "19, …)"
    )
    assert [line.split(": ")[1] for line in listed[:5]] == [f"epoch {n}" for n in range(1, 6)]
    assert listed[5:] == ["audit: and 3 more epochs"]


def test_epoch_that_an_earlier_run_began_and_one_that_ended_early():
    events = [ready(3), seen(3, 4, [[2, 3]]), seen(4, 6, ALL), seen(6, 7, [[2, 3]])]
    assert lines({"chief": events})[:3] == [
        "audit: each of 10 examples was seen exactly once in 1 epoch (chief 10 an epoch)",
        "audit: epoch 2 was begun by an earlier run, of which nothing is known: "
        "no example was seen more than once from step 3 on",
        "audit: epoch 4 ended after 1 of its 2 steps: no example was seen more than once",
    ]


def test_reading_is_of_all_attempts():
    first, second = [ready(), seen(0, 2, ALL), read(900, 9)], [ready(2), seen(2, 4, ALL)]
    shown = lines({"chief": first}, {"chief": [*second, read(1100, 11, 0)]})
    assert shown[2].split() == ["chief", "20", "20", "2,000", "100.0", "%", "40"]
    shown = lines({"chief": first}, {"chief": [*second, read(None, 11, 0)]})
    assert shown[2].split() == ["chief", "20", "20", "40"]


def test_tasks_without_audit_events():
    (problem,) = judge([{"chief": [ready(), step(2)], "worker:0": []}]).problems
    assert problem == (
        "audit: the program reports nothing of what it read; "
        "only the bundled trainer (trainer.task) does"
    )
    events = {"chief": [ready(), seen(0, 2, ALL)], "worker:0": [ready()], "worker:1": []}
    assert judge([events]).problems == (
        "audit: nothing of what it read is reported by worker:0 and worker:1",
    )


@pytest.mark.parametrize("other", [ready(examples=11), ready(steps=3), ready(step=2)])
def test_tasks_with_different_plans(other):
    (problem,) = judge([{"chief": [ready(), seen(0, 2, ALL)], "worker:0": [other]}]).problems[1:]
    assert problem.startswith(
        "audit: the tasks do not go through the same data alike: "
        "10 examples, 2 steps an epoch, from step 0; 1"
    )


@pytest.mark.parametrize("first", [step(0), ready(examples="many"), ready(examples=10**15)])
def test_ready_without_what_an_audit_needs(first):
    (silent,) = problems(first, seen(0, 2, ALL))
    assert silent == "audit: nothing of what it read is reported by chief"


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
            seen(*span, [[row[2], 1] for row in rows if row[:2] == (task, span)])
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
def test_epochs_are_refuted_exactly_when_they_are_wrong(training):
    attempts, n, counts = training
    wrong = [
        number
        for number, count in enumerate(counts, start=1)
        if [count[example] for example in range(n)] != [1] * n
    ]
    refuted = [line.split(": ")[1] for line in judge(attempts).problems]
    assert refuted == [f"epoch {number}" for number in wrong]


WHOLE = """
def sees(start, end, *runs, **more):
    report("audit", kind="seen", **{"from": start, "to": end}, positions=runs, **more)

if TASK == "evaluator-0":
    time.sleep(60)
report("ready", examples=10, steps_per_epoch=2, step=0, epochs=2)
for epoch, count in ((0, 5), (2, 4)):
    sees(epoch, epoch + 2, [0, count] if TASK == "chief" else [count, 10 - count])
report("audit", kind="read", bytes=1000, index_bytes=0, data_bytes=1000, records=10)
"""
SUMMARY = "report('end', summary={'global_batch': 64})\n"


def test_job_that_is_proved(run, tmp_path):
    """An evaluator reports nothing; a poll reads no more than a part of so many events."""
    machine = "{machine: n1-standard-4}"
    (tmp_path / "distlaunch.yaml").write_text(
        f"name: digits\ncluster: {{chief: {machine}, workers: {machine}, evaluators: {machine}}}\n"
    )
    much = "for _ in range(4 << 10):\n    sees(2, 3, pad='x' * 1000)\n"
    code, out, err = run(WHOLE + much + SUMMARY, "--audit", workers=None)
    assert (code, "error" in err) == (0, False)
    assert out == (
        "global batch  64\n"
        "audit: each of 10 examples was seen exactly once in each of 2 epochs "
        "(chief 4-5, worker:0 5-6 an epoch)\n"
        "    task  examples seen  records read  bytes read  of the data an epoch  index bytes\n"
        "   chief              9            10       1,000                50.0 %            0\n"
        "worker:0             11            10       1,000                50.0 %            0\n"
    )


def test_job_that_is_refuted_fails_after_its_summary(run):
    code, out, err = run(WHOLE + "sees(2, 4, [5, 1])\n" + SUMMARY, "--audit")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["global", "task", "chief", "worker:0"]
    assert err.splitlines()[-1] == (
        "distlaunch: error: audit: epoch 2: 1 example was seen more than once "
        "(positions 5: 3 times)"
    )


def test_job_that_fails_keeps_its_code_and_proves_nothing(run):
    code, out, err = run(WHOLE + "sys.exit(7)\n", "--audit", workers=1)
    assert (code, out) == (7, "")
    assert err.splitlines()[-1] == (
        "distlaunch: warning: audit: not verified, because the job failed"
    )
