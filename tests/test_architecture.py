"""The direction of imports: data flows from the job file to the command line and never back."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "distlaunch"

SHARED = {
    *(
        "",
        "background",
        "docker_client",
        "documentation",
        "errors",
        "failure_reasons",
        "files",
        "platforms",
        "stop_signals",
    ),
    *("paths", "python_command", "quoting", "refusals", "resources", "retry"),
    *("source_version", "template", "tensorflow_noise", "text", "timestamps"),
}
"""Small modules without a room, and `distlaunch` itself; they import only each other."""

NOUNS = {*SHARED, "job", "events", "figures", "summary", "task_files"}
"""What every room may import."""

ALLOWED = {
    **dict.fromkeys(SHARED, SHARED),
    "job": SHARED,
    **dict.fromkeys(("events", "summary", "scaffold", "task_files"), frozenset({*SHARED, "job"})),
    "figures": {*SHARED, "summary"},
    "notify": NOUNS,
    "ui": NOUNS,
    "engines": NOUNS,
    "image": {*NOUNS, "engines"},
    "redaction": {*NOUNS, "image"},
    "render": {*NOUNS, "engines", "image", "redaction"},
    "local": {*NOUNS, "ui"},
    "emulator": {*NOUNS, "local"},
    "price": {*NOUNS, "engines", "local"},
    "checks": {*NOUNS, "ui", "engines", "image", "price"},
    "cloud_setup": {*NOUNS, "engines", "image", "checks"},
    "submit": {*NOUNS, "ui", "engines", "image", "checks", "price", "redaction"},
    "tune": {*NOUNS, "ui", "local", "redaction"},
    "runs": {*NOUNS, "ui", "engines", "local", "price", "redaction"},
}
"""What each room imports, also within functions and for types, or names in a string.

`cli` and `__main__` may import everything.
"""

STARTED = {("distlaunch.python_command", "distlaunch.cli")}
"""The modules that another one starts as a process."""


def read_imports() -> dict[str, set[str]]:
    """Return the modules of distlaunch that each module imports, or names in a string."""
    paths = {
        ".".join(("distlaunch", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in PACKAGE.rglob("*.py")
    }
    imports: dict[str, set[str]] = {}
    for name, path in paths.items():
        modules = imports[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                full_names = {f"{node.module}.{alias.name}" for alias in node.names}
                modules |= {full if full in paths else node.module for full in full_names}
            elif isinstance(node, ast.Constant) and "." in str(node.value):
                modules.add(str(node.value))
        imports[name] = (modules & paths.keys()) - {name}
        imports[name] -= {other for module, other in STARTED if module == name}
    return imports


IMPORTS = read_imports()


def room(module: str) -> str:
    """Return the room of ``distlaunch.ROOM.module``, '' for `distlaunch` itself."""
    return module.partition(".")[2].partition(".")[0]


def test_imports_are_read_from_the_source():
    assert "distlaunch.errors" in IMPORTS["distlaunch.job.model"]
    assert "distlaunch.job.vertex.to_job" in IMPORTS["distlaunch.job.load"]  # within a function
    assert "distlaunch.job.yaml_document" in IMPORTS["distlaunch.job.vertex.proto"]  # a type


@pytest.mark.parametrize("name", sorted({room(module) for module in IMPORTS} - {"cli", "__main__"}))
def test_a_room_imports_only_what_is_below_it(name):
    violations = {
        (module, imported)
        for module, modules in IMPORTS.items()
        for imported in modules
        if room(module) == name and room(imported) != name
        if room(imported) not in ALLOWED[name]
    }
    assert not violations


def room_imports() -> dict[str, set[str]]:
    rooms: dict[str, set[str]] = {}
    for module, modules in IMPORTS.items():
        rooms.setdefault(room(module), set()).update(map(room, modules))
    return {name: others - {name} for name, others in rooms.items()}


@pytest.mark.parametrize("graph", [room_imports(), IMPORTS], ids=["rooms", "modules"])
def test_there_is_no_import_cycle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


def test_class_names_exist_once():
    modules: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: paths for name, paths in modules.items() if len(paths) > 1}
