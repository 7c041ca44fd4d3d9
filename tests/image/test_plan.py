"""Planning an image by comparing it with the registry, without Docker."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import images
import pytest

from distlaunch import resources
from distlaunch.errors import ImageError
from distlaunch.image import execute_plan, plan_image
from distlaunch.image.context import ContextFile
from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.image.plan import pin_bases, split_environment, with_secrets
from distlaunch.image.recipe import LINK_CUDA
from distlaunch.image.registry.manifests import ImageSettings
from distlaunch.image.trainer_wheel import trainer_wheel

if TYPE_CHECKING:
    from distlaunch.image.reference import Reference

pytestmark = pytest.mark.usefixtures("without_docker")


@pytest.fixture
def base(registry) -> Reference:
    reference = images.fresh(registry, "base", "1")
    images.push(reference, config={"Env": ["PATH=/bin"], "Cmd": ["sh"]})
    return reference


@pytest.fixture
def folder(tmp_path):
    return images.project(tmp_path / "digits")


@pytest.fixture
def job(registry, base):
    return images.job(images.fresh(registry).name, base)


def push_environment(job, folder) -> None:
    """Put an image where the environment is looked for."""
    plan = plan_image(job, folder)
    images.push(plan.reference.with_tag(plan.inputs.environment.tag))


def test_an_image_that_the_job_names_is_used_unchanged(folder):
    uri = "us-docker.pkg.dev/p/r/i:1"
    plan = plan_image(images.job(None, uri=uri), folder)
    assert (plan.strategy, plan.uri, plan.context) == ("use", uri, None)
    built = execute_plan(plan, print)
    assert built == uri


def test_without_an_environment_it_is_built(job, folder):
    plan = plan_image(job, folder)
    assert (plan.strategy, plan.uri) == ("docker", None)
    assert "no environment of this base image and these requirements" in plan.reason
    images.push(plan.reference)  # code on an environment that is gone
    assert plan_image(job, folder).strategy == "docker"


def test_only_changed_code_is_appended(job, folder, fake):
    push_environment(job, folder)
    plan = plan_image(job, folder)
    assert (plan.strategy, plan.uri) == ("append", None)
    fake.requests.clear()
    built = execute_plan(plan, lambda _: None)
    assert fake.count("PUT", "digest=") == 2  # the code and the config
    assert sum(request.length for request in fake.requests) < 20_000
    assert built.startswith(f"{job.image.repository}@sha256:")
    config = images.image(built).config["config"]
    assert config["Entrypoint"] == ["python", "-m", "trainer.task"]
    assert config["WorkingDir"] == "/app"
    files = ("trainer/__init__.py", "trainer/task.py", "requirements.txt")
    assert set(images.files(built)) == {f"app/{path}" for path in files}
    again = plan_image(job, folder)
    assert (again.strategy, again.uri) == ("nothing", built)
    assert execute_plan(again, lambda _: None) == built
    (folder / "trainer/task.py").write_text("print(1)")
    changed = plan_image(job, folder)
    assert (changed.strategy, changed.reference != plan.reference) == ("append", True)


TRAINS = "from distlaunch_trainer import Run\n"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A trainer package to change."""
    package = tmp_path / "installed/distlaunch_trainer"
    package.mkdir(parents=True)
    (package / "run.py").write_text("Run = 1\n")
    monkeypatch.setattr(resources, "trainer_package", lambda: package)
    trainer_wheel.cache_clear()
    yield package
    trainer_wheel.cache_clear()


def test_the_trainer_package_belongs_to_the_environment(job, folder, fake, installed):
    """A change of the code does not send it again, and its own change is another environment."""
    (folder / "trainer/task.py").write_text(TRAINS)
    push_environment(job, folder)
    plan = plan_image(job, folder)
    [wheel] = set(plan.inputs.environment.files) - set(plan.inputs.environment.project_files)
    assert wheel.path.startswith(".distlaunch/wheels/distlaunch_trainer-")
    built = execute_plan(plan, lambda _: None)
    assert not [path for path in images.files(built) if path.endswith(".whl")]
    (folder / "trainer/task.py").write_text(TRAINS + "print(1)\n")
    assert plan_image(job, folder).strategy == "append"
    (installed / "run.py").write_text("Run = 2\n")
    trainer_wheel.cache_clear()
    changed = plan_image(job, folder)
    assert changed.strategy == "docker"
    assert changed.inputs.environment.tag != plan.inputs.environment.tag


