"""Update docs/skill/SKILL.md, the skill for coding agents: `python tools/make_skill.py`.

What is between its comments is generated: commands from the options of click, keys from the schema
of distlaunch.yaml, and codes from the tables of the documents. A test fails if it is stale.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch import errors
from distlaunch.cli import COMMANDS, distlaunch
from distlaunch.job.json_schema import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SKILL = ROOT / "docs/skill/SKILL.md"
MOST_PATHS = 4  # that are listed of sections with the same keys
SHARED_BY = 3  # commands that take an option before it is described once for all

LONG = re.compile("--[a-z-]+")
# In a table, or with a section of its own.
CODE = re.compile(
    r"^(?:\| `|### )([a-z-]+)(?:` \| |\n\n)(E, W|E|W|Error or warning|Error|Warning)(?: \||: )",
    re.MULTILINE,
)
HEADING = re.compile(r"^##+ ([A-Z].*)$", re.MULTILINE)
WARNINGS = ("W", "Warning")
GENERATED = re.compile(r"<!-- ([a-z ]+) -->\n(?:(?!<!--).*\n)*<!-- end -->", re.MULTILINE)
RANGE = re.compile(r"(?:; |(?<=\[))(?:\d+<=)?x[<>]=?\d+(?=\])")  # such as [default: 1; x>=0]


def commands_of(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Return each command that runs, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command, name
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def options_of(command: click.Command) -> list[tuple[str, str]]:
    """Return the options of a command with their help, but for --help."""
    context = click.Context(command)
    options = [option for option in command.params if isinstance(option, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    words = [(names, RANGE.sub("", text).replace("[]", "").split()) for names, text in records]
    return [(names, ": " * bool(text) + " ".join(text)) for names, text in words]


def describe_commands() -> Iterator[str]:
    """Return lines on the options that several commands take, and on each command."""
    commands = dict(commands_of(distlaunch))
    assert {name.split()[0] for name in commands} == COMMANDS.keys()
    uses = Counter(option for command in commands.values() for option in options_of(command))
    shared = [option for option, number in uses.items() if number >= SHARED_BY]
    yield from (f"- `{names}`{text}" for names, text in shared)
    yield ""
    for name, command in commands.items():
        arguments = " ".join(command.collect_usage_pieces(click.Context(command)))
        usage = f"{name} {arguments.removeprefix('[OPTIONS]').strip()}".strip()
        parts = [(command.help or "").partition("\n\n")[0].replace("\n", " ")]
        options = options_of(command)
        parts += [f"`{names}`{text}" for names, text in options if (names, text) not in shared]
        others = [LONG.findall(names)[0] for names, text in options if (names, text) in shared]
        parts += ["Also " + ", ".join(f"`{name}`" for name in others)] if others else []
        yield f"- **`{usage}`**: {'; '.join(part.rstrip('.') for part in parts)}."


def sections_of(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Return the keys of each section of the job file, those with fixed values with these."""
    definitions, keys = schema()["$defs"], []
    deeper: list[tuple[dict[str, Any], str]] = []
    for name, value in node["properties"].items():
        choices = [value, *value.get("anyOf", ())]
        choices += [choice["items"] for choice in choices if "items" in choice]
        by_name = [choice.get("patternProperties", {}) for choice in choices]
        named = [section for patterns in by_name for section in patterns.values()]
        values = [word for choice in choices for word in choice.get("enum", ())]
        keys.append(f"`{name}` ({' | '.join(values)})" if values else f"`{name}`")
        deeper += [(choice, f"{path}{name}.") for choice in choices]
        deeper += [(choice, f"{path}{name}.NAME.") for choice in named]
    yield path.removesuffix("."), ", ".join(keys)
    for choice, deeper_path in deeper:
        if "$ref" in choice:
            yield from sections_of(definitions[choice["$ref"].rpartition("/")[2]], deeper_path)


def describe_keys() -> Iterator[str]:
    """Return a line for each section of the job file; those with the same keys are one."""
    merged: dict[str, list[str]] = {}
    for path, keys in sections_of(schema()):
        merged.setdefault(keys, []).append(path)
    for keys, paths in merged.items():
        yield f"- `{'`, `'.join(paths[:MOST_PATHS]) or 'distlaunch.yaml'}`: {keys}"


def describe_codes() -> Iterator[str]:
    """Return a line for each heading with codes of the document that has them."""
    pages = {path: path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
    page = max(pages, key=lambda path: len(CODE.findall(pages[path])))
    groups: dict[str, list[str]] = {}
    for code in CODE.finditer(pages[page]):
        title = HEADING.findall(pages[page][: code.start()])[-1]
        groups.setdefault(title, []).append(f"`{code[1]}`{' W' * (code[2] in WARNINGS)}")
    assert groups, "no document has a table of codes"
    yield f"Each is explained in `{page.relative_to(ROOT)}`.\n"
    yield from (f"- {title}: {', '.join(codes)}" for title, codes in groups.items())


def updated(text: str) -> str:
    """Return the text of SKILL.md with its generated parts made again."""
    parts = {
        "exit codes": [f"- {code}: {meaning}" for code, meaning in errors.EXIT_CODES.items()],
        "commands": describe_commands(),
        "keys": describe_keys(),
        "codes": describe_codes(),
    }
    lines = {name: "\n".join([f"<!-- {name} -->", *part]) for name, part in parts.items()}
    assert GENERATED.findall(text) == [*parts]
    return GENERATED.sub(lambda match: f"{lines[match[1]]}\n<!-- end -->", text)


if __name__ == "__main__":
    SKILL.write_text(updated(SKILL.read_text("utf-8")), encoding="utf-8")
