from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks.trainer import find_trainer, parse_options
from distlaunch.job.load import load_job_file
from distlaunch.job.model import Program
from distlaunch.submit.plan import LaunchRequest

sys.path.insert(0, str(Path(__file__).parents[2] / "trainer_skeleton" / "base"))
from trainer.task import parser

sys.path.pop(0)

NUMBERS = ("--epochs", "--shards", "--steps-per-epoch", "--shuffle", "--checkpoint-every", "--seed")
FLAGS = (
    *("--resume", "--no-resume", "--sync-batch-norm"),
    *("--allow-cpu", "--gpu-memory-growth", "--debug"),
)


@pytest.fixture
def order(pristine, tmp_path):
    folder = Path(shutil.copytree(pristine, tmp_path / "digits"))
    return LaunchRequest(folder, load_job_file(folder / "distlaunch.yaml"))


def told(order, **changes):
    return find_trainer(replace(order, job=replace(order.job, **changes)))


def with_chief(order, program):
    cluster = order.job.cluster
    return told(order, cluster=replace(cluster, chief=replace(cluster.chief, program=program)))


def test_the_trainer_is_known_by_its_engine_room(order):
    trainer = find_trainer(order)
    assert trainer.folder == order.folder / "trainer"
    assert trainer.package == "trainer"
    assert trainer.version == "0.1.0"
    assert trainer.options == {"--epochs": "8"}
    assert trainer.data.is_file()
    assert trainer.model.is_file()


def test_it_may_lie_deeper(order):
    (order.folder / "src").mkdir()
    (order.folder / "trainer").rename(order.folder / "src" / "mine")
    trainer = told(order, module="src.mine.task")
    assert trainer.package == "src.mine"
    assert trainer.folder == order.folder / "src" / "mine"


@pytest.mark.parametrize("module", ["trainer", "task", "other.task", "trainer.distributed.run"])
def test_another_module_is_another_program(order, module):
    assert told(order, module=module) is None


@pytest.mark.parametrize(
    "text", ["", "__version__ = version()\n", "__version__ = 1\n", "def (\n", "\0", None]
)
def test_a_folder_without_a_version_is_another_s(order, text):
    file = order.folder / "trainer" / "distributed" / "__init__.py"
    file.unlink() if text is None else file.write_text(text)
    assert find_trainer(order) is None


def test_a_program_of_the_chief_s_own_counts(order):
    trainer = with_chief(order, Program(args=("--epochs=3", "--batch-size", "9")))
    assert trainer.options == {"--epochs": "3", "--batch-size": "9"}


@pytest.mark.parametrize(
    "program",
    [Program(image="gcr.io/x/y"), Program(command=("bash",)), Program(module="trainer.task")],
)
def test_what_the_chief_runs_may_be_another_program(order, program):
    assert with_chief(order, program) is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(NUMBERS), st.integers(1, 99)).map("{0[0]}={0[1]}".format),
            st.tuples(st.sampled_from(NUMBERS), st.integers(1, 99)).map("{0[0]} {0[1]}".format),
            st.sampled_from(FLAGS),
        )
    )
)
def test_options_are_what_the_trainer_takes_them_for(words):
    split = [part for word in words for part in word.split()]
    taken = vars(parser().parse_args(split))
    for name, value in parse_options(split).items():
        said = taken[name[2:].replace("-", "_")]
        assert value is said or value == str(said)
    assert {word.split("=")[0].split()[0].replace("--no-", "--") for word in words} == set(
        parse_options(split)
    )


def test_options_that_the_trainer_does_not_have_are_there_too():
    words = ["--batchsize", "64", "--fast", "--no-fast", "--at", "-1", "left", "--last"]
    assert parse_options(words) == {
        "--batchsize": "64",
        "--fast": True,
        "--no-fast": True,
        "--at": "-1",
        "--last": True,
    }
