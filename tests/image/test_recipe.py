"""Rendered files have the content of the job for those that read them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from example_jobs import CPU, FULL, JOB, REPOSITORY
from hypothesis import example, given
from hypothesis import strategies as st

from distlaunch.errors import ImageError
from distlaunch.image import secrets
from distlaunch.image.context import read_context
from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.image.recipe import CODE, read_recipe
from distlaunch.image.requirements import sed_script
from distlaunch.job.model import DEFAULT_BASE, Cluster, Image, Job, Machine, Pool
from distlaunch.template import is_rendered, stamped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.image.dockerfile_parser import Instruction


@contextmanager
def project(*files: str) -> Iterator[Path]:
    """A folder with a trainer, requirements and more files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("trainer/task.py", "requirements.txt", *files):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("# a file\n")
        yield folder


@pytest.fixture
def folder():
    with project() as path:
        yield path


def dockerfile(job: Job, folder: Path) -> str:
    return read_recipe(job, folder).dockerfile


def instructions(job: Job, folder: Path, word: str = "") -> list[Instruction]:
    steps = read_dockerfile(dockerfile(job, folder)).instructions
    return [step for step in steps if word in ("", step.word)]


def files_in(job: Job, folder: Path) -> list[str]:
    return [file.path for file in read_context(folder, read_recipe(job, folder).ignore).files]


# The Dockerfile


def test_a_dockerfile_of_two_stages(folder):
    dockerfile = read_dockerfile(read_recipe(JOB, folder).dockerfile)
    stages = [(stage.base, stage.name) for stage in dockerfile.stages]
    assert stages == [(DEFAULT_BASE, "environment"), ("environment", None)]
    _, requirements, install, workdir, code, entrypoint = dockerfile.instructions
    assert dockerfile.variables["PYTHONUNBUFFERED"] == "1"
    assert requirements.array == ("requirements.txt", "/environment/requirements.txt")
    assert install.rest == ("python -m pip install --no-cache-dir -r /environment/requirements.txt")
    assert (workdir.rest, code.rest) == (CODE, ". .")
    assert entrypoint.array == ("python", "-m", "trainer.task")


def test_without_requirements_nothing_is_installed(folder):
    (folder / "requirements.txt").unlink()
    assert not instructions(JOB, folder, "RUN")
    assert len(instructions(JOB, folder, "COPY")) == 1
    assert "requirements" not in read_recipe(JOB, folder).ignore.split("*\n", 1)[1]


@pytest.mark.parametrize(("job", "gpu"), [(JOB, False), (FULL, True)])
def test_tensorflow_is_that_of_the_machines(folder, job, gpu):
    (folder / "requirements.txt").write_text("tensorflow==2.21.0\n")
    first, *_ = instructions(job, folder, "RUN")
    command = first.rest.replace("/environment/", f"{folder}/")
    subprocess.run(["sh", "-c", command], check=True)
    name = "tensorflow[and-cuda]" if gpu else "tensorflow-cpu"
    assert (folder / "requirements.txt").read_text() == f"{name}==2.21.0\n"
    assert sed_script(gpu=gpu) in first.rest


def test_the_lines_for_gpus_are_those_of_the_document(folder, checkout):
    document = (checkout / "docs/do/dockerfile.md").read_text(encoding="utf-8")
    _, _, gpus = document.partition("\n## GPUs\n")
    lines = re.search(r"^```dockerfile\n(.*?)^```", gpus, re.DOTALL | re.MULTILINE)[1]
    assert lines in dockerfile(FULL, folder)
    assert "nvidia" not in dockerfile(JOB, folder)


@pytest.mark.parametrize(
    ("keys", "file", "words"),
    [
        ({"script": "train.py"}, "train.py", ["train.py"]),
        ({"script_module": "course.task"}, "course/task.py", ["-m", "course.task"]),
        (
            {"script": "train.py", "trainer_options": ("--same-random",)},
            "train.py",
            ["--same-random", "train.py"],
        ),
    ],
)
def test_a_script_is_copied_and_run_under_fit(folder, keys, file, words):
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).touch()
    job = replace(JOB, **keys)
    (entrypoint,) = instructions(job, folder, "ENTRYPOINT")
    assert entrypoint.array == ("python", "-m", "distlaunch_trainer.fit", *words)
    assert file in files_in(job, folder)
    assert read_recipe(job, folder).wheel


@pytest.mark.parametrize("has_script", [True, False])
def test_on_machines_with_rdma_googles_settings_for_nccl_come_first(folder, has_script):
    rdma = Machine("a4-highgpu-8g", "NVIDIA_B200", 8)
    job = replace(JOB, cluster=Cluster(Pool(CPU), Pool(rdma)))
    (entrypoint,) = instructions(job, folder, "ENTRYPOINT")
    (folder / "trainer/task.py").write_text(
        "import os, sys; print(os.environ.get('NCCL_NET'), sys.argv[1:])"
    )
    if has_script:
        (folder / "gib/scripts").mkdir(parents=True)
        (folder / "gib/scripts/set_nccl_env.sh").write_text("export NCCL_NET=gIB\n")
    words = [each.replace("/usr/local/gib", f"{folder}/gib") for each in entrypoint.array]
    run = [*words, "--a=b c", "$HOME"]
    printed = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert printed == f"{'gIB' if has_script else None} ['--a=b c', '$HOME']\n"


