"""The rooms of the trainer package: imports go one way, and a newcomer can read each file."""

from __future__ import annotations

import ast

from distlaunch import resources

PACKAGE = resources.trainer_package()
ORDER = (
    *("errors", "slurm", "options", "training_state", "keras_compat", "task", "cluster", "report"),
    *("input", "step", "model", "saving", "loop", "parameter_server", "run_facts", "process"),
    *("run_start", "evaluator_task", "fit", "loop_choice", "run", "__init__"),
)
"""Rooms, and modules without one: each imports only those before it."""

MOST_LINES = 400
MOST_MODULES = 8  # that lie beside the rooms, besides __init__


def rooms_that_import() -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first imports the second."""
    pairs = set()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                pairs |= {(parts[0], name) for name in imported(node, parts)}
    return {(one, other) for one, other in pairs if one != other}


def imported(node: ast.ImportFrom, parts: tuple[str, ...]) -> set[str]:
    """Return the rooms that a statement imports from, in a module of these parts."""
    module = (node.module or "").split(".") if node.module else []
    if node.level:
        path = [*parts[: len(parts) - node.level], *module]
    elif module[:1] == [PACKAGE.name]:
        path = module[1:]
    else:
        return set()
    return {path[0]} if path else {alias.name for alias in node.names}


def test_rooms_import_those_before_them():
    pairs = rooms_that_import()
    assert {room for pair in pairs for room in pair} <= {*ORDER}
    assert not {pair for pair in pairs if ORDER.index(pair[0]) < ORDER.index(pair[1])}


def test_files_are_short_and_most_are_in_rooms():
    long = [path for path in PACKAGE.rglob("*.py") if path.read_text().count("\n") > MOST_LINES]
    assert long == []
    assert len([*PACKAGE.glob("*.py")]) <= MOST_MODULES + 1
