"""What the benchmarks share: a project to train, rounds that alternate, and what is printed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

IMAGES = Path(__file__).with_name("images")


def options(description: str, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the option that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    text = f"measurements of each, after one that warms up ({rounds}); 0 for a short one alone"
    parser.add_argument("--rounds", type=int, default=rounds, help=text)
    return parser


def alternate(ways: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Return what each way measured in each round, run in turn; the first round warms up.

    It counts if it is the only one. A way is called with the number of the round. What it measured
    is logged to stderr, as there may be minutes between two figures.
    """
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            figures[name].append(way(number))
            line = f"round {number} of {rounds}: {name}: {figures[name][-1]:,.2f}"
            print(line, file=sys.stderr, flush=True)
    return {name: values[1:] or values for name, values in figures.items()}


def show(figures: Mapping[str, list[float]], unit: str, digits: int = 0) -> None:
    """Print the median of each way, with the least and the most of its rounds."""
    width = max(map(len, figures))
    for name, values in figures.items():
        median, least, most = (
            f"{value:9,.{digits}f}"
            for value in (statistics.median(values), min(values), max(values))
        )
        print(f"{name:{width}} {median} {unit}   ({least.strip()} - {most.strip()})")


@dataclass(frozen=True)
class Limit:
    """How two ways have to compare; one of `least` and `most` is set.

    What counts is the median of the rounds' ratios: the two of a round ran one after the other, and
    so in the same mood of the machine.
    """

    above: str
    below: str
    least: float | None = None
    most: float | None = None

    def is_held(self, figures: Mapping[str, list[float]]) -> bool:
        """Compare, and print it."""
        above, below = figures[self.above], figures[self.below]
        by_round = [a / b for a, b in zip(above, below, strict=True)]
        ratio = statistics.median(by_round)
        limit = f"{self.least} or more" if self.most is None else f"{self.most}"
        print(
            f"{self.above} / {self.below}: ratio {ratio:.2f}, limit {limit}   "
            f"({min(by_round):.2f} - {max(by_round):.2f} by round)"
        )
        return (self.least or 0) <= ratio <= (self.most or ratio)


def verdict(figures: Mapping[str, list[float]], *limits: Limit) -> int:
    """Print how the ways compare; return 0 if every limit is held, else 1."""
    held = [limit.is_held(figures) for limit in limits]
    return 0 if all(held) else 1


def distlaunch(words: list[str], folder: Path, *, expected: int = 0, **variables: str) -> None:
    """Run a command of distlaunch's, with environment variables of its own."""
    command = [sys.executable, "-m", "distlaunch", *words]
    environment = os.environ | variables
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != expected:
        raise SystemExit(f"{' '.join(command)}: code {done.returncode}\n{done.stderr}")


def run_python(words: list[str]) -> None:
    """Run Python quietly."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: code {done.returncode}\n{done.stderr}")


def make_project(folder: Path, files: Path | None = None) -> Path:
    """Make a project that trains; `files` holds a model.py and a data.py to put in it."""
    distlaunch(["init", str(folder)], folder.parent)
    for name in ("model.py", "data.py") if files else ():
        shutil.copy(files / name, folder / "trainer" / name)
    return folder


def train(project: Path, job: str, words: list[str], *, workers: int = 2, **variables: str) -> Path:
    """Train with ``distlaunch local`` and return the job's folder."""
    local = ["local", "--workers", str(workers), "--job-dir", job]
    distlaunch([*local, "--", *words], project, **variables)
    return project / job


def events(job: Path, task: str = "chief") -> list[dict[str, Any]]:
    """Return the events that a task wrote while it trained."""
    path = job / f"task-logs/attempt-1/{task}.events.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def first_step(job: Path, began: float) -> float:
    """Return the seconds from `began` to the end of the chief's first step."""
    for event in events(job):
        if event["event"] == "step":
            return event["time"] - began
    raise SystemExit(f"{job} has no step event")


def examples_per_second(job: Path) -> float:
    """Return the rate of the epochs after the first, with what was done between two epochs."""
    epochs = [event for event in events(job) if event["event"] == "epoch"]
    return steady_rate([event["time"] for event in epochs], epochs[-1]["examples"])


def steady_rate(ends: list[float], examples: int) -> float:
    """Return the examples per second of epochs that ended at these times, without the first."""
    return examples * (len(ends) - 1) / (ends[-1] - ends[0])


@contextlib.contextmanager
def pinned_to(cores: list[int]) -> Iterator[None]:
    """Hold this process, and so what it starts, to some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
