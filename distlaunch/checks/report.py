"""The result of the checks: the plan of a job and its problems, as JSON and for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.checks.problem import error, more_about
from distlaunch.price import format_options
from distlaunch.text import plural
from distlaunch.ui.console import GREEN, RED, YELLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from distlaunch.checks.data import DataPlan
    from distlaunch.checks.problem import Problem, Severity
    from distlaunch.errors import DistlaunchError
    from distlaunch.image import ImagePlan
    from distlaunch.job.vertex.view import JobRequest, PoolRequest
    from distlaunch.price import Cost, MachineOption, PricedChoice
    from distlaunch.text import Table

_INDENT = " " * 11
_CHANGED = "differs from the one that 'init' writes"
_EMULATED = "an emulator, which bills nothing; checks of project, bucket and quotas skipped"
_COLOURS: dict[Severity, int] = {"error": RED, "warning": YELLOW}


@dataclass(frozen=True, slots=True)
class Report:
    """The plan of a job, and its problems with errors first."""

    request: JobRequest
    cluster: str
    problems: tuple[Problem, ...] = ()
    image: ImagePlan | None = None
    registry_contacted: bool = True  # `image` takes into account what the registry has
    data: DataPlan | None = None
    choices: tuple[PricedChoice, ...] = ()  # the machines and regions to try, in their order
    offers: tuple[MachineOption, ...] = ()
    is_checked: bool = True
    first_line: str = ""  # of the training in the log
    is_emulated: bool = False  # project, bucket and quotas are not checked
    changed_task: str = ""  # the code whose arguments are not checked
    engine: str = "vertex"
    location: str = ""  # where the job runs, in words; empty for the request's region and project
    notes: tuple[tuple[str, str], ...] = ()  # further rows of the plan

    @property
    def cost(self) -> Cost | None:
        """The price of the job on its own machines, None on Slurm."""
        return self.choices[0].cost if self.choices else None

    @property
    def is_ready(self) -> bool:
        """Whether no error keeps the job from being submitted."""
        return not self.errors

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the job from being submitted."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``; docs/do/check.md describes the keys."""
        request = self.request
        return {
            "job": request.name,
            "engine": self.engine,
            "project": request.project or None,
            "region": request.region or None,
            "strategy": request.strategy,
            "timeout": request.timeout,
            "cluster": self.cluster,
            "pools": [_pool_as_json(pool) for pool in request.pools],
            "image": self._image_as_json(),
            "data": self.data.as_json() if self.data else None,
            "price": self.cost.as_json() if self.cost else None,
            "choices": [_choice_as_json(choice) for choice in self.choices],
            "machines": [offer.as_json() for offer in self.offers],
            "problems": [problem.as_json() for problem in self.problems],
            "ready": self.is_ready,
        }

    def _image_as_json(self) -> dict[str, Any] | None:
        if self.image is None:
            return None
        context = self.image.context
        return {
            "way": self.image.strategy if self.registry_contacted else None,
            "uri": self.image.uri or str(self.image.reference),
            "files": len(context.files) if context else None,
            "bytes": context.size if context else None,
        }


def unreadable_as_json(refusal: DistlaunchError) -> dict[str, Any]:
    """Return the object of ``--json`` for a job whose files cannot be read."""
    remedy = "write there what is expected"
    problems = [
        error("job-file-invalid", each.where, each.what, each.remedy or remedy)
        for each in refusal.problems
    ]
    keys = ("job", "engine", "project", "region", "strategy", "timeout", "cluster", "image")
    return {
        **dict.fromkeys((*keys, "data", "price")),
        "pools": [],
        "choices": [],
        "machines": [],
        "problems": [problem.as_json() for problem in problems],
        "ready": False,
    }


def _choice_as_json(choice: PricedChoice) -> dict[str, Any]:
    return {
        "region": choice.request.region or None,
        "pools": [_pool_as_json(pool) for pool in choice.request.pools],
        "price": choice.cost.as_json(),
    }


def _pool_as_json(pool: PoolRequest) -> dict[str, Any]:
    return {
        "role": pool.role,
        "replicas": pool.replicas,
        "machine": pool.machine,
        "accelerator": pool.accelerator,
        "accelerator_count": pool.accelerator_count,
        "tpu_topology": pool.topology,
    }