names = st.text(
    st.one_of(st.sampled_from("'\"\\$*?[]<>#! ~`;&{}%=é☺ab"), st.characters(codec="utf-8")),
    min_size=1,
    max_size=12,
).filter(
    lambda name: (
        name.isprintable()
        and not re.search(r"^\.|/|\.pyc$", name)
        and secrets.by_name(name) is None
    )
)


@given(names, names)
@example("$(touch x)", "<<EOF")
@example("a\\", "'; RUN x #")
@example("{{ 7 * 7 }}", "{% raw %}")
@example("#a", "!a")
@example(" a ", "[a]")
@example("trainer", "requirements.txt")
@example("0", "other")
def test_names_of_files_are_no_more_than_names(requirements, included):
    path = f"pip/{requirements}"
    job = replace(JOB, image=Image(REPOSITORY, requirements=path, include=(f"data/{included}",)))
    with project(path, f"data/{included}", "data/not-included/x") as folder:
        (folder / path).write_text("tensorflow\n")
        words = [each.word for each in instructions(job, folder)]
        files = set(files_in(job, folder))
    assert words == ["ENV", "COPY", "RUN", "RUN", "WORKDIR", "COPY", "ENTRYPOINT"]
    assert files == {path, f"data/{included}", "trainer/task.py"}


@pytest.mark.parametrize("name", ["a\nRUN x", "a\rb", "a\x85b", "a\u2028b", "a\x1bb"])
def test_a_name_that_is_more_than_a_line_is_refused(name):
    with project(name) as folder:
        for image in (Image(requirements=name), Image(include=(name,))):
            with pytest.raises(ImageError, match="rename it") as refusal:
                read_recipe(replace(JOB, image=image), folder)
            assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_docker_reads_what_is_rendered(engine):
    """The image has the entrypoint and the files whose names are the worst there are."""
    nasty = ["a b$HOME", "'q\"", "st*r", "[x]", "back\\slash", "é☺", "#hash", "!bang", "<<EOF"]
    with project(*nasty, "not-named") as folder:
        first, *included = nasty[:3]
        (folder / first).write_text("".join(f"-r {name}\n" for name in included))
        image = Image(REPOSITORY, engine.base, requirements=first, include=tuple(nasty))
        rendered = read_recipe(replace(JOB, image=image), folder)
        text = rendered.dockerfile.replace("RUN python -m pip", "RUN echo python -m pip")
        (folder / "Dockerfile").write_text(text)
        (folder / ".dockerignore").write_text(rendered.ignore)
        env = {**os.environ, "DOCKER_BUILDKIT": "0"}
        built = engine.docker("build", "--quiet", str(folder), env=env).stdout.strip()
    entrypoint = engine.docker("inspect", "--format", "{{json .Config.Entrypoint}}", built)
    assert entrypoint.stdout.strip() == '["python","-m","trainer.task"]'
    find = ("run", "--rm", "--entrypoint", "find", built, "/app", "/environment", "-type", "f")
    inside = engine.docker(*find).stdout.splitlines()
    engine.docker("rmi", built)
    files = [f"/app/{path}" for path in (*nasty, "trainer/task.py")]
    assert sorted(inside) == sorted([*files, *(f"/environment/{name}" for name in nasty[:3])])


# The context


def test_the_context_is_what_is_included():
    kept = ("data/a.tfrecord", "config/x/y.yaml", "pip/base.txt", "trainer/deep/model.py")
    elsewhere = ("README.md", "models/large", "config/z/y.yaml")
    never = (
        *(".git/config", "config/.git/x", "trainer/__pycache__/task.pyc", "trainer/.env"),
        *("data/.records-index.json", "config/id_rsa", ".distlaunch/jobs/x"),
    )
    job = replace(JOB, image=Image(requirements="pip/base.txt", include=("data", "./config/x/")))
    with project(*kept, *elsewhere, *never) as folder:
        included = {*kept, "trainer/task.py"}
        assert files_in(job, folder) == sorted(included)
        job = replace(JOB, image=Image(include=(".",)))
        assert files_in(job, folder) == sorted({*included, *elsewhere, "requirements.txt"})


@pytest.mark.parametrize("own", [None, "Dockerfile"])
def test_a_virtual_environment_is_left_out(own):
    environments = ("env/pyvenv.cfg", "env/bin/python", "my [venv]/pyvenv.cfg", ".venv/pyvenv.cfg")
    job = replace(JOB, image=Image(include=(".",)))
    with project(*environments, "envs/model.py", *([own] if own else [])) as folder:
        left = {"requirements.txt", "trainer/task.py", "envs/model.py", *([own] if own else [])}
        assert set(files_in(job, folder)) == left


