"""``--set cluster.workers.count=7`` and other values of the command line that override a file."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.errors import UsageError
from distlaunch.job.model import ChoiceParameter
from distlaunch.job.tasks import POOL_ROLES
from distlaunch.job.yaml_document import Document, YamlProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from distlaunch.job.model import Job, Machine, MachineChoice, Pool, RangeParameter

_STEP = re.compile(r"""\.((?P<quote>["'])(?P<quoted>.*?)(?P=quote)|(?P<plain>[^."'\s]+))""")
_EXAMPLE = "expected an assignment such as cluster.workers.count=7"
_STRUCTURED = ("[", "{", '"', "'")  # first characters of a value that is YAML


@dataclass(frozen=True, slots=True)
class Override:
    """A value (text, a list, a section or None) for one path of the job file."""

    path: tuple[str, ...]
    value: Any
    option: str  # of the command line: ``--set cluster.workers.count``

    @classmethod
    def parse(cls, text: str) -> Override:
        """Parse ``a.b=c``; names with dots are quoted, and items of a list are counted from 0.

        A value is text, but for lists, sections and quotes, which are YAML.
        """
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {_printable(text)}: no value; {_EXAMPLE}")
        return cls(_parse_path(name), _parse_value(name, value), f"--set {_printable(name)}")


def override(
    document: Document, overrides: Iterable[Override], data: dict[str, Any] | None = None
) -> Document:
    """Return a document with overrides applied, to its data or to others in their place."""
    document.data = document.data if data is None else data
    for each in overrides:
        document.data = _apply(document.data, each.path, each)
        document.options.append((each.path, each.option))
    return document


def _parse_path(name: str) -> tuple[str, ...]:
    steps = list(_STEP.finditer(f".{name}"))
    if "".join(match[0] for match in steps) != f".{name}":
        raise UsageError(f"--set: {name!r} is not a field name; {_EXAMPLE}")
    return tuple(match["quoted"] if match["quote"] else match["plain"] for match in steps)


def _parse_value(name: str, text: str) -> Any:
    if not text.startswith(_STRUCTURED):
        return None if text in ("", "null", "~") else text
    try:
        document = Document(f"value: {text}")
    except YamlProblem as problem:
        raise UsageError(f"--set {name}: {problem.message}") from None
    if document.problems:
        raise UsageError(f"--set {name}: {document.problems[0].text}")
    if document.data.keys() != {"value"}:
        raise UsageError(f"--set {name}: expected one value, got more than one line")
    return document.data["value"]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _apply(data: Any, path: tuple[str, ...], override: Override) -> Any:
    """Return a copy of the data with the override's value at a path."""
    if not path:
        return override.value
    step, rest = path[0], path[1:]
    if data is None and step.isdecimal():
        data = []
    if isinstance(data, list | tuple):
        index = _parse_index(step, data, override)
        items = [*data, None] if index == len(data) else list(data)
        items[index] = _apply(items[index], rest, override)
        return items
    section = dict(data) if isinstance(data, dict) else {}
    section[step] = _apply(section.get(step), rest, override)
    return section


def _parse_index(step: str, items: Sequence[Any], override: Override) -> int:
    known = f"0 to {len(items)}" if items else "0"
    if not re.fullmatch(r"[0-9]{1,9}", step, re.ASCII) or int(step) > len(items):
        raise UsageError(f"{override.option}: invalid list index {step!r}; expected {known}")
    return int(step)


def job_data(job: Job) -> dict[str, Any]:
    """Return a job as the data of distlaunch.yaml, without the programs of its pools."""
    pools = zip(POOL_ROLES, job.cluster.pools, strict=True)
    data = asdict(job) | {"cluster": {role.field: _pool_data(pool) for role, pool in pools if pool}}
    del data["cluster"]["chief"]["count"]
    data["scheduling"]["machines"] = [*map(_choice_data, job.scheduling.machines)]
    if job.stop_if:
        data["stop_if"] = {"gpu_below": job.stop_if.gpu_below, "for": job.stop_if.seconds}
    if job.tuning:
        parameters = job.tuning.parameters.items()
        data["tuning"]["parameters"] = {name: _parameter_data(value) for name, value in parameters}
    return data


def _pool_data(pool: Pool) -> dict[str, Any]:
    return _machine_data(pool.machine) | {"gpus": pool.machine.gpus, "count": pool.count}


def _machine_data(machine: Machine) -> dict[str, Any]:
    accelerator = {"type": machine.accelerator, "count": machine.accelerator_count}
    return {
        "machine": machine.type or None,
        "accelerator": accelerator if machine.accelerator else None,
    }


def _choice_data(choice: MachineChoice) -> dict[str, Any]:
    data = _machine_data(choice.machine) if choice.machine else {}
    return data | {field: _machine_data(machine) for field, machine in choice.pools.items()}


def _parameter_data(value: RangeParameter | ChoiceParameter) -> dict[str, Any]:
    if isinstance(value, ChoiceParameter):
        kind = "double" if value.is_numeric else None
        return {"type": kind, "values": value.values, "scale": value.scale}
    kind = "integer" if value.is_integer else "double"
    return {"type": kind, "min": value.minimum, "max": value.maximum, "scale": value.scale}
