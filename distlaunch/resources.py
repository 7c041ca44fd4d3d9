"""The paths of skeleton and templates: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

from distlaunch.errors import UsageError, did_you_mean

DESCRIPTION = "DESCRIPTION"  # a starter's file with its one line for `init --list`
TRAINER = "distlaunch_trainer"  # the trainer package
COPIED = "distributed"  # what it was before: a folder beside the job's module

_HERE = Path(__file__).parent


def skeleton() -> Path:
    """Return the folder with ``base`` and ``starters``."""
    return _folder("trainer_skeleton")


def templates() -> Path:
    """Return the folder with the templates of `render`."""
    return _folder("templates")


def trainer_package() -> Path:
    """Return the folder of the installed trainer package, without importing it."""
    in_checkout = _HERE.parent / "trainer_skeleton" / "runtime" / TRAINER
    return in_checkout if in_checkout.is_dir() else _HERE.parent / TRAINER


def starters() -> dict[str, str]:
    """Return the names of the starters, each with its one-line description."""
    paths = sorted((skeleton() / "starters").glob(f"*/{DESCRIPTION}"))
    return {path.parent.name: path.read_text(encoding="utf-8").strip() for path in paths}


def starter(name: str) -> Path:
    """Return the folder of a starter.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    known = starters()
    if name not in known:
        hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
        raise UsageError(f"no starter {name!r}{hint}")
    return skeleton() / "starters" / name


def _folder(name: str) -> Path:
    packed = _HERE / name
    return packed if packed.is_dir() else _HERE.parent / name