def test_a_package_is_found_below_the_python_path_or_in_a_requirement():
    job = replace(JOB, module="mypkg.task", env={"PYTHONPATH": "/opt:src"})
    with project("src/mypkg/task.py", "src/other/x.py") as folder:
        assert files_in(job, folder) == ["requirements.txt", "src/mypkg/task.py", "src/other/x.py"]
        required = replace(JOB, module="official.vision.train")
        for requirement in ("tf-models-official==2.16.0", "git+https://h/models.git@v1"):
            (folder / "requirements.txt").write_text(requirement)
            assert files_in(required, folder) == ["requirements.txt"]
        (folder / "requirements.txt").write_text("tensorflow==2.21.0")
        with pytest.raises(ImageError) as refusal:
            read_recipe(required, folder)
        assert "set env: {PYTHONPATH: FOLDER}" in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"module": "treiner.task"}, "module: treiner.task: neither the folder treiner nor "),
        ({"image": Image(include=("nowhere",))}, "image.include: nowhere: no such file or folder"),
        ({"image": Image(requirements="pip.txt")}, "pip.txt: cannot be read (no such file "),
        ({"image": Image(dockerfile="docker/Dockerfile")}, "image.dockerfile: docker/Dockerfile: "),
        ("FROM x\n{{ nme }}\n", "templates/Dockerfile.j2:2: 'nme' is undefined"),
        ("{{ job.nme }}", "templates/Dockerfile.j2:1: 'distlaunch.job.model.Job object' has no "),
        ("{{ 1 | dokker }}", "templates/Dockerfile.j2:1: No filter named 'dokker'."),
        ("ENV A={{ 'a\\nb' | docker_value }}", "templates/Dockerfile.j2:1: a Dockerfile has no "),
    ],
)
def test_an_error_of_a_job_or_template_is_located(folder, change, message):
    job = JOB
    if isinstance(change, str):
        (folder / "templates").mkdir()
        (folder / "templates/Dockerfile.j2").write_text(change)
    else:
        job = replace(JOB, **change)
    with pytest.raises(ImageError) as refusal:
        read_recipe(job, folder)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_the_users_own_files_come_first(folder):
    (folder / "README.md").write_text("x")
    rendered = read_recipe(JOB, folder)
    assert rendered.own_dockerfile is rendered.own_ignore is None
    (folder / "Dockerfile").write_text(stamped(rendered.dockerfile))
    (folder / ".dockerignore").write_text(stamped(rendered.ignore))
    assert read_recipe(JOB, folder) == rendered  # they are distlaunch's

    (folder / "Dockerfile").write_text("FROM scratch\n")
    own = read_recipe(JOB, folder)
    assert (own.dockerfile, own.own_dockerfile) == ("FROM scratch\n", Path("Dockerfile"))
    assert "README.md" in files_in(JOB, folder)

    (folder / ".dockerignore").write_text("trainer\n")
    assert read_recipe(JOB, folder).own_ignore == Path(".dockerignore")
    (folder / ".distlaunch").mkdir()
    (folder / ".distlaunch/x").touch()
    assert not {"trainer/task.py", ".distlaunch/x"} & set(files_in(JOB, folder))


def test_a_dockerfile_elsewhere_has_an_ignore_file_beside_it(folder):
    (folder / "docker").mkdir()
    (folder / "docker/gpu.Dockerfile").write_text("FROM scratch\n")
    (folder / "docker/gpu.Dockerfile.dockerignore").write_text("*\n!trainer\n")
    job = replace(JOB, image=Image(dockerfile="./docker/gpu.Dockerfile"))
    own = read_recipe(job, folder)
    assert own.own_dockerfile == Path("docker/gpu.Dockerfile")
    assert own.own_ignore == Path("docker/gpu.Dockerfile.dockerignore")
    assert files_in(job, folder) == ["trainer/task.py"]


def test_a_rendered_file_is_rendered_until_it_is_changed(folder):
    text = stamped(dockerfile(JOB, folder))
    assert is_rendered(text)
    for other in (text + "\n", text.replace("trainer", "other"), "#\n" + text, "", text[:80]):
        assert not is_rendered(other)
    assert is_rendered(text.replace(text.split()[4], "9.9.9,"))  # of another version


# Templates of the project; tests/test_project_templates.py has what they must not do


def test_templates_of_the_project_come_first(folder):
    (folder / "templates").mkdir()
    (folder / "templates/Dockerfile.j2").write_text(
        "# syntax=docker/dockerfile:1\nFROM {{ base }}\n"
        "LABEL name={{ job.name | docker_value }}\nENTRYPOINT {{ ['a', 'b'] | exec_form }}\n"
    )
    text = stamped(dockerfile(JOB, folder))
    assert text.startswith("# syntax=docker/dockerfile:1\n# rendered by distlaunch ")
    assert is_rendered(text)
    assert instructions(JOB, folder, "LABEL")[0].rest == 'name="digits"'
