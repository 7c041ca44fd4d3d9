"""What was found out about a job before it is submitted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.checks.problem import error

if TYPE_CHECKING:
    from distlaunch.checks.data import DataFacts
    from distlaunch.checks.price import Cost, Offer
    from distlaunch.checks.problem import Problem, Severity
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.errors import DistlaunchError
    from distlaunch.image import ImagePlan


_NOTHING_KNOWN: dict[str, Any] = {
    "job": None,
    "project": None,
    "region": None,
    "strategy": None,
    "timeout": None,
    "cluster": None,
    "pools": [],
    "image": None,
    "data": None,
    "price": None,
    "machines": [],
    "problems": [],
    "ready": False,
}


@dataclass(frozen=True, slots=True)
class Report:
    """A job's plan, and what speaks against it.

    Parameters
    ----------
    asked
        What the job asks for.
    cluster
        The cluster in words, as ``chief + 3 workers``.
    problems
        Errors first.
    image
        How its image comes to be, None where every pool names its own, or where that is not known.
    asks_registry
        Whether the image's registry was asked; without that it is not known what there is to send.
    data
        What the trainer will do with its data, None where that is not known.
    cost
        What it costs, None where nobody asked.
    offers
        The job on other machines, if that was asked for.
    is_emulated
        Whether the endpoint is an emulator, so that project, bucket and quotas were not checked.
    is_checked
        Whether anybody looked for problems.
    """

    asked: JobRequest
    cluster: str
    problems: tuple[Problem, ...] = ()
    image: ImagePlan | None = None
    asks_registry: bool = True
    data: DataFacts | None = None
    cost: Cost | None = None
    offers: tuple[Offer, ...] = ()
    is_checked: bool = True
    is_emulated: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether nothing keeps the job from being submitted."""
        return not self.of("error")

    def of(self, severity: Severity) -> tuple[Problem, ...]:
        """Return the problems of a severity."""
        return tuple(each for each in self.problems if each.severity == severity)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; docs/check.md tells of the keys."""
        asked = self.asked
        return _NOTHING_KNOWN | {
            "job": asked.name,
            "project": asked.project or None,
            "region": asked.region or None,
            "strategy": asked.strategy,
            "timeout": asked.timeout,
            "cluster": self.cluster,
            "pools": [_pool(each) for each in asked.pools],
            "image": self._image(),
            "data": self.data.as_json() if self.data else None,
            "price": self.cost.as_json() if self.cost else None,
            "machines": [each.as_json() for each in self.offers],
            "problems": [asdict(each) for each in self.problems],
            "ready": self.is_ready,
        }

    def _image(self) -> dict[str, Any] | None:
        if self.image is None:
            return None
        context = self.image.context
        return {
            "way": self.image.strategy if self.asks_registry else None,
            "uri": self.image.uri or str(self.image.reference),
            "files": len(context.files) if context else None,
            "bytes": context.size if context else None,
        }


def unread(refusal: DistlaunchError) -> dict[str, Any]:
    """Return what `Report.as_json` would of a job whose files cannot be read, as plain data."""
    return _NOTHING_KNOWN | {"problems": [asdict(_of_file(line)) for line in refusal.lines]}


def _of_file(line: str) -> Problem:
    """Return the problem that a line tells, as ``distlaunch.yaml:12:7: name: expected …``."""
    where, _, what = line.partition(": ")
    return error("job-file-invalid", where, what, "write there what is expected")


def _pool(pool: PoolRequest) -> dict[str, Any]:
    return {
        "role": pool.role,
        "replicas": pool.replicas,
        "machine": pool.machine,
        "accelerator": pool.accelerator,
        "accelerator_count": pool.accelerator_count,
        "tpu_topology": pool.topology,
    }
