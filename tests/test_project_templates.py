"""A project's templates include each other, run no program and read no file outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from distlaunch.errors import ImageError
from distlaunch.image.recipe import read_recipe
from distlaunch.job.model import Cluster, Job, Machine, Pool

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job("digits", Cluster(Pool(Machine("n1-standard-4"))))
MODULE_OF_JINJA = "cycler.__init__.__globals__"


@pytest.fixture
def folder(tmp_path):
    """A project with an empty folder for templates."""
    project = tmp_path / "project"
    for name in ("trainer", "templates"):
        (project / name).mkdir(parents=True)
    (project / "trainer/task.py").touch()
    return project


def write(folder: Path, **templates: str) -> None:
    for name, text in templates.items():
        (folder / f"templates/{name}.j2").write_text(text)


def refusal(folder: Path) -> str:
    with pytest.raises(ImageError) as refused:
        read_recipe(JOB, folder)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "words", ["check --offline", "submit --dry-run", "submit --dry-run --no-check", "render"]
)
def test_a_template_runs_no_program(cli, folder, words):
    (folder / "distlaunch.yaml").write_text(
        "name: digits\nproject: p-123456\nregion: us-central1\nbucket: gs://some-bucket\n"
        "image: {repository: localhost:5000/digits}\n"
        "cluster: {chief: {machine: n1-standard-4}}\n"
    )
    write(folder, Dockerfile=f"\n{{{{ {MODULE_OF_JINJA}.os.popen('touch marker').read() }}}}\n")
    done = cli(*words.split(), cwd=folder)
    assert not (folder / "marker").exists()
    assert done.returncode == 1
    assert "templates/Dockerfile.j2:2: access to attribute '__init__'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "expression",
    [
        MODULE_OF_JINJA,
        "(cycler | attr('__init__')).__globals__",
        "([cycler] | map(attribute='__init__') | first).__globals__",
        "job.__class__.__subclasses__()",
        "''['__class__'].__mro__",
        "'{0.__class__.__mro__}'.format(job)",
        "('{0.__class__.__mro__}' | format | attr('format'))(job)",
        "('{x.__class__.__mro__}'.format_map)({'x': job})",
        "lipsum.__globals__.os",
        "self.__init__.__globals__",
        "self._TemplateReference__context.environment",
        "dockerfile.__globals__",
        "job.env.update({'A': 'b'})",
    ],
)
def test_a_template_reads_no_python_internals_and_does_not_change_the_job(folder, expression):
    write(folder, Dockerfile=f"FROM x\n{{{{ {expression} }}}}")
    assert refusal(folder).startswith("templates/Dockerfile.j2:2: ")


@pytest.mark.parametrize(
    "name", ["../secret.j2", "link.j2", "linked/secret.j2", "{folder}/../secret.j2"]
)
def test_a_template_includes_no_file_from_outside_the_project(folder, name):
    (folder.parent / "secret.j2").write_text("PASSWORD")
    (folder / "templates/link.j2").symlink_to("../../secret.j2")
    (folder / "templates/linked").symlink_to("../..")
    write(folder, Dockerfile=f"\n{{% include '{name.format(folder=folder)}' %}}")
    assert refusal(folder).startswith("templates/Dockerfile.j2:2: ")


def test_a_template_is_no_symlink_out_of_the_project(folder):
    (folder.parent / "secret").write_text("PASSWORD")
    (folder / "templates/Dockerfile.j2").symlink_to("../../secret")
    assert refusal(folder) == (
        "templates/Dockerfile.j2: Dockerfile.j2 is a symlink out of the project's folder; "
        "copy the file there"
    )


def test_templates_include_and_extend_each_other(folder):
    (folder / "shared.j2").write_text("# {{ job.name }}\n")
    (folder / "templates/part.j2").symlink_to("../shared.j2")
    write(folder, layout="FROM x\n{% block rest %}{% endblock %}")
    write(folder, Dockerfile="{% extends 'layout.j2' %}{% block rest %}")
    with (folder / "templates/Dockerfile.j2").open("a") as file:
        file.write("{% include 'part.j2' %}{% include 'own.j2' %}{% endblock %}")
    write(folder, own="# {{ base }}\n")
    assert "FROM x\n# digits\n# python:" in read_recipe(JOB, folder).dockerfile


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("\n{{ nothing }}", "templates/part.j2:2: 'nothing' is undefined"),
        ("\n\n{% if %}", "templates/part.j2:3: Expected an expression"),
        ("{{ 1 / 0 }}", "templates/part.j2:1: division by zero"),
        ("{{ job | yaml }}", "templates/part.j2:1: "),
        ("{% include 'part.j2' %}", "templates/part.j2:1: maximum recursion depth"),
        ("{% include 'nowhere.j2' %}", "templates/part.j2:1: "),
    ],
)
def test_error_names_the_included_template(folder, part, message):
    write(folder, Dockerfile="FROM x\n{% include 'part.j2' %}", part=part)
    assert refusal(folder).startswith(message)


def test_a_named_pipe_is_no_template(folder):
    os.mkfifo(folder / "templates/Dockerfile.j2")
    assert read_recipe(JOB, folder).dockerfile.startswith("# The environment")
