"""The direction of imports: data flows from the job file to the command line and never back."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "distlaunch"

SHARED = {
    *("", "background", "errors", "exit_codes", "failure_reasons", "files", "paths", "resources"),
    *("metric_file", "notify", "python_command", "retry", "source_version", "text"),
    "timestamps",
}
"""Small modules without a room, and `distlaunch` itself; they import only each other."""

ALLOWED = {
    **dict.fromkeys(SHARED, SHARED),
    "job": SHARED,
    "ui": {*SHARED, "job"},
    "redaction": {*SHARED, "image", "job"},
    "render": {*SHARED, "job", "image", "redaction"},
    "google": {*SHARED, "job", "ui"},
    "image": {*SHARED, "job", "ui", "google"},
    "local": {*SHARED, "job", "ui", "image"},
    "compare": {*SHARED, "job", "ui", "local"},
    "emulator": {*SHARED, "job", "ui", "local", "image"},
    "checks": {*SHARED, "job", "ui", "render", "google", "image"},
    "submit": {*SHARED, "job", "ui", "render", "google", "image", "checks", "redaction"},
    "tune": {*SHARED, "job", "ui", "local", "redaction"},
    "runs": {*SHARED, "job", "ui", "google", "local", "checks", "redaction"},
    "forecast": {*SHARED, "job", "checks", "local"},
    "scaffold": {*SHARED, "job"},
}
"""What each room imports, also within functions; `cli` and `__main__` may import everything."""

ONLY = {
    ("emulator", "image"): "distlaunch.image.docker",
    ("local", "image"): "distlaunch.image.docker",
}
"""The one module of a room that another may import."""


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def statements(node: ast.AST):
    """Yield all nodes below a node, without those for type checkers only."""
    for child in ast.iter_child_nodes(node):
        yield child
        if is_type_checking(child):
            for other in child.orelse:
                yield from statements(other)
        else:
            yield from statements(child)


def read_imports() -> dict[str, set[str]]:
    """Return the modules of distlaunch that each module imports, also within functions."""
    paths = {
        ".".join(("distlaunch", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in PACKAGE.rglob("*.py")
    }
    imports: dict[str, set[str]] = {}
    for name, path in paths.items():
        modules = imports[name] = set()
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                full_names = {f"{node.module}.{alias.name}" for alias in node.names}
                modules |= {full if full in paths else node.module for full in full_names}
        imports[name] = (modules & paths.keys()) - {name}
    return imports


IMPORTS = read_imports()


def room(module: str) -> str:
    """Return the room of ``distlaunch.ROOM.module``, '' for `distlaunch` itself."""
    return module.partition(".")[2].partition(".")[0]


def test_imports_are_read_from_the_source():
    assert "distlaunch.errors" in IMPORTS["distlaunch.job.model"]
    assert "distlaunch.job.vertex.parse" in IMPORTS["distlaunch.job.load"]  # within a function
    assert "distlaunch.job.yaml_document" not in IMPORTS["distlaunch.job.vertex.proto"]  # a type


@pytest.mark.parametrize("name", sorted({room(module) for module in IMPORTS} - {"cli", "__main__"}))
def test_a_room_imports_only_what_is_below_it(name):
    violations = {
        (module, imported)
        for module, modules in IMPORTS.items()
        for imported in modules
        if room(module) == name and room(imported) != name
        if room(imported) not in ALLOWED[name]
        or ONLY.get((name, room(imported)), imported) != imported
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
