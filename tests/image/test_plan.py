"""Planning an image by comparing it with the registry, without Docker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import projects  # what tests/image/conftest.py has imported
import pytest
import registries

from distlaunch.errors import ImageError
from distlaunch.image import execute_plan, plan_image
from distlaunch.render.templates import recipe

if TYPE_CHECKING:
    from distlaunch.image.reference import Reference

NO_DOCKER = "unix:///nowhere.sock"


@pytest.fixture(autouse=True)
def without_docker(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", NO_DOCKER)


@pytest.fixture
def base(registry) -> Reference:
    reference = registries.fresh(registry, "base", "1")
    registries.Recipe(config={"Env": ["PATH=/bin"], "Cmd": ["sh"]}).push(reference)
    return reference


@pytest.fixture
def folder(tmp_path):
    return projects.project(tmp_path / "digits")


@pytest.fixture
def job(registry, base):
    return projects.job(registries.fresh(registry).name, str(base))


def push_environment(job, folder) -> None:
    """Put an image where the environment is looked for."""
    plan = plan_image(job, folder, recipe)
    registries.Recipe().push(plan.reference.with_tag(plan.inputs.environment.tag))


def test_an_image_that_the_job_names_is_used_unchanged(folder):
    uri = "us-docker.pkg.dev/p/r/i:1"
    plan = plan_image(projects.job(None, uri=uri), folder, recipe)
    assert (plan.strategy, plan.uri, plan.context) == ("use", uri, None)
    built = execute_plan(plan, print)
    assert (built.uri, built.digest, built.strategy) == (uri, None, "use")


def test_without_an_environment_it_is_to_be_built(job, folder):
    plan = plan_image(job, folder, recipe)
    assert (plan.strategy, plan.uri, plan.repository) == ("engine", None, job.image.repository)
    assert "no environment of this base image and these requirements" in plan.reason


def test_code_is_appended_and_then_there_is_nothing_to_do(job, folder):
    push_environment(job, folder)
    plan = plan_image(job, folder, recipe)
    assert (plan.strategy, plan.uri) == ("append", None)
    built = execute_plan(plan, lambda _: None)
    assert built.uri == f"{job.image.repository}@{built.digest}"
    assert built.strategy == "append"
    config = projects.image(built.uri).config["config"]
    assert config["Entrypoint"] == ["python", "-m", "trainer.task"]
    assert config["WorkingDir"] == "/app"
    files = ("trainer/__init__.py", "trainer/task.py", "requirements.txt")
    assert set(projects.files(built.uri)) == {f"app/{path}" for path in files}
    again = plan_image(job, folder, recipe)
    assert (again.strategy, again.uri) == ("nothing", built.uri)
    done = execute_plan(again, lambda _: None)
    assert (done.uri, done.strategy) == (built.uri, "nothing")


def test_a_line_of_code_is_another_image_on_the_same_environment(job, folder):
    before = plan_image(job, folder, recipe)
    (folder / "trainer/task.py").write_text("print(1)")
    after = plan_image(job, folder, recipe)
    assert before.reference != after.reference
    assert before.inputs.environment.tag == after.inputs.environment.tag


def test_an_environment_that_is_gone_is_built_again(job, folder, registry):
    plan = plan_image(job, folder, recipe)
    registries.Recipe().push(plan.reference)
    assert plan_image(job, folder, recipe).strategy == "engine"


def test_the_users_own_dockerfile_is_for_docker(job, folder, base):
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY . /x\n")
    plan = plan_image(job, folder, recipe)
    assert (plan.strategy, plan.inputs.environment) == ("engine", None)
    registries.Recipe().push(plan.reference)
    assert plan_image(job, folder, recipe).strategy == "nothing"


def test_without_a_repository_there_is_nowhere_to_push_to(folder):
    with pytest.raises(ImageError, match=r"no image repository set: add image\.repository"):
        plan_image(projects.job(None), folder, recipe)


def test_a_base_that_is_not_there_is_named(registry, folder):
    base = registries.fresh(registry, "base", "1")
    with pytest.raises(ImageError, match=f"base image {base} does not exist; check image.ba"):
        plan_image(projects.job(registries.fresh(registry).name, str(base)), folder, recipe)


def test_an_image_that_is_not_pushed_needs_no_registry(folder):
    plan = plan_image(projects.job(None, "127.0.0.1:1/gone:1"), folder, recipe, push=False)
    assert (plan.strategy, plan.repository) == ("engine", "distlaunch/digits")
    assert (
        plan_image(
            projects.job("127.0.0.1:1/x", "127.0.0.1:1/gone:1"), folder, recipe, push=False
        ).uri
        is None
    )


def test_without_docker_its_remedy_is_reported(job, folder, base):
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY . /x\n")
    with pytest.raises(ImageError, match=f"Docker is not running at {NO_DOCKER}; start Docker"):
        execute_plan(plan_image(job, folder, recipe), print)


APPEND = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import projects
from distlaunch.image import execute_plan, plan_image
from distlaunch.render.templates import recipe
plan = plan_image(projects.job(*sys.argv[2:4]), Path(sys.argv[4]), recipe)
built = execute_plan(plan, lambda _: None)
print(json.dumps([built.strategy, sorted(sys.modules)]))
"""


def test_appending_does_not_import_docker(job, folder, base, checkout):
    push_environment(job, folder)
    words = [checkout / "tests/image", job.image.repository, str(base), folder]
    done = subprocess.run(
        [sys.executable, "-c", APPEND, *words], capture_output=True, text=True, check=True
    )
    way, modules = json.loads(done.stdout)
    assert way == "append"
    assert not {"docker", "google.auth", "tensorflow"} & set(modules)
