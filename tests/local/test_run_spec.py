from __future__ import annotations

from dataclasses import replace

import pytest

from distlaunch.errors import DistlaunchError
from distlaunch.job.model import Cluster, Job, Machine, Pool
from distlaunch.local.run_spec import Command, Module, parse_program

JOB = Job("digits", Cluster(Pool(Machine("any"))), "trainer.task", ("--epochs", "5"))


def job(*args: str) -> Job:
    return Job("digits", JOB.cluster, JOB.module, args)


def test_arguments_follow_those_of_the_file():
    words = ("--epochs", "3", "more")
    assert parse_program(JOB, words, None) == Module("trainer.task", ("--epochs", "5", *words))
    assert parse_program(JOB, (), None) == Module("trainer.task", ("--epochs", "5"))


@pytest.mark.parametrize("of", [JOB, None])
def test_first_word_without_a_dash_is_a_program(of):
    words = ("python", "any.py", "--workers", "3")
    assert parse_program(of, words, None) == Command(words)


def test_a_module_runs_keras_on_tensorflow_alone():
    env = {"KERAS_BACKEND": "torch"}
    torch = replace(JOB, env=env)
    with pytest.raises(DistlaunchError) as refused:
        parse_program(torch, (), None)
    assert str(refused.value) == (
        "distlaunch.yaml: env.KERAS_BACKEND: a module runs with tensorflow, got 'torch': "
        "remove it, or run a program of your own after '--'"
    )
    assert parse_program(torch, ("python", "any.py"), None) == Command(("python", "any.py"))
    env["KERAS_BACKEND"] = "tensorflow"
    assert parse_program(torch, (), None) == parse_program(JOB, (), None)


def test_option_of_ours_in_the_file_is_the_programs():
    assert parse_program(job("--workers", "3"), (), None) == Module(
        "trainer.task", ("--workers", "3")
    )


def test_nothing_to_run():
    with pytest.raises(DistlaunchError, match=r"^no distlaunch.yaml here: 'distlaunch init' makes"):
        parse_program(None, ("--epochs", "3"), None)


@pytest.mark.parametrize("args", [("--job-dir", "a"), ("--job-dir=a",)])
def test_chosen_folder_takes_the_place_of_the_files(args):
    by_file = job("--epochs", "5", *args, "--seed", "1")
    kept = ("--epochs", "5", "--seed", "1")
    assert parse_program(by_file, (), "b") == Module("trainer.task", kept)
    assert parse_program(by_file, (), None) == Module("trainer.task", by_file.args)
