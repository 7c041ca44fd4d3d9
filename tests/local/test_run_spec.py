from __future__ import annotations

from dataclasses import replace

import pytest

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.job.model import Cluster, Job, Machine, Pool, Task
from distlaunch.local.run_spec import Command, Fault, Module, parse_program

CLUSTER = Cluster(Pool(Machine("any")))


def job(*args: str, **env: str) -> Job:
    return Job("digits", CLUSTER, "trainer.task", args, env=env)


@pytest.mark.parametrize("of", [job("--epochs", "5"), job(KERAS_BACKEND="torch"), None])
def test_first_word_without_a_dash_is_a_program(of):
    words = ("python", "any.py", "--workers", "3")
    assert parse_program(of, words, None) == Command(words)


def test_a_module_runs_keras_on_tensorflow_alone():
    with pytest.raises(DistlaunchError) as refused:
        parse_program(job(KERAS_BACKEND="torch"), (), None)
    assert str(refused.value) == (
        "distlaunch.yaml: env.KERAS_BACKEND: a module runs with tensorflow, got 'torch': "
        "remove it, or run a program of your own after '--'"
    )
    assert parse_program(job(KERAS_BACKEND="tensorflow"), (), None) == Module("trainer.task")


@pytest.mark.parametrize("args", [("--job-dir", "a"), ("--job-dir=a",)])
def test_arguments_follow_those_of_the_file_of_which_a_folder_given_before_is_left_out(args):
    by_file = job("--epochs", "5", *args, "--seed", "1")
    kept = ("--epochs", "5", "--seed", "1", "--more")
    assert parse_program(by_file, ("--more",), "b") == Module("trainer.task", kept)
    assert parse_program(by_file, (), None) == Module("trainer.task", by_file.args)


def test_a_script_keeps_its_own_option_for_a_folder():
    by_file = replace(job("--job-dir=own"), script_module="a.task")
    words = ("-m", "a.task", "--job-dir=own", "--more")
    assert parse_program(by_file, ("--more",), "b") == Module("distlaunch_trainer.fit", words)


def test_a_script_runs_under_fit_with_its_arguments():
    by_file = replace(job("--epochs", "5"), script="train.py")
    expected = Module("distlaunch_trainer.fit", ("train.py", "--epochs", "5", "--more"))
    assert parse_program(by_file, ("--more",), None) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("worker:0@step=40", Fault("kill", Task("worker", 0), step=40)),
        ("chief@step=0", Fault("kill", Task("chief"), step=0)),
        ("ps:1@5s", Fault("kill", Task("ps", 1), seconds=5.0)),
        ("chief@0.25s", Fault("kill", Task("chief"), seconds=0.25)),
        ("chief@0s", Fault("kill", Task("chief"), seconds=0.0)),
    ],
)
def test_fault(text, fault):
    parsed = Fault.parse("kill", text)
    assert (parsed, str(parsed)) == (fault, f"--kill {text}")


@pytest.mark.parametrize(
    "text",
    ["", "@5s", "worker:0", "worker:0@", "worker:0@5", "chief@step=", "chief@step=-1",
     "chief@step=1.5", "chief@-5s", "chief@infs", "chief@1e3s", "chief@٣s", "chief@5s\n"],
)  # fmt: skip
def test_malformed_fault(text):
    with pytest.raises(UsageError) as refusal:
        Fault.parse("freeze", text)
    assert str(refusal.value) == (
        f"--freeze: {text!r} is not TASK@step=N or TASK@SECONDSs, as worker:0@step=40 or chief@5s"
    )
