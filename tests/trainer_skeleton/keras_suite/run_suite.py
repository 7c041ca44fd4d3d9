"""Runs Keras's own tests, as the keras wheel ships them.

    python -m run_suite --results FILE [--with-trainer] TEST...

A test is a file below keras/src, e.g. callbacks/early_stopping_test.py, or one of its tests by
pytest's name. The results are each test's outcome and message as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

import fit_adapter
import keras
import pytest

if TYPE_CHECKING:
    from distlaunch_trainer.fit.session import Session

TESTS = Path(keras.src.__file__).parent


class Collected:
    """A plugin that records the outcomes of tests, each with a report of its own."""

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self.results: dict[str, tuple[str, str]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "requires_trainable_backend: a marker of Keras's")

    def pytest_runtest_setup(self) -> None:
        if self._session:
            self._session.report = fit_adapter.new_report()

    def pytest_collection_finish(self) -> None:
        del sys.modules["jax"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.partition("keras/src/")[2]
            self.results[name] = (report.outcome, str(report.longrepr or ""))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.results[report.nodeid] = ("failed", str(report.longrepr))


def stand_in_modules() -> None:
    """Provide what the files import besides what the wheel ships and needs."""
    sys.modules["jax"] = types.ModuleType("jax")  # for the tests of that backend
    conftest = types.ModuleType("conftest")  # Keras's own, which is not in the wheel
    conftest.skip_if_backend = lambda name, reason: pytest.mark.skipif(
        keras.backend.backend() == name, reason=reason
    )
    sys.modules["conftest"] = conftest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--with-trainer", action="store_true")
    parser.add_argument("tests", nargs="+")
    options = parser.parse_args()
    session = fit_adapter.replace_fit() if options.with_trainer else None
    stand_in_modules()
    collected = Collected(session)
    settings = [
        "-c",
        os.devnull,
        "--rootdir=/",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
    ]
    pytest.main([*settings, *[str(TESTS / name) for name in options.tests]], [collected])
    options.results.write_text(json.dumps(collected.results))


if __name__ == "__main__":
    main()
