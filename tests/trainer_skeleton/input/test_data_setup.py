"""Data as a run opens and deals it out: the plan, warnings, and data given by mistake."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Arrays, Csv, Records
from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.data_setup import load_data
from distlaunch_trainer.options import SCRIPT_OPTIONS, Settings, parser
from distlaunch_trainer.step.normalization import replica_count_warnings
from distlaunch_trainer.step.step_timing import input_hint
from distlaunch_trainer.training_state import Progress, TrainingState

from ..conftest import task_of, write_records  # noqa: TID252

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "plan.json").read_text())["cases"]
X = np.zeros((5, 2))


def deal(training, *arguments, validation=None, cluster=None, job_dir="", lines=None, start=None):
    """Return the data as a run deals them out, and its warnings; add to the lines it logs."""
    warnings: list[str] = []
    settings = Settings.of(parser().parse_args(arguments))
    report = SimpleNamespace(warn=warnings.append, log=(lines if lines is not None else []).append)
    data = load_data(
        settings,
        cluster or task_of(0, 1),
        str(job_dir),
        report,
        start=start,
        training=lambda: training,
        validation=lambda: validation,
    )
    return data, warnings


def write(folder, *counts):
    """Write a file of each number of records."""
    folder.mkdir()
    for number, count in enumerate(counts):
        write_records(folder / f"{number}.tfrecord", [b"x"] * count)
    return Records(f"{folder}/*.tfrecord", parse=tf.identity)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_the_plan_is_the_one_of_the_golden_file(case):
    cluster = task_of(0, case["tasks"] * max(1, case["gpus"]))
    data = Arrays(np.zeros((case["examples"], 1)))
    if "plan" not in case:
        with pytest.raises(PlanError) as refused:
            deal(data, *case["arguments"], cluster=cluster)
        assert all(figure in str(refused.value) for figure in case["figures"])
        return
    dealt, warnings = deal(data, *case["arguments"], cluster=cluster)
    plan = dealt.training.plan
    full = max(plan.examples // plan.global_batch, 1)
    rows = [plan.rows(step, rank) for step in range(full) for rank in range(plan.replicas)]
    assert case["plan"] == {
        "replicas": plan.replicas,
        "global_batch": plan.global_batch,
        "shards": plan.shards,
        "steps": plan.steps,
        "rows": [min(rows), max(rows)],
        "last_rows": plan.global_rows(plan.steps - 1),
    }
    assert len(warnings) == ("code" in case)
    assert all(figure in line for line in warnings for figure in case["figures"])


def test_a_global_batch_larger_than_the_data_is_a_warning(tmp_path, cluster):
    training = write(tmp_path / "training", 1437)
    data, warnings = deal(training, "--global-batch-size=100000", cluster=cluster, job_dir=tmp_path)
    assert data.training.plan.steps == 1
    assert warnings == [
        "a global batch of 100,000 is larger than the 1,437 examples: each epoch is one step; "
        "use a smaller one"
    ]
    assert deal(training, "--global-batch-size=1437", cluster=cluster, job_dir=tmp_path)[1] == []


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: Arrays(np.arange(rows)),
        lambda rows: tf.data.Dataset.range(rows).shuffle(9, seed=1).batch(4),
        lambda rows: tf.data.Dataset.range(rows).filter(lambda _: True).batch(4),
    ],
    ids=["arrays", "dataset", "unknown length"],
)
def test_new_data_begin_with_the_epoch_that_a_run_resumes_at(cluster, make):
    """Two epochs of 3 steps were trained on 10 rows; 18 rows of 5 steps follow."""
    batch = "--global-batch-size=4"
    before, _ = deal(make(10), batch, cluster=cluster)
    progress = Progress(6, [{}, {}], epoch_step=6)
    start = TrainingState(before.options, progress)
    data, warnings = deal(make(18), batch, cluster=cluster, start=start)
    assert len([line for line in warnings if "the data have changed from" in line]) == 1
    reader = data.training.reader(cluster, progress, epochs=4)
    reader.begin(6)
    again = replace(progress, step=8, position=reader.position, begun={"on_epoch_begin": {}})
    epochs = [read_steps(reader, 5)]
    reader.end(5)
    reader.begin(11)
    epochs.append(read_steps(reader, 5))
    for epoch in epochs:
        assert sorted(row for rows in epoch for row in rows) == list(range(18))
    resumed, warnings = deal(
        make(18), batch, cluster=cluster, start=TrainingState(data.options, again)
    )
    assert not [line for line in warnings if "changed" in line]
    reader = resumed.training.reader(cluster, again, epochs=4)
    reader.begin(6, 2)
    assert read_steps(reader, 2) == epochs[0][2:4]


def read_steps(reader, steps):
    """Return the rows of the next steps."""
    batches = [next(reader.iterator) for _ in range(steps)]
    return [tf.nest.flatten(data)[0][:rows].numpy().tolist() for data, rows, *_ in batches]


def test_empty_files_among_others_are_a_warning(tmp_path, cluster):
    training = write(tmp_path / "training", 1, 0, 1200, 0, 0, 0)
    validation = write(tmp_path / "validation", 0, 5)
    _, warnings = deal(training, validation=validation, cluster=cluster, job_dir=tmp_path)
    paths = [f"{tmp_path}/training/{number}.tfrecord" for number in (1, 3, 4)]
    assert warnings == [
        f"4 of 6 files are empty ({', '.join(paths)} and 1 more): the others hold 1,201 examples",
        f"1 of 2 files is empty ({tmp_path}/validation/0.tfrecord): the others hold 5 examples",
    ]


def test_missing_numbers_of_a_csv_file_are_a_warning_and_an_error_of_check_numerics(tmp_path):
    (tmp_path / "a.csv").write_text("size,y\n1,0\n,1\n")
    data = Csv(f"{tmp_path}/a.csv", "y")
    _, warnings = deal(data)
    assert warnings[0].startswith(f"{tmp_path}/a.csv line 3, column size: 1 of 2 numbers are")
    with pytest.raises(DataError, match=r"^x\['size'\] has NaN or .* the first is 1 \(from 0\)"):
        deal(data, "--check-numerics")


def test_no_data_are_an_error(tmp_path, cluster):
    empty = write(tmp_path / "training", 0, 0)
    with pytest.raises(PlanError, match=r"^there are no examples to train on"):
        deal(empty, cluster=cluster, job_dir=tmp_path)
    with pytest.raises(DataError, match=r"returned tuple: return Records\(...\)"):
        deal(([1], [2]))
    with pytest.raises(DataError, match=r"returned None: return Records or Arrays"):
        deal(None)
    with pytest.raises(DataError, match=r"^the arrays differ in length: \[4, 5\]: see trainer/"):
        deal(Arrays(X, X[:4]))


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Arrays(X, sample_weight=X[:, 0]), "need y"),
        (lambda: Records("*"), "takes one of parse= and parse_batch="),
        (lambda: Records("*", parse=str, parse_batch=str), "takes one of parse= and parse_batch="),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(create, message):
    with pytest.raises(DataError, match=message):
        create()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "no cache"),
        (("--cache=memory",), "cache in memory"),
        (("--cache=cache",), "cache in cache"),
    ],
    ids=["default", "memory", "folder"],
)
def test_how_data_are_read_is_logged_and_changed_by_options(tmp_path, cluster, options, line):
    lines: list[str] = []
    deal(write(tmp_path / "a", 5, 7), *options, cluster=cluster, job_dir=tmp_path, lines=lines)
    assert lines == [f"input: 12 examples of Records, 2 files, {line}"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (lambda: Arrays(X), "5 examples of Arrays"),
        (lambda: tf.data.Dataset.range(8).batch(2), "the data set of trainer/"),
    ],
)
def test_a_cache_without_effect_is_refused(data, what):
    with pytest.raises(PlanError, match=f"^--cache has no effect on {what}"):
        deal(data(), "--cache=memory")


@pytest.mark.parametrize(
    "create",
    [
        lambda folder: Arrays(X),
        lambda folder: write(folder / "a", 5, 7),
        lambda folder: tf.data.Dataset.range(8).batch(2),
        lambda folder: iter([X, X]),
    ],
    ids=["arrays", "records", "data set", "generator"],
)
def test_advice_on_input_is_accepted_by_the_data(tmp_path, cluster, create):
    def dealt(*arguments):
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        folder.mkdir()
        return deal(create(folder), *arguments, cluster=cluster, job_dir=tmp_path)

    options = dealt("--steps-per-epoch=1")[0].training.source.get("options")
    hint = input_hint({"steps": 1000, "total": 1.0, "input": 0.5}, options)
    for option in re.findall(r"--[a-z-]+", hint):
        dealt(f"{option}=memory")


def test_advice_to_a_script_is_of_options_that_it_has():
    model = keras.Sequential([keras.layers.Dropout(0.5), keras.layers.BatchNormalization()])
    advice = replica_count_warnings(model, 2, synchronized=False)
    advice.append(input_hint({"steps": 1000, "total": 1.0, "input": 0.5}, None))
    known = {f"--{name.replace('_', '-')}" for name in SCRIPT_OPTIONS}
    assert {*re.findall(r"--[a-z-]+", " ".join(advice))} == {"--same-random", "--sync-batch-norm"}
    assert {"--same-random", "--sync-batch-norm"} <= known


@pytest.fixture
def rows():
    return tf.data.Dataset.range(48).map(lambda row: (row, row))


@pytest.mark.parametrize(
    ("batched", "options", "message"),
    [
        (lambda rows: rows.batch(24).repeat(), "", "so an epoch has no length: set --steps-per-"),
        (
            lambda rows: rows.batch(24),
            "--global-batch-size=20",
            "the data set's batch() makes a global batch of 24, and 20 is requested",
        ),
        (lambda rows: Arrays(X), "--shard-policy=data", "is for a tf.data.Dataset: leave it out"),
    ],
)
def test_data_that_cannot_be_sharded_are_refused(rows, batched, options, message):
    with pytest.raises((DataError, PlanError)) as refused:
        deal(batched(rows), *options.split(), cluster=task_of(0, 2))
    assert message in str(refused.value)


def test_a_data_set_without_an_end_takes_steps_per_epoch(rows):
    data, warnings = deal(rows.batch(24).repeat(), "--steps-per-epoch=7", cluster=task_of(0, 2))
    assert data.options.steps_per_epoch == 7
    assert not warnings


def test_validation_data_without_an_end_are_refused(rows):
    with pytest.raises(DataError, match=r"validation data has no end, .* remove .repeat\(\)"):
        deal(rows.batch(24), validation=rows.batch(24).repeat())


def test_steps_that_cover_a_part_of_a_data_set_are_noted(rows):
    _, warnings = deal(rows.batch(5), "--steps-per-epoch=6")
    assert warnings == [
        "--steps-per-epoch 6 covers 60 % of the 10 steps and leaves 4 to the next epoch; "
        "--steps-per-epoch 10 (the default) sees each once"
    ]


def test_batches_of_other_sizes_on_other_tasks_are_refused(rows):
    with pytest.raises(
        DataError, match=r"batches of other sizes on other tasks \(worker:0 has 24\)"
    ):
        deal(rows.batch(24), cluster=task_of(0, 2, is_equal=False))


class Halves(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, number):
        return X[2 * number : 2 * number + 2], X[2 * number : 2 * number + 2, 0]


def test_a_py_dataset_is_data():
    data, warnings = deal(Halves())
    assert (data.training.plan.global_batch, data.options.steps_per_epoch) == (2, 2)
    assert not warnings


def test_generators_and_their_functions_are_data():
    def batches():
        while True:
            yield X, X[:, 0]

    for training in (batches(), batches):
        data, _ = deal(training, "--steps-per-epoch=3")
        assert (data.training.plan.global_batch, data.options.steps_per_epoch) == (5, 3)
    with pytest.raises(DataError, match="generator has no end, or none that is known, so an"):
        deal(batches())
    message = "generator of the validation data has no end, or none .* or return Arrays"
    with pytest.raises(DataError, match=message):
        deal(Arrays(X), validation=batches())


@pytest.mark.parametrize("policy", ["data", "off"])
def test_what_a_number_of_steps_leaves_out_of_a_dataset_is_predicted(policy):
    known = tf.data.Dataset.range(100).batch(10)
    options = ("--steps-per-epoch=4", f"--shard-policy={policy}")
    _, warnings = deal(known, *options)
    assert warnings == [
        "--steps-per-epoch 4 covers 40 % of the 10 steps and leaves 6 to the next epoch; "
        "--steps-per-epoch 10 (the default) sees each once"
    ]
    _, warnings = deal(known, "--steps-per-epoch=25", f"--shard-policy={policy}")
    assert [w for w in warnings if "sees each example 2.5 times in an epoch of 10 steps" in w]
    lines: list[str] = []
    unknown = tf.data.Dataset.range(100).filter(lambda n: n < 50).batch(10)
    _, warnings = deal(unknown, *options, lines=lines)
    assert warnings == []
    assert any("unknown, and so is what --steps-per-epoch 4 leaves out" in line for line in lines)
