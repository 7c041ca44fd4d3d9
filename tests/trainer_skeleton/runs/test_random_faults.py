"""Random faults: every run ends with the weights of an undisturbed one.

`make laws` runs 80 cases with 200 faults. The number of a case is the seed of its faults; the test
of one case can be run alone. Cases that would start later than DISTLAUNCH_TEST_FAULT_SECONDS after
the first are skipped.
"""

import json
import os
import random
import signal
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from .conftest import HERE, LAWS, REGRESSION_MODEL, SETTINGS

pytestmark = pytest.mark.slow

STEPS, EVERY, STEPS_PER_EPOCH, MAX_FAULTS = 33, 4, 11, 4
SAVED = sorted({*range(EVERY, STEPS, EVERY), *range(STEPS_PER_EPOCH, STEPS + 1, STEPS_PER_EPOCH)})
# The steps at which a task has an event; a step is reported at the end of an execution of up to 4.
EVENTS = {
    "step": range(1, STEPS + 1),
    "epoch": range(STEPS_PER_EPOCH, STEPS + 1, STEPS_PER_EPOCH),
    "checkpoint": SAVED,
    "write": SAVED,
}
# Steps between two faults, so that an execution does not pass the event of the next one.
APART = EVERY + 1
OF_CHIEF = ("checkpoint", "write")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, signal.SIGSTOP)

CASES = [2]
if LAWS:
    CASES = range(80)
MOST_SECONDS = float(os.environ.get("DISTLAUNCH_TEST_FAULT_SECONDS") or "inf")
STARTED = time.monotonic()

DATA = """
import os
import keras
import numpy as np
import tensorflow as tf
from distlaunch_trainer import Arrays, Records

BATCH = 12


def _arrays(examples, seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(examples, 6))
    return x, np.sin(x.sum(axis=1, keepdims=True)), 0.5 + random.random(examples)


def _parse(record):
    numbers = tf.io.decode_raw(record, tf.float64)
    return tf.ensure_shape(numbers[:6], [6]), tf.ensure_shape(numbers[6:7], [1]), numbers[7]


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return -(-121 // BATCH)

    def __getitem__(self, number):
        return tuple(a[number * BATCH : (number + 1) * BATCH] for a in _arrays(121, 1))


def training():
    arrays = _arrays(121, 1)
    return {
        "arrays": lambda: Arrays(*arrays),
        "records": lambda: Records("rows/*.tfrecord", _parse),
        "dataset": lambda: tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH),
        "pydataset": Batches,
    }[os.environ["DATA"]]()


def validation():
    return Arrays(*_arrays(37, 2))
"""
KINDS = ("arrays", "records", "dataset", "pydataset", "script")
FIT = ("--set", "module=distlaunch_trainer.fit", "--set", "args=[]", "--")
PROGRAMS = {"script": (*FIT, f"--checkpoint-every={EVERY}", "faulty_fit.py")}
"""What is launched, unless it is trainer.task."""


def faults_of(case):
    """Return the data, the number of workers and the faults of a case."""
    choose = random.Random(case)  # noqa: S311 - not for secrets
    workers = choose.randint(1, 4)
    tasks = ["chief", *(f"worker:{n}" for n in range(workers - 1))]
    count = case % MAX_FAULTS + 1
    faults, step = [], 1 - APART
    for number in range(count):
        least, most = step + APART, STEPS - APART * (count - 1 - number)
        possible = {e: [s for s in steps if least <= s <= most] for e, steps in EVENTS.items()}
        event = choose.choice([event for event, steps in possible.items() if steps])
        step = choose.choice(possible[event])
        task = "chief" if event in OF_CHIEF else choose.choice(tasks)
        # Nothing ends a frozen task without peers.
        kill = choose.choice(SIGNALS[:4] if workers == 1 else SIGNALS)
        faults.append(
            {"number": number, "task": task, "event": event, "step": step, "signal": int(kill)}
        )
    return choose.choice(KINDS), workers, faults


@pytest.fixture(scope="module")
def project(new_project):
    project = new_project(REGRESSION_MODEL, DATA)
    for name in ("faults.py", "faulty_task.py", "faulty_fit.py"):
        project.write(name, (HERE / name).read_text())
    (project.folder / "rows").mkdir()
    code: dict = {}
    exec(DATA, code)  # noqa: S102 - the project's own
    rows = np.concatenate([a.reshape(121, -1) for a in code["_arrays"](121, 1)], axis=1)
    for name, part in zip("abc", np.split(rows, [50, 53]), strict=True):
        with tf.io.TFRecordWriter(str(project.folder / f"rows/{name}.tfrecord")) as file:
            for row in part:
                file.write(row.tobytes())
    return project


@pytest.fixture(scope="module")
def undisturbed(project):
    """The weights that one worker ends with on each kind of data and program, and the logs."""
    known = {}

    def train(kind):
        if kind not in known:
            alone = replace(project, environment={"DATA": kind})
            if kind in PROGRAMS:
                alone.local(kind, "--workers", "1", *PROGRAMS[kind])
            else:
                alone.trainer(f"--job-dir={kind}", *SETTINGS)
            known[kind] = project.weights(kind), logs_of(project, kind)
        return known[kind]

    return train


def logs_of(project, job):
    return [epoch["logs"] for epoch in project.summary(job)["epochs"]]


@pytest.mark.parametrize("case", CASES)
def test_weights_and_logs_are_those_of_an_undisturbed_run(project, undisturbed, case):
    if time.monotonic() - STARTED > MOST_SECONDS:
        pytest.skip(f"DISTLAUNCH_TEST_FAULT_SECONDS={MOST_SECONDS:.0f} are over")
    kind, workers, faults = faults_of(case)
    print(f"case {case}: {kind}, {workers} workers, {faults}")
    job, markers = f"case-{case}", project.folder / f"markers-{case}"
    markers.mkdir()
    variables = {"DATA": kind, "FAULTS": json.dumps(faults), "MARKERS": str(markers)}
    faulty = replace(project, environment=variables)
    launcher = ("--workers", str(workers), "--restarts", str(len(faults)))
    task = ("--set", "module=faulty_task", "--", *SETTINGS)
    for _ in range(len(faults) + 1):
        result = faulty.local(job, *launcher, *PROGRAMS.get(kind, task), code=None)
        assert result.code in {0, 128 + signal.SIGTERM}, result.text
        if result.code == 0:
            break
    assert {int(path.name) for path in markers.iterdir()} == {f["number"] for f in faults}
    weights, logs = undisturbed(kind)
    assert project.summary(job)["steps"] == STEPS
    np.testing.assert_allclose(project.weights(job), weights, rtol=0, atol=1e-9)
    for epoch, expected in zip(logs_of(project, job), logs, strict=True):
        assert epoch == pytest.approx(expected, abs=1e-6)


def test_the_cases_have_200_faults_of_every_kind():
    cases = [faults_of(case) for case in range(80)]
    faults = [fault for _, _, faults in cases for fault in faults]
    assert len(faults) == 200
    assert {kind for kind, *_ in cases} == set(KINDS)
    assert {workers for _, workers, _ in cases} == {1, 2, 3, 4}
    for key, values in {"event": EVENTS, "signal": SIGNALS}.items():
        assert {fault[key] for fault in faults} == set(values)
    for _, _, of_case in cases:
        steps = [fault["step"] for fault in of_case]
        assert all(later - earlier >= APART for earlier, later in pairwise(steps))
        assert max(steps) <= STEPS
