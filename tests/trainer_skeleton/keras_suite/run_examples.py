"""Trains the examples with Keras's `fit`, and with the trainer on the same batches.

    python -m run_examples --results FILE NAME...

The results are weights and history of both, as JSON, or the error of one.
"""

from __future__ import annotations

import argparse
import json
import traceback
from pathlib import Path
from typing import Any

import fit_adapter
import keras
import numpy as np
from examples import BATCH, EXAMPLES


def train(name: str) -> dict[str, Any]:
    try:
        return weights_and_history(name)
    except Exception:  # noqa: BLE001 - whatever it raises
        return {"error": traceback.format_exc()}


def weights_and_history(name: str) -> dict[str, Any]:
    keras.backend.clear_session()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    keras.utils.set_random_seed(3)
    model, arguments = EXAMPLES[name]()
    model.jit_compile = False  # the same operations, and less to compile
    if isinstance(arguments["x"], (np.ndarray, list, dict)):
        arguments = {"batch_size": BATCH, "shuffle": False, **arguments}
    history = model.fit(**arguments, epochs=2, verbose=0).history
    return {
        "weights": {
            f"{number} {v.path.rpartition('/')[2]}": np.asarray(v.value, float).tolist()
            for number, v in enumerate([*model.variables, *model.optimizer.variables])
            if v.dtype != "string"
        },
        "history": {name: np.asarray(values, float).tolist() for name, values in history.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=list(EXAMPLES))
    options = parser.parse_args()
    results = {"fit": {name: train(name) for name in options.names}}
    fit_adapter.replace_fit()
    results["trainer"] = {name: train(name) for name in options.names}
    options.results.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
