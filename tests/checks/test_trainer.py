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

NUMBERS = st.sampled_from(["--epochs", "--shards", "--steps-per-epoch", "--seed"])
FLAGS = ("--resume", "--no-resume", "--sync-batch-norm", "--allow-cpu", "--debug")


@pytest.fixture
def request_(pristine, tmp_path):
    folder = Path(shutil.copytree(pristine, tmp_path / "digits"))
    return LaunchRequest(folder, load_job_file(folder / "distlaunch.yaml"))


def find(request_, module="trainer.task", program=None):
    cluster = request_.job.cluster
    cluster = replace(cluster, chief=replace(cluster.chief, program=program))
    return find_trainer(
        replace(request_, job=replace(request_.job, module=module, cluster=cluster))
    )


def test_the_trainer_has_a_library_beside_its_module(request_):
    trainer = find(request_)
    assert trainer.folder == request_.folder / "trainer"
    assert (trainer.package, trainer.version) == ("trainer", "0.1.0")
    assert trainer.options == {"--epochs": "8"}
    assert trainer.data.is_file()
    assert trainer.model.is_file()
    (request_.folder / "src").mkdir()
    trainer.folder.rename(request_.folder / "src" / "mine")
    assert find(request_, "src.mine.task").package == "src.mine"


@pytest.mark.parametrize("module", ["trainer", "task", "other.task", "trainer.distributed.run"])
def test_another_module_is_another_program(request_, module):
    assert find(request_, module) is None


@pytest.mark.parametrize("text", ["", "__version__ = version()\n", "def (\n", "\0", None])
def test_a_folder_without_a_version_is_no_trainer_library(request_, text):
    file = request_.folder / "trainer" / "distributed" / "__init__.py"
    file.unlink() if text is None else file.write_text(text)
    assert find(request_) is None


def test_the_chief_may_have_its_own_program(request_):
    trainer = find(request_, program=Program(args=("--epochs=3", "--batch-size", "9")))
    assert trainer.options == {"--epochs": "3", "--batch-size": "9"}
    for program in (Program(image="a/b"), Program(command=("sh",)), Program(module="trainer.task")):
        assert find(request_, program=program) is None


@given(
    st.lists(
        st.builds("{}={}".format, NUMBERS, st.integers(1, 99))
        | st.builds("{} {}".format, NUMBERS, st.integers(1, 99))
        | st.sampled_from(FLAGS)
    )
)
def test_options_are_parsed_as_the_trainer_does(arguments):
    words = [part for argument in arguments for part in argument.split()]
    parsed = vars(parser().parse_args(words))
    for name, value in parse_options(words).items():
        expected = parsed[name[2:].replace("-", "_")]
        assert value is expected or value == str(expected)
    names = {argument.split("=")[0].split()[0].replace("--no-", "--") for argument in arguments}
    assert names == set(parse_options(words))


def test_unknown_options_are_parsed_too():
    words = ["--batchsize", "64", "--fast", "--no-fast", "--at", "-1", "left", "--last"]
    expected = {"--batchsize": "64", "--fast": True, "--no-fast": True, "--at": "-1"}
    assert parse_options(words) == {**expected, "--last": True}
