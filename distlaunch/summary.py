"""``summary.json`` of a job folder: what a job's program leaves behind, read and as text.

docs/schemas/summary.json describes it, and tests/golden/summary.json is one that the trainer wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - of a dataclass
from dataclasses import dataclass, field, fields
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from distlaunch import files
from distlaunch.job.model import describe_tasks
from distlaunch.job.tasks import TASK_TYPES
from distlaunch.text import Table, percent

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "summary.json"
PARTS = ("input", "compute", "exchange", "wait")
"""The parts of a step in `Timing`."""

VALIDATION = "val_"
"""The prefix of a metric of the validation."""

IN_WORDS = {
    "compute": "compute",
    "exchange": "exchange",
    "wait": "waiting for the slowest task",
    "input": "input",
}
"""The parts as they are shown."""

_WHOLE = 100.0  # milliseconds, from which no decimals are shown
_BETTER_LOW = ("loss", "error", "entropy", "perplexity", "divergence", "mae", "mse")
_BETTER_HIGH = ("acc", "auc", "precision", "recall", "f1", "iou", "score")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a step: the whole and its parts, and who came last to the all-reduce."""

    total: float
    input: float
    compute: float
    exchange: float
    wait: float
    slowest: Mapping[str, float]  # the share of steps in which a task was the last one

    def share(self, part: str) -> float:
        """Return the share of the step that a part takes."""
        value: float = getattr(self, part)
        return value / self.total if self.total > 0 else 0.0

    def __str__(self) -> str:
        """Return where the time went, such as ``2.5 ms: compute 80 %, exchange 20 %``."""
        shares = [(name, self.share(part)) for part, name in IN_WORDS.items()]
        shown = [f"{name} {percent(share)}" for name, share in shares if share >= 1 / 200]
        return f"{milliseconds(self.total)}: {', '.join(shown)}"


@dataclass(frozen=True, slots=True)
class Epoch:
    """The record of an epoch, or of a part of one."""

    number: float
    step: float | None
    examples_per_second: float | None
    logs: Mapping[str, float]  # metrics of one number; those with one a class are left out
    timing: Timing | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts of ``summary.json`` that are read here; what is damaged or missing is left out."""

    tasks: tuple[str, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    timing: Timing | None = None
    task_timings: Mapping[str, Timing] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # training and validation
    data_modules: str = ""  # a hash of data.py and the modules beside it
    machine: Mapping[str, Any] = field(default_factory=dict)  # of the chief
    model: str = ""
    global_batch: float | None = None
    steps: float | None = None
    steps_per_epoch: float | None = None
    examples_per_epoch: float | None = None
    validation_examples: float | None = None
    examples_per_second: float | None = None
    gradient_bytes: float | None = None
    resumed_from: float | None = None
    restarts: float | None = None

    @classmethod
    def parse(cls, content: Mapping[str, Any] | None) -> Summary:
        """Return what a file has; None is no file."""
        get = (content or {}).get
        tasks = _section(_section(get("timing")).get("tasks")).items()
        names = [each.name for each in fields(cls) if each.type == "float | None"]
        return cls(
            tasks=tuple(map(str, _list(get("tasks")))),
            epochs=tuple(_epoch(*each) for each in enumerate(_list(get("epochs")), start=1)),
            timing=_timing(get("timing")),
            task_timings={name: each for name, content in tasks if (each := _timing(content))},
            data=_section(get("data")),
            data_modules=_text(get("data_modules")),
            machine=_section(get("machine")),
            model=_text(get("model")),
            **{name: as_number(get(name)) for name in names},
        )

    @property
    def input_options(self) -> list[str] | None:
        """The trainer's options of reading that have an effect on the training data."""
        options = _section(self.data.get("training")).get("options")
        return options if isinstance(options, list) else None

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers of the last epoch's logs."""
        return dict(self.epochs[-1].logs) if self.epochs else {}

    @property
    def curves(self) -> dict[str, dict[str, dict[float, float]]]:
        """The values by epoch of each metric and its validation, by their names."""
        curves: dict[str, dict[str, dict[float, float]]] = {}
        for epoch in self.epochs:
            for name, value in epoch.logs.items():
                of_metric = curves.setdefault(name.removeprefix(VALIDATION), {})
                of_metric.setdefault(name, {})[epoch.number] = value
        return curves

    def best(self, metric: str) -> Epoch | None:
        """Return the epoch with the best value of a metric, None where that is not known."""
        is_low = is_better_low(metric)
        known = [epoch for epoch in self.epochs if isfinite(epoch.logs.get(metric, nan))]
        if is_low is None or not known:
            return None
        return (min if is_low else max)(known, key=lambda epoch: epoch.logs[metric])


