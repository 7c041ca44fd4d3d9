from __future__ import annotations

import pytest


def refusals(bundled, *overrides):
    problems = bundled.problems(*overrides)
    return [each for each in problems if each.code == "argument-unknown"]


def tuned(parameter):
    return f"tuning={{metric: loss, goal: minimize, trials: 4, parameters: {{{parameter}}}}}"


@pytest.mark.parametrize(
    "override",
    [
        "args=[]",
        "args=[--epochs=3, --batch-size, '32']",
        "args=[--resume, --no-resume, --sync-batch-norm]",
        "args=[--learning-rate, '1e-3', --precision=mixed_bfloat16, --job-dir=gs://a/b]",
        "args=[--shards=10000, '--seed=4294967295', --epochs=2147483647, --help]",
        tuned("learning-rate: {type: double, min: 0.001, max: 0.1, scale: log}"),
        # A problem of `tuning`:
        tuned("learning-rate: {type: double, min: 0, max: 0.1, scale: log}"),
        tuned("epochs: {type: integer, min: 1, max: 8}"),
        tuned("batch-size: {type: double, values: [16, 32]}"),
        tuned("batch-size: {values: ['16', '32']}"),
    ],
)
def test_arguments_and_tuned_parameters_that_the_trainer_takes(override, bundled):
    assert refusals(bundled, override) == []


@pytest.mark.parametrize(
    ("args", "what", "remedy"),
    [
        ("--epoch=3", "the trainer has no option --epoch", "did you mean '--epochs'?"),
        ("--batch_size, '32'", "no option --batch_size", "did you mean '--batch-size'?"),
        ("--momentum=3", "no option --momentum", "it has --allow-cpu, --batch-size, "),
        ("--epochs, --resume", "--epochs: expected one argument", "--help"),
        ("--sync-batch-norm=yes", "--sync-batch-norm: ignored explicit argument", "--help"),
        ("train", "unexpected positional argument 'train'", "write --NAME=train"),
        ("--epochs=many", "--epochs: invalid whole number value: 'many'", "--help"),
        ("--shuffle=-1", "--shuffle: must be 0 or more, got -1", "--help"),
        ("--learning-rate, '-1'", "--learning-rate: must be a number above 0, got -1", "--help"),
        ("--precision=half", "--precision: invalid choice: 'half'", "--help"),
    ],
)
def test_arguments_that_the_trainer_refuses(args, what, remedy, bundled):
    [problem] = refusals(bundled, f"args=[{args}]")
    assert problem.where == "args"
    assert what in problem.what
    assert remedy in problem.remedy


def test_all_arguments_are_reported_at_once(bundled):
    assert len(refusals(bundled, "args=[--epoch=3, --shards=0, --batch-size=1, --x]")) == 3


@pytest.mark.parametrize(
    ("parameter", "what"),
    [
        ("momentum: {type: double, min: 0, max: 1}", "the trainer has no option --momentum"),
        ("epochs: {type: double, min: 1, max: 8}", "--epochs: invalid whole number value: '1."),
        ("epochs: {type: integer, min: 0, max: 8}", "--epochs: must be 1 or more, got 0"),
        ("shards: {type: integer, min: 1, max: 20000}", "must be 10000 or less, got 20000"),
        ("precision: {values: [float32, half]}", "invalid choice: 'half'"),
        ("learning-rate: {type: double, min: 0, max: 1}", "must be a number above 0, got 0"),
        ("sync-batch-norm: {values: ['true']}", "ignored explicit argument 'true'"),
    ],
)
def test_tuned_parameters_that_the_trainer_refuses(parameter, what, bundled):
    [problem] = refusals(bundled, tuned(parameter))
    assert problem.where == f"tuning.parameters.{parameter.partition(':')[0]}"
    assert what in problem.what
