from __future__ import annotations

import os
import re

import pytest
import requests
from fake_registry import FakeRegistry

JOB = """\
name: digits
image:
  repository: {repository}
  base: {base}
cluster:
  chief: {{machine: n1-standard-4}}
"""
WITHOUT_DOCKER = {"DOCKER_HOST": "unix:///nowhere.sock"}


@pytest.fixture
def project(tmp_path):
    """Write a project without requirements, of which nothing has to be installed."""

    def write(repository: str, base: str = "127.0.0.1:1/base:1") -> None:
        (tmp_path / "distlaunch.yaml").write_text(JOB.format(repository=repository, base=base))
        (tmp_path / "trainer").mkdir()
        (tmp_path / "trainer/__init__.py").touch()
        (tmp_path / "trainer/task.py").write_text("import sys; print('ran', *sys.argv[1:])\n")
        (tmp_path / "requirements.txt").write_text("\n")

    return write


def test_a_registry_that_is_not_there_is_one_line(cli, project):
    project("127.0.0.1:1/digits")
    done = cli("build")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"distlaunch: error: no registry is listening at 127\.0\.0\.1:1; .*\n", done.stderr
    )


def test_what_is_not_pushed_needs_no_registry(cli, project):
    project("127.0.0.1:1/digits")
    done = cli("build", "--no-push", env=os.environ | WITHOUT_DOCKER)
    assert done.returncode == 1
    assert re.search(r"digits:\w+: nothing is pushed\n", done.stderr)
    assert "ocker" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_image_alone_is_printed(cli, project, engine):
    project(repository := engine.repository(), engine.base)
    env = {**os.environ, **engine.environment}
    built = cli("build", env=env)
    assert built.returncode == 0, built.stderr
    assert re.fullmatch(rf"{repository}@sha256:[0-9a-f]{{64}}\n", built.stdout)
    assert ": the registry has no environment" in built.stderr

    again = cli("build", env=os.environ | WITHOUT_DOCKER)
    assert (again.returncode, again.stdout) == (0, built.stdout)
    assert ": the registry has this image" in again.stderr

    quiet = cli("--quiet", "build", env=os.environ | WITHOUT_DOCKER)
    assert (quiet.stdout, quiet.stderr) == (built.stdout, "")


@pytest.mark.slow
def test_what_is_not_pushed_can_be_run(cli, project, engine):
    project(repository := engine.repository(), engine.base)
    done = cli("build", "--no-push", env={**os.environ, **engine.environment})
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{repository}:[0-9a-f]+\n", done.stdout)
    assert ": nothing is pushed" in done.stderr
    ran = engine.docker("run", "--rm", done.stdout.strip(), "--epochs", "5")
    assert ran.stdout == "ran --epochs 5\n"
    listed = requests.get(f"http://{repository.replace('/', '/v2/')}/tags/list", timeout=10)
    assert listed.status_code == 404


def test_problems_of_the_dockerfile_are_printed(cli, project, tmp_path):
    with FakeRegistry(read_only=True) as registry:
        project(f"{registry.host}/digits")
        (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY src /app\nCMD ["python", "a"]\n')
        done = cli("build", "--set", "args=[--epochs=3]", env=os.environ | WITHOUT_DOCKER)
    assert done.returncode == 1
    assert "warning: Dockerfile:2: there is no src in the project's folder; " in done.stderr
    assert "warning: Dockerfile:3: args replace CMD 'python a', so that the " in done.stderr
