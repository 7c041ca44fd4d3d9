"""Tables of facts: trainer options, keys of the job file, events, exit codes; the API."""

# ruff: noqa: SLF001 - argparse has no public names for an option's texts
from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands import escape

import distlaunch_trainer
from distlaunch.checks.trainer import trainer_parser
from distlaunch.errors import EXIT_CODES
from distlaunch.job import schema as sections
from distlaunch.job.json_schema import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
_MEANINGS = ("key", "meaning")
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a section",
}
_LIMITS = {"exclusiveMinimum": "above", "minimum": "from", "maximum": "to"}


def trainer_options() -> str:
    """Return the trainer's options, from its parser."""
    parser = trainer_parser()
    formatter = argparse.HelpFormatter(parser.prog)
    rows = []
    for action in parser._actions[1:]:  # after --help
        names = formatter._format_action_invocation(action)
        anchor = action.option_strings[0].lstrip("-")
        rows.append((f"`{names}`{{ #{anchor} }}", formatter._expand_help(action)))
    return _table(("option", "meaning"), rows)


def job_keys() -> str:
    """Return every key of the job file, from its schema."""
    rows = _keys(schema(), "JobSection", "", {})
    return f"## Every key\n\n{_table(_MEANINGS, rows)}"


def _keys(
    root: dict[str, Any], name: str, prefix: str, paths: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    """Yield the row of each key of a section and of those in it.

    `paths` has the first place of each section, where its keys are.
    """
    section = root["$defs"].get(name, root)
    fields = getattr(sections, name).model_fields.items()
    defaults = {field.alias or each: field.default for each, field in fields}
    for key, value in section["properties"].items():
        path = prefix + key
        options = [each for each in value.get("anyOf", [value]) if each.get("type") != "null"]
        words = [escape(each) for each in dict.fromkeys(map(_expected, options)) if each]
        nested = {
            inner["$ref"].rpartition("/")[2]: f"{path}{mark}"
            for inner, mark in map(_inner, options)
            if "$ref" in inner
        }
        words += [f"as `{paths[each]}`" if each in paths else "a section" for each in nested]
        words += ["required"] if key in section.get("required", ()) else []
        if isinstance(defaults[key], str | int):
            words.append(f"default `{json.dumps(defaults[key])}`".replace('"', ""))
        yield f"`{path}`{{ #{path} }}", f"{escape(value['title'])}<br>*{', '.join(words)}*"
        for each in nested.keys() - paths:
            paths[each] = path
            yield from _keys(root, each, nested[each], paths)


def _inner(value: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the schema of what is in a value, and how its path goes on."""
    if "items" in value:
        return value["items"], "[]."
    if "patternProperties" in value:
        [inner] = value["patternProperties"].values()
        return inner, ".NAME."
    return value, "."


def _expected(value: dict[str, Any]) -> str:
    """Return what a value may be, in words."""
    inner, mark = _inner(value)
    if inner is not value:
        many = "a list:" if mark == "[]." else "names with values:"
        return f"{many} {_expected(inner) or 'sections'}"
    if "enum" in value or "const" in value:
        return ", ".join(map(str, value.get("enum") or [value["const"]]))
    text = value.get("description") or _WORDS.get(str(value.get("type")), "")
    limits = [f"{word} {value[key]}" for key, word in _LIMITS.items() if key in value]
    return " ".join([text, *limits])


def events() -> str:
    """Return the kinds of events, and the schemas of files and of the commands' JSON."""
    lines = []
    for kind in _schema("events")["oneOf"]:
        (_, name), *properties = kind["properties"].items()
        rows = [(f"`{key}`", value["description"]) for key, value in properties]
        lines += [f"## {name['const']}\n\n{kind['description']}.\n", _table(_MEANINGS, rows)]
    names = sorted(path.stem for path in SCHEMAS.glob("*.json"))
    rows = [(_schema(name)["title"], f"[{name}.json](../schemas/{name}.json)") for name in names]
    return "\n".join([*lines, "## Schemas\n", _table(("of", "schema"), rows)])


def _schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


def exit_codes() -> str:
    """Return the exit codes of distlaunch."""
    return _table(("code", "meaning"), [(str(code), text) for code, text in EXIT_CODES.items()])


def api() -> str:
    """Return the directives of mkdocstrings for the public names of the trainer package."""
    return "\n".join(f"::: distlaunch_trainer.{name}\n" for name in distlaunch_trainer.__all__)


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [names, ("---",) * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
