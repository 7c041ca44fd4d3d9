"""The variables that a task gets, from this process's own and the job's."""

from __future__ import annotations

import os

import pytest

from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.local.run_folder import RunFolder
from distlaunch.local.run_plan import RunSpec, TaskProgram
from distlaunch.local.task_plan import common_environment

LOOPBACK = "localhost,127.0.0.1,::1"
TORCH = {"KERAS_BACKEND": "torch"}
PROGRAMS = (
    TaskProgram("module", ("trainer.task",)),
    TaskProgram("command", ("python", "fit.py")),
    TaskProgram("image", ("image",)),
)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Return what tasks get where the shell and the job file set some variables."""

    def common(program, shell=(), **env):
        monkeypatch.setattr(os, "environ", dict(shell))
        spec = RunSpec(
            folder=RunFolder(tmp_path),
            cluster=Cluster(Pool(Machine("local"))),
            program=program,
            work_dir=tmp_path,
            env=env,
        )
        return common_environment(spec)

    return common


@pytest.mark.parametrize(
    ("given", "no_proxy", "no_grpc_proxy"),
    [
        ({}, LOOPBACK, LOOPBACK),
        ({"no_proxy": ".corp, 10.1.2.3"}, *[f".corp,10.1.2.3,{LOOPBACK}"] * 2),
        ({"NO_PROXY": ".corp"}, *[f".corp,{LOOPBACK}"] * 2),
        ({"no_proxy": "a", "NO_PROXY": "b"}, *[f"a,{LOOPBACK}"] * 2),
        ({"no_proxy": "*"}, "*", f"*,{LOOPBACK}"),
        (
            {"no_grpc_proxy": "::1,.corp", "no_proxy": "a"},
            f"a,{LOOPBACK}",
            "::1,.corp,localhost,127.0.0.1",
        ),
    ],
)
def test_tasks_reach_each_other_without_a_proxy(environment, given, no_proxy, no_grpc_proxy):
    by_file = [environment(program, **given) for program in PROGRAMS]
    by_shell = [environment(program, shell=given) for program in PROGRAMS[:2]]
    for variables in by_file + by_shell:
        assert (variables["no_proxy"], variables["no_grpc_proxy"]) == (no_proxy, no_grpc_proxy)
        assert variables.get("NO_PROXY") == given.get("NO_PROXY")


def test_sets_have_one_order_in_all_tasks(environment):
    for program in PROGRAMS:
        assert environment(program)["PYTHONHASHSEED"] == "0"
        assert environment(program, PYTHONHASHSEED="7")["PYTHONHASHSEED"] == "7"


def test_keras_runs_on_tensorflow_unless_the_job_file_sets_another_backend(environment):
    for program in PROGRAMS[:2]:
        assert environment(program, shell=TORCH)["KERAS_BACKEND"] == "tensorflow"
    variables = environment(PROGRAMS[1], shell=TORCH, KERAS_BACKEND="jax")
    assert variables["KERAS_BACKEND"] == "jax"
