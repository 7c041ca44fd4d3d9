from __future__ import annotations

import socket

import pytest

from distlaunch.checks.preflight import check_image
from distlaunch.job.load import load_job
from distlaunch.submit.plan import LaunchRequest

FILE = """\
name: digits
image: {{repository: "localhost:{port}/unused/digits", requirements: requirements.txt}}
cluster: {{chief: {{machine: n1-standard-4}}}}
"""


@pytest.fixture
def project(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed again
    (tmp_path / "distlaunch.yaml").write_text(FILE.format(port=port))
    (tmp_path / "requirements.txt").write_text("six==1.16.0\n")
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "task.py").write_text("print(1)\n")
    return tmp_path


def check(project, *, offline=True, sets=()):
    return check_image(
        LaunchRequest(project, load_job(project, overrides=sets).job), offline=offline
    )


FILES = {"requirements.txt", "trainer/__init__.py", "trainer/task.py"}


def test_an_unreachable_registry_is_a_warning(project):
    image = check(project, offline=False)
    [problem] = image.problems
    assert (problem.code, problem.severity) == ("registry-unreachable", "warning")
    assert image.plan
    assert not image.registry_contacted
    assert image.files == FILES


def test_a_large_context_is_a_warning_with_its_largest_file(project):
    (project / "data").mkdir()
    with (project / "data/all.bin").open("wb") as file:
        file.truncate(60_000_000)
    [problem] = check(project, sets=("image.include=[data]",)).problems
    assert (problem.code, problem.severity) == ("context-large", "warning")
    assert "data/all.bin" in problem.what