def test_an_image_has_the_trainer_package_only_if_it_needs_it(job, folder):
    def wheel():
        return plan_image(job, folder).inputs.recipe.wheel

    assert wheel() is None
    (folder / "trainer/model.py").write_text("def f():\n    import distlaunch_trainer as d\n")
    assert wheel() is not None
    (folder / "distlaunch_trainer").mkdir()
    (folder / "distlaunch_trainer/__init__.py").touch()  # from `eject`
    assert wheel() is None
    assert "distlaunch_trainer/__init__.py" in {
        file.path for file in plan_image(job, folder).context.files
    }


def test_the_wheel_of_the_trainer_package_has_the_same_bytes_everywhere(installed):
    first = trainer_wheel()
    (installed / "__pycache__").mkdir()
    (installed / "__pycache__/run.pyc").write_text("x")
    os.utime(installed / "run.py", (0, 0))
    trainer_wheel.cache_clear()
    assert trainer_wheel() == first
    assert hashlib.sha256(first.content).hexdigest() == first.digest
    (installed / "run.py").write_text("Run = 2\n")
    trainer_wheel.cache_clear()
    assert trainer_wheel().digest != first.digest


def test_the_users_own_dockerfile_is_for_docker(job, folder, base, installed):
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY . /x\n")
    assert plan_image(job, folder).inputs.recipe.wheel is None
    (folder / "trainer/task.py").write_text(TRAINS)
    plan = plan_image(job, folder)
    assert (plan.strategy, plan.inputs.environment) == ("docker", None)
    assert plan.inputs.recipe.wheel in plan.inputs.files
    with pytest.raises(ImageError, match=r"Docker is not running|no docker command"):
        execute_plan(plan, print)
    images.push(plan.reference)
    assert plan_image(job, folder).strategy == "nothing"
    (installed / "run.py").write_text("Run = 2\n")
    trainer_wheel.cache_clear()
    assert plan_image(job, folder).reference != plan.reference


def test_a_missing_repository_and_a_missing_base_are_reported(registry, folder):
    with pytest.raises(ImageError, match=r"no image repository set: add image\.repository"):
        plan_image(images.job(None), folder)
    base = images.fresh(registry, "base", "1")
    with pytest.raises(ImageError, match=f"base image {base} does not exist; check image.ba"):
        plan_image(images.job(images.fresh(registry).name, base), folder)


def test_an_image_that_is_not_pushed_needs_no_registry(folder):
    plan = plan_image(images.job(None, "127.0.0.1:1/gone:1"), folder, push=False)
    assert (plan.strategy, plan.reference.name) == ("docker", "distlaunch/digits")
    assert plan.uri is None


def test_a_full_disk_is_reported(job, folder, monkeypatch):
    push_environment(job, folder)
    plan = plan_image(job, folder)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "absent"))
    with pytest.raises(ImageError, match=r"cannot be written to .*/absent \(no such file"):
        execute_plan(plan, print)