def is_better_low(metric: str) -> bool | None:
    """Return whether a metric is the better the lower it is, by its name; None if unknown."""
    for words, is_low in ((_BETTER_LOW, True), (_BETTER_HIGH, False)):
        if any(word in metric.lower() for word in words):
            return is_low
    return None


def milliseconds(seconds: float) -> str:
    """Return a time such as ``2.51 ms`` or ``1,213 ms``."""
    amount = 1e3 * seconds
    return f"{amount:,.0f} ms" if amount >= _WHOLE else f"{amount:.3g} ms"


def read(path: Path) -> dict[str, Any] | None:
    """Return the content of a file on this machine, None if it cannot be read."""
    try:
        return files.read_object(path)
    except (OSError, ValueError):
        return None


def describe(content: Mapping[str, Any], *, with_epochs: bool = True) -> list[str | Table]:
    """Return a few lines of facts and a table of the epochs, or if they were shown the last one."""
    summary = Summary.parse(content)
    last = "  ".join(f"{name} {value:.4f}" for name, value in summary.metrics.items())
    named = [*facts_of(summary), ("last epoch", "" if with_epochs else last)]
    facts = [(name, text) for name, text in named if text]
    parts: list[str | Table] = [str(Table(facts, flush_left=True))] if facts else []
    if summary.epochs and with_epochs:
        parts.append(epoch_table(summary))
    return parts


def facts_of(summary: Summary) -> list[tuple[str, str]]:
    """Return the facts of a summary as names and texts."""
    kinds = Counter(name.partition(":")[0] for name in summary.tasks)
    trained = _count(summary.examples_per_epoch)
    validated = _count(summary.validation_examples or None, " (and {} for validation)")
    named = [
        ("tasks", describe_tasks([kinds[kind] for kind in TASK_TYPES]) if kinds else ""),
        ("global batch", _count(summary.global_batch)),
        ("steps per epoch", _count(summary.steps_per_epoch)),
        ("examples per epoch", trained and trained + validated),
        ("speed", _count(summary.examples_per_second, "{} examples/s")),
        ("step time", str(summary.timing or "")),
        ("resumed", _count(summary.resumed_from, "from step {}")),
        ("restarts", _count(summary.restarts)),
        ("model", summary.model),
    ]
    return [(name, text) for name, text in named if text]


def epoch_table(summary: Summary) -> Table:
    """Return a row for each epoch: its loss and metrics, each beside its validation."""
    columns = [name for of_metric in summary.curves.values() for name in of_metric]
    head = ["epoch", "step", *columns, "examples/s"]
    rows = [
        [
            _count(epoch.number),
            _count(epoch.step),
            *(_count(epoch.logs.get(name), "{}", ".4f") for name in columns),
            _count(epoch.examples_per_second),
        ]
        for epoch in summary.epochs
    ]
    step, speed, *others = 1, len(head) - 1, *range(len(head) - 2, 2, -1)
    return Table([head, *rows], optional=[step, speed, *others])


def _count(number: float | None, template: str = "{}", form: str = ",.0f") -> str:
    return "" if number is None else template.format(f"{number:{form}}")


def _epoch(place: int, value: object) -> Epoch:
    """Return the record at a place in the list, which is its number if it has none."""
    content = _section(value)
    logs = _section(content.get("logs")).items()
    number = as_number(content.get("epoch"))
    return Epoch(
        place if number is None else number,
        as_number(content.get("step")),
        as_number(content.get("examples_per_second")),
        {name: number for name, value in logs if (number := as_number(value)) is not None},
        _timing(content.get("timing")),
    )


def _timing(content: object) -> Timing | None:
    """Return a timing, None if a part of it is missing or it has no time."""
    section = _section(content)
    names = ("total", *PARTS)
    parts = {name: value for name in names if (value := as_number(section.get(name))) is not None}
    if len(parts) < len(names) or not parts["total"]:
        return None
    slowest = _section(section.get("slowest")).items()
    shares = {name: as_number(share) or 0.0 for name, share in slowest}
    return Timing(**parts, slowest=shares)


def _section(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_number(value: object) -> float | None:
    """Return a reported value as it is; None if it is no number or too large for one."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        float(value)
    except OverflowError:
        return None
    return value
