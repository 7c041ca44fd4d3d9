"""The paths of skeleton and templates: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distlaunch.errors import UsageError, did_you_mean

FACTS = "starter.yaml"  # of a starter; docs/look-up/starters.md has its keys
TRAINER = "distlaunch_trainer"  # the trainer package
KERAS, TENSORFLOW = ">=3.12,<3.16", ">=2.21,<2.22"  # see docs/dependencies.md
INSTALL_TENSORFLOW = f"pip install 'keras{KERAS}' 'tensorflow{TENSORFLOW}'"

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


def starters() -> dict[str, dict[str, Any]]:
    """Return the facts of each starter by its name."""
    import yaml

    paths = sorted((skeleton() / "starters").glob(f"*/{FACTS}"))
    return {path.parent.name: yaml.safe_load(path.read_text("utf-8")) for path in paths}


def starter(name: str) -> tuple[dict[str, Any], list[Path]]:
    """Return a starter's facts, and its folders: those of the starters that it extends first.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    known = starters()
    if name not in known:
        hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
        raise UsageError(f"no starter {name!r}{hint}")
    folder = skeleton() / "starters" / name
    if "extends" not in known[name]:
        return known[name], [folder]
    facts, folders = starter(known[name]["extends"])
    return facts | known[name], [*folders, folder]


def _folder(name: str) -> Path:
    packed = _HERE / name
    return packed if packed.is_dir() else _HERE.parent / name
