from __future__ import annotations

import socket

import pytest

from distlaunch.checks.image_plan import check_image
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


def made(project, *, offline=True, sets=()):
    return check_image(
        LaunchRequest(project, load_job(project, overrides=sets).job), offline=offline
    )


FILES = {"requirements.txt", "trainer/__init__.py", "trainer/task.py"}


def test_offline_the_files_are_known_and_nobody_is_asked(project):
    making = made(project)
    assert (making.files, making.problems) == (FILES, ())
    assert making.plan


def test_a_registry_that_does_not_answer_is_a_warning_and_the_files_are_known(project):
    making = made(project, offline=False)
    [problem] = making.problems
    assert (problem.code, problem.severity) == ("registry-unreachable", "warning")
    assert making.plan
    assert not making.registry_contacted
    assert making.files == FILES


def test_a_key_keeps_the_image_from_being_made_and_hides_no_other_file(project):
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA" * 8
    (project / "trainer/key.txt").write_text(key)
    making = made(project)
    [problem] = making.problems
    assert (problem.code, problem.severity) == ("image-refused", "error")
    assert problem.where == "trainer/key.txt"
    assert problem.remedy
    assert making.files == {*FILES, "trainer/key.txt"}


def test_requirements_that_are_missing_are_named(project):
    (project / "requirements.txt").unlink()
    [problem] = made(project).problems
    assert problem.code == "image-refused"
    assert "requirements.txt" in problem.where + problem.what


def test_a_job_with_an_image_of_its_own_leaves_the_project_alone(project):
    making = made(project, sets=("image.uri=x/y:1",))
    assert (making.files, making.problems) == (None, ())
    assert making.plan
    assert making.plan.strategy == "use"


def test_a_large_context_is_told_with_what_makes_it_so(project):
    (project / "data").mkdir()
    with (project / "data/all.bin").open("wb") as file:
        file.truncate(60_000_000)
    [problem] = made(project, sets=("image.include=[data]",)).problems
    assert (problem.code, problem.severity) == ("context-large", "warning")
    assert "data/all.bin" in problem.what


def test_requirements_that_cannot_go_into_an_image_hide_no_file(project):
    (project / "requirements.txt").write_text("-e .\n")
    making = made(project)
    assert [problem.code for problem in making.problems] == ["image-refused"]
    assert making.files == FILES


def test_a_module_that_is_not_there_is_told_as_such(project):
    making = made(project, sets=("module=trainr.task",))
    [problem] = making.problems
    assert (problem.code, problem.where) == ("module-missing", "module")
    assert making.files is None
