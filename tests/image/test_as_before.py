"""What the last build found out is used only where it is still so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import projects  # what tests/image/conftest.py has imported
import pytest
import registries

from distlaunch.image import Glance, carry_out, plan, plan_as_before
from distlaunch.job.load import load_job

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.image import ImagePlan

JOB = """\
name: digits
image: {{repository: "{repository}", base: "{base}"}}
cluster: {{chief: {{machine: n1-standard-4}}}}
"""
MEMORY = ".distlaunch/cache/recipe.json"


@pytest.fixture
def folder(registry, tmp_path) -> Path:
    """A project whose environment the registry has, built once."""
    base = registries.fresh(registry, "base", "1")
    registries.Recipe().push(base)
    folder = projects.project(tmp_path / "digits")
    (folder / "data").mkdir()
    (folder / "data/x.csv").write_text("1\n")
    repository = registries.fresh(registry)
    (folder / "distlaunch.yaml").write_text(JOB.format(repository=repository.name, base=base))
    made = built(folder)
    registries.Recipe().push(made.reference.with_tag(made.making.environment.tag))
    return folder


def built(folder: Path, *words: str) -> ImagePlan:
    """Plan as a build does that begins at the beginning, and keep what it found out."""
    glance = Glance(folder, words)
    made = plan(load_job(folder, sets=words).job, folder)
    glance.keep(made.making)
    return made


def said(made: ImagePlan) -> tuple[object, ...]:
    return made.way, made.reference, made.uri, made.environment_digest, made.context


def test_a_change_of_code_needs_no_job_file(folder):
    (folder / "trainer/task.py").write_text("print(1)")
    made = plan_as_before(Glance(folder))
    assert made.way == "append"
    assert said(made) == said(plan(load_job(folder).job, folder))
    done = carry_out(made, lambda _: None)
    again = plan_as_before(Glance(folder))
    assert (again.way, again.uri) == ("nothing", done.uri)


CHANGES = {
    "repository": lambda folder: edit(folder, "repository", 'repository: "127.0.0.1:1/x"'),
    "module": lambda folder: edit(folder, "name: digits", "name: digits\nmodule: trainer.other"),
    "include": lambda folder: edit(folder, "image: {", "image: {include: [data], "),
    "machine": lambda folder: edit(
        folder,
        "n1-standard-4",
        "n1-standard-4, accelerator: {type: NVIDIA_TESLA_T4, count: 1}",
    ),
    "requirements": lambda folder: (folder / "requirements.txt").write_text("six==1.17.0\n"),
    "ignore file": lambda folder: (folder / ".dockerignore").write_text("trainer\n"),
    "Dockerfile": lambda folder: (folder / "Dockerfile").write_text("FROM scratch\n"),
    "template": lambda folder: (
        (folder / "templates").mkdir()
        or (folder / "templates/Dockerfile.j2").write_text("FROM scratch\n")
    ),
    "package": lambda folder: (
        (folder / "trainer").rename(folder / "old")
        or (folder / "trainer.py").write_text("print(1)\n")
    ),
    "no job file": lambda folder: (folder / "distlaunch.yaml").unlink(),
}


def edit(folder: Path, before: str, after: str) -> None:
    text = (folder / "distlaunch.yaml").read_text()
    if before == "repository":
        text = text.replace(text[text.index("repository") : text.index(", base")], after)
    assert before in text
    (folder / "distlaunch.yaml").write_text(text.replace(before, after))


@pytest.mark.parametrize("change", CHANGES)
def test_any_other_change_has_the_job_file_read_again(change, folder):
    assert Glance(folder).recall() is not None
    CHANGES[change](folder)
    assert Glance(folder).recall() is None


def test_other_words_have_the_job_file_read_again(folder):
    assert Glance(folder, ("image.base=x",)).recall() is None
    built(folder, f"image.base=x@sha256:{'0' * 64}")
    assert Glance(folder).recall() is None
    assert Glance(folder, (f"image.base=x@sha256:{'0' * 64}",)).recall() is not None


def test_what_changes_while_it_is_read_is_read_again(folder):
    glance = Glance(folder)
    made = plan(load_job(folder).job, folder)
    (folder / "requirements.txt").write_text("six==1.17.0\n")
    glance.keep(made.making)
    assert Glance(folder).recall() is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("more/requirements.txt", "six==1.16.0\n"),
        ("more/data.csv", "1\n"),
        ("Dockerfile", "FROM x@sha256:" + "0" * 64 + "\n"),
    ],
)
def test_what_lies_deeper_or_is_the_users_own_is_read_each_time(file, text, folder):
    (folder / "more").mkdir()
    (folder / file).write_text(text)
    if file.endswith(".txt"):
        (folder / "requirements.txt").write_text(f"-r {file}\n")
    elif file.endswith(".csv"):
        edit(folder, "image: {", f"image: {{include: [{file}], ")
    built(folder)
    assert Glance(folder).recall() is None


def test_a_folder_with_many_files_is_read_each_time(folder):
    for number in range(300):
        (folder / f"{number}.png").touch()
    built(folder)
    assert Glance(folder).recall() is None


@pytest.mark.parametrize("kept", [b"", b"[]", b"{}", b"\xff", b'{"key": null}', b'{"key": 1}'])
def test_what_cannot_be_read_is_found_out_again(kept, folder):
    (folder / MEMORY).write_bytes(kept)
    assert plan_as_before(Glance(folder)) is None


def test_other_entries_than_ours_are_not_taken(folder):
    kept = json.loads((folder / MEMORY).read_text())
    (folder / MEMORY).write_text(json.dumps({**kept, "more": 1}))
    assert Glance(folder).recall() is None


def test_where_an_environment_is_missing_the_job_file_is_read(folder, registry):
    (folder / "distlaunch.yaml").write_text(
        JOB.format(repository=registries.fresh(registry).name, base=f"x@sha256:{'0' * 64}")
    )
    assert built(folder).way == "engine"
    assert Glance(folder).recall() is not None
    assert plan_as_before(Glance(folder)) is None


def test_a_second_build_imports_no_more_than_it_needs(cli, folder):
    first = cli("build", cwd=folder)
    assert first.returncode == 0, first.stderr
    (folder / "trainer/task.py").write_text("print(2)")
    code = (
        "import sys; from distlaunch.cli import main; code = main(['build'])\n"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"DOCKER_HOST": "unix:///nowhere.sock"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the registry has the environment, and not this code" in done.stderr
    modules = set(done.stderr.splitlines()[-1].split())
    assert not modules & {"docker.api", "google.auth", "jinja2", "pydantic", "yaml"}
