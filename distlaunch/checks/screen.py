"""A report as a person reads it: the plan, the problems, and whether it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.ui.console import GREEN, RED, YELLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distlaunch.checks.problem import Problem, Severity
    from distlaunch.checks.report import Report
    from distlaunch.image import ImagePlan

_INDENT = " " * 11
_EMULATED = "checks of project, bucket and quotas skipped: the endpoint is an emulator"
_COLOURS: dict[Severity, int] = {"error": RED, "warning": YELLOW}


def whole(report: Report, paint: Callable[[str, int], str]) -> str:
    """Return all of it, the line that says whether the job is ready at the end.

    Parameters
    ----------
    paint
        Gives text a colour, where its reader sees colours.
    """
    last = paint(verdict(report), GREEN if report.is_ready else RED)
    parts = [plan(report), machines(report), problems(report, paint), last]
    return "\n\n".join(filter(None, parts))


def plan(report: Report) -> str:
    """Return what is going to happen: the cluster, the data, the image's way, the price."""
    asked = report.asked
    where = f"in {asked.region or 'no region'}, project {asked.project or 'unknown'}"
    rows = [
        *_named("cluster", _cluster(report)),
        *_named("data", report.data.lines() if report.data else ()),
        *_named("image", _image(report)),
        *_named("price", report.cost.lines() if report.cost else ()),
        *_named("cloud", (_EMULATED,) if report.is_emulated else ()),
    ]
    told = [f"{name:<{len(_INDENT)}}{text}" for name, text in rows]
    return "\n".join([f"{asked.name}: {report.cluster} {where}", *told])


def problems(report: Report, paint: Callable[[str, int], str]) -> str:
    """Return the problems, the gravest first, each with its remedy and its code; or nothing."""
    return "\n".join(line for each in report.problems for line in _problem(each, paint))


def verdict(report: Report) -> str:
    """Return the line that says whether the job is ready."""
    if not report.is_checked:
        return "not checked"
    counts = [_counted(len(report.of(kind)), kind) for kind in _COLOURS]
    told = ", ".join(filter(None, counts))
    word = "ready" if report.is_ready else "not ready"
    return f"{word}: {told}" if told else word


def machines(report: Report) -> str:
    """Return the job on each machine type that could run it, by price; nothing if not asked."""
    if not report.offers:
        return ""
    from distlaunch.checks.price import comparison

    return comparison(report.offers)


def _named(name: str, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        yield name, line
        name = ""


def _cluster(report: Report) -> Iterator[str]:
    asked = report.asked
    rows = [(each.role.replace("_", " "), each.describe()) for each in asked.pools]
    width = max(len(role) for role, _ in rows) if rows else 0
    yield from (f"{role:<{width}}  {machines}" for role, machines in rows)
    if asked.strategy != "STANDARD":
        yield f"strategy {asked.strategy}"
    if asked.trials > 1:
        yield f"{asked.trials} trials, {asked.trials_at_once} at once, each on such a cluster"


def _image(report: Report) -> Iterator[str]:
    image = report.image
    if image is None:
        return
    yield image.uri or str(image.reference)
    if image.strategy == "use":
        yield "the job names it: nothing is built"
    elif not report.asks_registry:
        yield f"{_content(image)}; the registry is not asked"
    elif image.strategy == "nothing":
        yield f"{image.reason}: nothing to send"
    elif image.strategy == "append":
        yield f"{image.reason}: a layer with {_content(image)} is sent, without an engine"
    else:
        yield f"{image.reason}: a full build, then a layer with {_content(image)}"


def _content(image: ImagePlan) -> str:
    context = image.context
    if context is None:
        return "the code"
    return f"{_counted(len(context.files), 'file')}, {_bytes(context.size)}"


def _problem(problem: Problem, paint: Callable[[str, int], str]) -> Iterator[str]:
    severity = problem.severity
    word = paint(f"{severity:<{len(_INDENT)}}", _COLOURS[severity])
    yield f"{word}{problem.where}: {problem.what}"
    yield f"{_INDENT}{problem.remedy} [{problem.code}]"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}" if count else ""


def _bytes(size: int) -> str:
    if size < 1_000:
        return f"{size} bytes"
    kilo, mega = size / 1e3, size / 1e6
    return f"{kilo:,.0f} kB" if mega < 1 else f"{mega:,.1f} MB"
