"""What the site has from the code: its parts are whole, and its addresses one; see tools/site."""

from __future__ import annotations

import re

import click
import pytest

from distlaunch import resources
from distlaunch.checks.trainer import option_names
from distlaunch.cli import COMMANDS, distlaunch
from distlaunch.documentation import SITE
from distlaunch.job.json_schema import schema
from distlaunch.notify import Ending


@pytest.fixture(autouse=True)
def tools(checkout, monkeypatch):
    monkeypatch.syspath_prepend(checkout / "tools/site")


def anchored(part: str, prefix: str = "") -> set[str]:
    return {f"--{name}" for name in re.findall(rf"\{{ #{prefix}([a-z0-9-]+) \}}", part)}


def test_each_command_has_a_section_with_its_options_and_examples():
    import commands

    part = commands.sections()
    assert re.findall("^## (.*)", part, re.MULTILINE) == [*COMMANDS]
    local = part.partition("\n## local\n")[2].partition("\n## ")[0]
    command = distlaunch.get_command(click.Context(distlaunch), "local")
    assert anchored(local, "local--") == {each for param in command.params for each in param.opts}
    assert "```sh\ndistlaunch local --workers 3 -- --epochs 3\n" in local


def test_each_option_of_the_trainer_and_each_key_of_the_job_file_has_a_row():
    import reference

    options = anchored(reference.trainer_options())
    assert options | {"--help", "--no-resume", "--no-tf32"} == option_names() - {"-h"}
    rows = dict(re.findall(r"\| `(\S+)`\{ #\1 \} \| .+<br>\*(.+)\* \|\n", reference.job_keys()))
    sections = [schema(), *schema()["$defs"].values()]
    keys = {key for section in sections for key in section["properties"]}
    assert {path.rpartition(".")[2] for path in rows} == keys
    assert rows["cluster.evaluators"] == "as `cluster.workers`"
    assert rows["cluster.workers.count"] == "a whole number from 0, default `1`"


def test_each_row_of_the_table_of_keras_is_on_its_page():
    import keras_table

    rows, page = [*keras_table.rows()], keras_table.page()
    assert {row.module for row in rows} == {*re.findall("^## (.*)", page, re.MULTILINE)}
    tests = re.findall(r"^\| `.+` \| .+ \| `(test_(?:same|refused)\[.+\])` \|$", page, re.MULTILINE)
    assert tests == [row.test for row in rows if row.kind != "none"]
    assert [row.name for row in rows if f"`{row.name}`" not in page] == []


def test_the_document_of_variables_has_those_of_the_code(checkout):
    text = (checkout / "docs/look-up/environment.md").read_text(encoding="utf-8")
    paths = [*(checkout / "distlaunch").rglob("*.py"), *resources.trainer_package().rglob("*.py")]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    pattern = r"\bDISTLAUNCH(?:_[A-Z]+)+"
    of_notify = {f"DISTLAUNCH_{name.upper()}" for name in Ending("job").fields(0)}
    assert {*re.findall(pattern, text)} == {*re.findall(pattern, sources)} | of_notify


def test_the_address_of_the_site_is_the_same_everywhere(checkout):
    lines = {
        "pyproject.toml": f'\nDocumentation = "{SITE}"\n',
        "mkdocs.yml": f"\nsite_url: {SITE}\n",
        "trainer_skeleton/runtime/README.md": f"({SITE}understand/without-distlaunch.html)",
    }
    assert [name for name in lines if lines[name] not in (checkout / name).read_text()] == []
