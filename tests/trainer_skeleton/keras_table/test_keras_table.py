"""The table of docs/look-up/keras.md: it has each public symbol, and what it promises was run.

`make laws` trains all rows on one worker and on two; without it, a task with two devices some.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from ..conftest import environment_outside_clusters  # noqa: TID252
from ..runs.conftest import LAWS  # noqa: TID252

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "tools/site"
# Scripts and tools are no packages.
sys.path[:0] = [str(HERE), str(TABLE)]
import cases  # noqa: E402
import keras_table  # noqa: E402
import rows as table_rows  # noqa: E402

del sys.path[:2]

ROWS = [*keras_table.rows()]
QUICK = {
    *("keras.losses.Circle", "keras.metrics.Metric", "keras.optimizers.Muon"),
    *("tf.data.Dataset.filter", "tf.data.Dataset.interleave"),
}
SIZES = ("1", "2")
TOLERANCE = 1e-7


def names_of(module: str) -> set[str]:
    place = tf.data.Dataset if module == "tf.data.Dataset" else cases.symbol_of(module)
    return {name for name in dir(place) if not name.startswith("_")}


def is_installed(row: keras_table.Row) -> bool:
    """Return whether this Keras has the symbol; the table has those of the newest."""
    return row.symbol in names_of(row.module)


TRAINED = [
    row
    for row in ROWS
    if row.kind != "none" and is_installed(row) and (LAWS or row.trained in QUICK)
]


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(row, id=row.trained) for row in TRAINED if row.kind == kind]


@pytest.mark.parametrize("module", sorted({row.module for row in ROWS}))
def test_each_public_symbol_has_a_row(module):
    of_module = {row.symbol for row in ROWS if row.module == module}
    missing = names_of(module) - of_module
    assert not missing, f"add rows to {keras_table.DATA.name}"


def test_rows_exist_once():
    names = [(row.module, row.name) for row in ROWS]
    assert len(names) == len(set(names))


def groups(rows: list[keras_table.Row]) -> list[list[str]]:
    """Return the rows to train, those in one list in one model."""
    same = [row.trained for row in rows if row.kind == "same"]
    same.sort(key=table_rows.group_of)
    together = [[*each] for _, each in groupby(same, table_rows.group_of)]
    return together + [[row.trained] for row in rows if row.kind == "refused"]


@pytest.fixture(scope="module")
def trained(tensorflow, tmp_path_factory) -> Callable[[str, str], Path]:
    """Train the rows that need an option on a cluster of a size, once; return the results."""

    @cache
    def run(size: str, option: str) -> Path:
        folder = tmp_path_factory.mktemp("table")
        for path in HERE.glob("*.py"):
            shutil.copy(path, folder)
        kinds = ("same", "refused") if size == SIZES[1] else ("same",)
        rows = [row for row in TRAINED if option_of(row) == option and row.kind in kinds]
        (folder / "groups.json").write_text(json.dumps(groups(rows)))
        words = ["--no-resume", *filter(None, [option]), "train_table.py", "results", "groups.json"]
        env = environment_outside_clusters()
        if LAWS:
            job = {"name": "table", "module": "distlaunch_trainer.fit", "args": words}
            job["cluster"] = {"chief": {"machine": "n1-standard-4"}}
            (folder / "distlaunch.yaml").write_text(json.dumps(job))
            local = ("local", "--workers", size, "--job-dir", "job")
            result = tensorflow.run("distlaunch", *local, cwd=folder, env=env)
        else:
            env["DISTLAUNCH_DEVICES"] = size
            result = tensorflow.run("distlaunch_trainer.fit", *words, cwd=folder, env=env)
        assert result.code == 0, result.text
        return folder / "results"

    return run


def option_of(row: keras_table.Row) -> str:
    return row.text.split()[0] if row.text.startswith("--") else ""


def errors_in(folder: Path) -> dict[str, str]:
    return json.loads((folder / "errors.json").read_text())


def arrays_of(folder: Path, row: str) -> dict[str, np.ndarray]:
    with np.load(folder / "arrays.npz") as values:
        return {name: values[name] for name in values.files if name.startswith(f"{row}|")}


@pytest.mark.slow
@pytest.mark.parametrize("row", of_kind("same"))
def test_same(trained, row):
    one, two = (trained(size, option_of(row)) for size in SIZES)
    assert [errors_in(folder).get(row.trained) for folder in (one, two)] == [None, None]
    expected, found = arrays_of(one, row.trained), arrays_of(two, row.trained)
    assert expected
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        most = TOLERANCE * max(1.0, np.abs(values).max(initial=0))
        np.testing.assert_allclose(found[name], values, rtol=0, atol=most, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("row", of_kind("refused"))
def test_refused(trained, row):
    assert row.text in errors_in(trained(SIZES[1], option_of(row))).get(row.trained, "")
