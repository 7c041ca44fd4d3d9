"""The variables that a task gets, from this process's own and the job's."""

from __future__ import annotations

import pytest

from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.local.environment import common_environment
from distlaunch.local.order import Command, Container, LocalOrder, Module

LOOPBACK = "localhost,127.0.0.1,::1"
TORCH = {"KERAS_BACKEND": "torch"}
PROGRAMS = (Module("trainer.task"), Command(("python", "fit.py")), Container("image"))


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Return what tasks get where the shell and the job file set some variables."""

    def common(program, shell=None, **env):
        for name in ("no_grpc_proxy", "no_proxy", "KERAS_BACKEND"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (shell or {}).items():
            monkeypatch.setenv(name, value)
        return common_environment(
            LocalOrder(
                name="digits",
                job_id="1",
                cluster=Cluster(Pool(Machine("local"))),
                program=program,
                work_dir=tmp_path,
                job_dir=str(tmp_path),
                logs_dir=tmp_path,
                env=env,
            )
        )

    return common


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, LOOPBACK),
        ({"no_proxy": ".corp, 10.1.2.3"}, f".corp,10.1.2.3,{LOOPBACK}"),
        ({"no_grpc_proxy": "::1,.corp", "no_proxy": "x"}, "::1,.corp,localhost,127.0.0.1"),
    ],
)
def test_grpc_reaches_this_machine_without_a_proxy(environment, program, given, expected):
    of_job = environment(program, **given)
    assert of_job["no_grpc_proxy"] == expected
    assert of_job.get("no_proxy") == given.get("no_proxy")
    if not isinstance(program, Container):
        assert environment(program, given)["no_grpc_proxy"] == expected


@pytest.mark.parametrize("program", [Module("trainer.task"), Command(("python", "fit.py"))])
def test_keras_runs_on_tensorflow_whatever_the_shell_sets(environment, program):
    assert environment(program)["KERAS_BACKEND"] == "tensorflow"
    assert environment(program, TORCH)["KERAS_BACKEND"] == "tensorflow"


def test_the_job_file_can_set_another_backend_for_a_program(environment):
    assert environment(Command(("python", "fit.py")), TORCH, KERAS_BACKEND="jax") == environment(
        Command(("python", "fit.py"))
    ) | {"KERAS_BACKEND": "jax"}