def format_report(report: Report, paint: Callable[[str, int], str]) -> list[str | Table]:
    """Return plan, problems and verdict; `paint` colours text in a terminal."""
    verdict = paint(format_verdict(report), GREEN if report.is_ready else RED)
    problems = [line for problem in report.problems for line in _problem_lines(problem, paint)]
    parts: list[str | Table] = [format_plan(report), ""]
    if report.offers:
        parts += [format_options(report.offers), ""]
    if problems:
        return [*parts, *problems, "", verdict, more_about(report.problems)]
    return [*parts, verdict]


def format_plan(report: Report) -> str:
    """Return the cluster, the data, what is sent of the image, and the price."""
    request, task = report.request, report.changed_task
    region = f"in {request.region or 'no region'}, project {request.project or 'unknown'}"
    rows = [
        *_labelled("cluster", _cluster_lines(request)),
        *_labelled("data", report.data.lines() if report.data else ()),
        *_labelled("args", (f"not checked: {task} {_CHANGED}",) if task else ()),
        *_labelled("image", _image_lines(report)),
        *_labelled("price", report.cost.lines() if report.cost else ()),
        *_labelled("choices", _choice_lines(report.choices)),
        *_labelled("log", (report.first_line,) if report.first_line else ()),
        *_labelled("cloud", (_EMULATED,) if report.is_emulated else ()),
        *(row for label, text in report.notes for row in _labelled(label, (text,))),
    ]
    return "\n".join([f"{request.name}: {report.cluster} {report.location or region}", *rows])


def format_verdict(report: Report) -> str:
    """Return the last line: ``ready`` or ``not ready``, with the numbers of problems."""
    if not report.is_checked:
        return "not checked"
    severities = [problem.severity for problem in report.problems]
    numbers = [(severities.count(severity), severity) for severity in _COLOURS]
    counts = [plural(number, severity) for number, severity in numbers if number]
    word = "ready" if report.is_ready else "not ready"
    return ": ".join(filter(None, [word, ", ".join(counts)]))


def _labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"{label:<{len(_INDENT)}}{line}"
        label = ""


def _cluster_lines(request: JobRequest) -> Iterator[str]:
    rows = [(pool.role.replace("_", " "), pool.describe()) for pool in request.pools]
    width = max(len(role) for role, _ in rows) if rows else 0
    yield from (f"{role:<{width}}  {machines}" for role, machines in rows)
    if request.strategy != "STANDARD":
        yield f"strategy {request.strategy}"
    if request.trials > 1:
        yield f"{request.trials} trials, {request.trials_at_once} at once, each on such a cluster"


def _choice_lines(choices: Sequence[PricedChoice]) -> Iterator[str]:
    """Yield the machines and regions in the order in which they are tried, if there are several."""
    for number, choice in enumerate(choices if len(choices) > 1 else (), 1):
        request = choice.request
        yield f"{number}. {request.machines} in {request.region}: {choice.cost.describe()}"


def _image_lines(report: Report) -> Iterator[str]:
    image = report.image
    if image is None:
        return
    yield image.uri or str(image.reference)
    if image.strategy == "use":
        yield "named by the job: nothing is built"
    elif not report.registry_contacted:
        yield f"{_content(image)}; registry not contacted"
    elif image.strategy == "nothing":
        yield f"{image.reason}: nothing to send"
    elif image.strategy == "append":
        yield f"{image.reason}: a layer with {_content(image)} is sent, without Docker"
    elif image.strategy == "cloud-build":
        what = f"a full build by Cloud Build, billed by build minute, with {_content(image)}"
        yield f"{image.reason}: {what}"
    else:
        yield f"{image.reason}: a full build, then a layer with {_content(image)}"


def _content(image: ImagePlan) -> str:
    context = image.context
    if context is None:
        return "the code"
    return f"{plural(len(context.files), 'file')}, {_bytes(context.size)}"


def _problem_lines(problem: Problem, paint: Callable[[str, int], str]) -> Iterator[str]:
    severity = problem.severity
    label = paint(f"{severity:<{len(_INDENT)}}", _COLOURS[severity])
    yield f"{label}{problem.where}: {problem.what}"
    yield f"{_INDENT}{problem.remedy} [{problem.code}]"


def _bytes(size: int) -> str:
    if size < 1_000:
        return f"{size} bytes"
    kilobytes, megabytes = size / 1e3, size / 1e6
    return f"{kilobytes:,.0f} kB" if megabytes < 1 else f"{megabytes:,.1f} MB"
