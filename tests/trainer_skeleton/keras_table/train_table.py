"""Trains the rows of the table, as a script: by Keras alone, or on a cluster.

    python train_table.py FOLDER GROUPS.json

GROUPS.json is a list of lists of rows, those to be trained in one model. The chief writes what
each ends with as FOLDER/arrays.npz, by "row|name", and the errors as FOLDER/errors.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rows import train  # noqa: E402 - after the types are set


def train_group(rows: list[str], arrays: dict[str, Any], errors: dict[str, str]) -> None:
    """Train these rows together, or, where that fails, one after the other."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    try:
        found = train(rows)
    except Exception as error:  # noqa: BLE001 - whatever it is: errors are results
        if len(rows) > 1:
            for row in rows:
                train_group([row], arrays, errors)
            return
        errors[rows[0]] = f"{type(error).__name__}: {error}"
        return
    for row, values in found.items():
        arrays |= {f"{row}|{name}": value for name, value in values.items()}


def main(folder: Path, groups: list[list[str]]) -> None:
    arrays: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for rows in groups:
        start = time.monotonic()
        train_group(rows, arrays, errors)
        print(f"{time.monotonic() - start:.2f} s: {rows[0]} and {len(rows) - 1} more", flush=True)
    task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {"type": "chief"})
    if task["type"] == "chief":
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "arrays.npz", **arrays)
        (folder / "errors.json").write_text(json.dumps(errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