APPEND = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
import images
from distlaunch.image import execute_plan, plan_image
from distlaunch.image.recipe import read_recipe
plan = plan_image(images.job(*sys.argv[1:3]), Path(sys.argv[3]))
execute_plan(plan, lambda _: None)
print(plan.strategy.value, *sys.modules)
"""


def test_appending_does_not_import_docker(job, folder, base, checkout):
    push_environment(job, folder)
    words = [job.image.repository, str(base), folder, checkout / "tests", checkout / "tests/image"]
    command = [sys.executable, "-c", APPEND, *words]
    strategy, *modules = subprocess.check_output(command, text=True).split()
    assert strategy == "append"
    assert {"docker", "google.auth", "tensorflow"}.isdisjoint(modules)


# The environment of a Dockerfile

DOCKERFILE = """\
FROM python:3.12 AS environment
ENV A=1
COPY ["requirements.txt", "/environment/requirements.txt"]
RUN sed -i s/a/b/ /environment/requirements.txt
RUN python -m pip install --no-cache-dir -r /environment/requirements.txt
"""
LAST = """\
WORKDIR /app
FROM environment
COPY . .
ENTRYPOINT ["python", "-m", "trainer.task"]
"""
DOCKERFILE += LAST
DIGEST = "python@sha256:" + "0" * 64
FILES = ("a.txt", "requirements.txt", "trainer/task.py", "trainer/data/x.csv")


def files(**digests: str) -> tuple[ContextFile, ...]:
    given = {path: digests.get(path.partition(".")[0], "0") for path in FILES}
    return tuple(ContextFile(path, 0o644, 1, digest) for path, digest in given.items())


def tag(text: str = DOCKERFILE, base: str = DIGEST, **digests: str) -> str:
    environment = split_environment(
        pin_bases(read_dockerfile(text), {"python:3.12": base}), files(**digests)
    )
    assert environment is not None
    return environment.tag


def test_the_tag_is_that_of_the_environment_alone():
    for before, after in (
        ("ENV A=1", "# a comment\n\nENV A=1"),
        ("trainer.task", "trainer.other"),
        ("FROM environment", "# this image's own\nFROM environment"),
    ):
        assert tag(DOCKERFILE.replace(before, after)) == tag()
    others = {
        tag(),
        tag(base=DIGEST.replace("0", "1")),
        tag(requirements="1"),
        tag(DOCKERFILE.replace("A=1", "A=2")),
        tag(DOCKERFILE.replace("--no-cache-dir", "--no-deps")),
        tag("ARG X=1\n" + DOCKERFILE),
    }
    assert len(others) == 6


@pytest.mark.parametrize(
    ("sources", "paths"),
    [
        ("requirements.txt", ("requirements.txt",)),
        ("*.txt", ("a.txt", "requirements.txt")),
        ("trainer", ("trainer/task.py", "trainer/data/x.csv")),
        ("t*/*.py", ("trainer/task.py",)),
        (".", FILES),
        ("--chown=1:1 /a.txt", ("a.txt",)),
        ("--from=other a.txt", ()),
        ("https://example.com/a.txt", ()),
    ],
)
def test_what_the_environment_copies_belongs_to_it(sources, paths):
    text = f"FROM a AS environment\nCOPY {sources} /x/\n{LAST}"
    environment = split_environment(read_dockerfile(text), files())
    assert tuple(file.path for file in environment.files) == paths


def test_code_is_appended_to_a_stage_at_its_workdir():
    for text in (DOCKERFILE, DOCKERFILE.replace("COPY . .", 'COPY [".", "."]')):
        code = split_environment(read_dockerfile(text), ()).code
        assert code == ImageSettings(("python", "-m", "trainer.task"), workdir="/app")
    elsewhere = DOCKERFILE.replace("/app", "/$A").replace("trainer.task", "x")
    code = split_environment(read_dockerfile(elsewhere), ()).code
    assert code == ImageSettings(("python", "-m", "x"), workdir="/1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("COPY . .", "COPY . .\nRUN make"),
        ("COPY . .", "COPY trainer trainer"),
        ("COPY . .", "COPY . /elsewhere"),
        ("COPY . .", 'COPY --chown=1:1 [".", "."]'),
        ("COPY . .", ""),
        ("COPY . .", "USER daemon\nCOPY . ."),
        ('ENTRYPOINT ["python", "-m", "trainer.task"]', "ENTRYPOINT python -m trainer.task"),
        ('ENTRYPOINT ["python", "-m", "trainer.task"]', ""),
        ("WORKDIR /app", ""),
        ("WORKDIR /app", "WORKDIR /$B"),
        ("FROM environment", "FROM python:3.12"),
        ("AS environment", "AS environment\nFROM x AS y"),
    ],
)
def test_a_last_stage_that_does_more_than_add_code(before, after):
    assert before in DOCKERFILE
    assert split_environment(read_dockerfile(DOCKERFILE.replace(before, after)), ()) is None


def test_stages_before_it_belong_to_it():
    text = "FROM b AS tools\nRUN make\n" + DOCKERFILE
    environment = split_environment(read_dockerfile(text), files())
    assert environment.dockerfile.bases == ("b", "python:3.12")
    assert environment.dockerfile.text == text.removesuffix(LAST) + "WORKDIR /app\n"
    assert tag(text) != tag()


def test_secrets_are_mounted_into_pip_steps_alone():
    text = DOCKERFILE.replace("WORKDIR", f"RUN {LINK_CUDA}\nWORKDIR")
    text = text.replace("ENV A=1", 'RUN --network=host ["pip", "install", "a b"]\nRUN echo pip')
    environment = split_environment(read_dockerfile(text), files())
    mounted = with_secrets(environment.dockerfile, ["pip.env", "netrc"]).text
    mounts = " ".join(f"--mount=type=secret,id={name},mode=0444" for name in ("pip.env", "netrc"))
    variables = "set -a; . /run/secrets/pip.env; set +a;"
    before, after = environment.dockerfile.text.splitlines(), mounted.splitlines()
    assert [line for line in after if line not in before] == [
        f"RUN {mounts} --network=host {variables} pip install 'a b'",
        f"RUN {mounts} {variables} python -m pip install --no-cache-dir -r "
        "/environment/requirements.txt",
    ]
    assert len(before) == len(after)


def test_a_base_is_pinned_with_its_platform_and_name():
    text = "FROM --platform=linux/amd64 python:3.12 as X\nRUN a\nFROM x\n"
    pinned = pin_bases(read_dockerfile(text), {"python:3.12": DIGEST})
    assert pinned.text == f"FROM --platform=linux/amd64 {DIGEST} AS x\nRUN a\nFROM x\n"


# The target and the arguments of the user's own Dockerfile

TARGETS = """\
ARG FLAVOUR
FROM {base} AS Train
ARG FLAVOUR
ENTRYPOINT ["train"]
FROM {base} AS serve
ENTRYPOINT ["serve"]
"""


def test_the_target_is_the_last_stage_and_arguments_are_part_of_the_tag(job, base, folder):
    (folder / "Dockerfile").write_text(TARGETS.format(base=base))

    def inputs(**settings):
        image = images.job(job.image.repository, **settings)
        return plan_image(image, folder, push=False).inputs

    whole, target, same = inputs(), inputs(target="train"), inputs(target="TRAIN")
    assert [stage.name for stage in target.dockerfile.stages] == ["train"]
    assert (target.tag, whole.tag == target.tag) == (same.tag, False)
    made = inputs(target="train", build_args={"FLAVOUR": "sweet"})
    assert made.dockerfile.build_args == {"FLAVOUR": "sweet"}
    assert made.tag not in (target.tag, inputs(target="train", build_args={"FLAVOUR": ""}).tag)
    with pytest.raises(ImageError) as caught:
        inputs(target="test")
    message = "image.target: the Dockerfile has no stage 'test'; it has train, serve"
    assert str(caught.value) == message


def test_arguments_are_part_of_the_environments_tag(job, base, folder):
    (folder / "templates").mkdir()
    template = (resources.templates() / "Dockerfile.j2").read_text()
    (folder / "templates/Dockerfile.j2").write_text(template.replace("WORKDIR", "ARG A\nWORKDIR"))
    tags = set()
    for settings in ({}, {"build_args": {"A": "1"}}, {"build_args": {"A": "2"}}):
        image = images.job(job.image.repository, base, **settings)
        tags.add(plan_image(image, folder, push=False).inputs.environment.tag)
    assert len(tags) == 3


def test_a_base_image_that_an_argument_names_is_pinned(job, base, folder):
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    image = images.job(job.image.repository, build_args={"BASE": str(base)})
    dockerfile = plan_image(image, folder).inputs.dockerfile
    assert dockerfile.base is not None
    assert dockerfile.base.startswith(f"{base.name}@sha256:")
