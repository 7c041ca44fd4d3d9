"""A job in the cloud and its log, at each second of its life."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from distlaunch import timestamps
from distlaunch.ui.events import JobChanged, Notice, TaskLines

from .servers import Clock, Reply

NAME = "projects/123/locations/us-central1/customJobs/77"
BEGAN = timestamps.parse("2026-11-21T17:00:00Z")
SPEC = {"workerPoolSpecs": [{"replicaCount": "1"}, {"replicaCount": "2"}]}
ERROR = {"code": 3, "message": "The replica workerpool0-0 exited with a non-zero status of 7."}


def stamp(seconds: float) -> str:
    return timestamps.format(BEGAN + seconds)


@dataclass
class Cloud:
    """A job and its log as they are at each second of the job's life.

    Parameters
    ----------
    life
        What changes in the job, by the second.
    lines
        Task, text, when it was written, and when it can be read, which may be at several times.
    failing
        What a call (``get`` or ``list``) gets at a second instead of an answer, if anything.
    """

    clock: Clock
    life: dict[float, dict]
    lines: list[tuple[str, str, float, tuple[float, ...]]] = field(default_factory=list)
    failing: object = None
    page: int = 100
    calls: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = self.clock()

    @property
    def now(self) -> float:
        return self.clock() - self.start

    def job(self) -> dict:
        found = {"name": NAME, "createTime": stamp(0), "jobSpec": SPEC}
        for second, changes in sorted(self.life.items()):
            if second <= self.now:
                found |= {"updateTime": stamp(second), **changes}
        return found

    def __call__(self, request) -> Reply:
        call = "list" if request.path.endswith("entries:list") else "get"
        self.calls.append((call, self.now))
        failure = self.failing(call, self.now) if self.failing else None
        return failure or (
            self._entries(request.body) if call == "list" else Reply(body=self.job())
        )

    def _entries(self, body: dict) -> Reply:
        (since,) = re.findall(r'timestamp>="([^"]*)"', body["filter"])
        wanted = re.findall(r'task_name="([^"]*)"', body["filter"])
        found = [
            ((written, str(number)), task, text)
            for number, (task, text, written, read) in enumerate(self.lines)
            for at in read
            if at <= self.now
            and BEGAN + written >= timestamps.parse(since)
            and (not wanted or task in wanted)
        ]
        found.sort()
        after = body.get("pageToken")
        if after:
            found = [each for each in found if each[0] > tuple(eval(after))]  # noqa: S307 - ours
        page, rest = found[: self.page], found[self.page :]
        entries = [
            {
                "insertId": identity,
                "timestamp": stamp(written),
                "resource": {"labels": {"task_name": task}},
                "jsonPayload": {"message": text},
                "severity": "INFO",
            }
            for (written, identity), task, text in page
        ]
        return Reply(
            body={"entries": entries} | ({"nextPageToken": repr(page[-1][0])} if rest else {})
        )


RUN = {
    0: {"state": "JOB_STATE_PENDING"},
    60: {"state": "JOB_STATE_RUNNING", "startTime": stamp(60)},
}


def ended(state: str, at: float, **more: object) -> dict:
    return {at: {"state": f"JOB_STATE_{state}", "endTime": stamp(at), **more}}


def lines(*, every: float, until: float, late: float = 0.0, times_there: int = 1) -> list:
    """Return lines of two tasks from the job's start on."""
    return [
        (task, f"{task} {number}", second, tuple(second + late for _ in range(times_there)))
        for number in range(int((until - 60) / every))
        for second in [60 + number * every]
        for task in ("workerpool0-0", "workerpool1-1")
    ]


def texts(events) -> list[str]:
    shown = [e for e in events if isinstance(e, TaskLines)]
    return [line for e in shown for line in e.text.splitlines()]


def states(events) -> list[tuple[str, float | None, str]]:
    return [(e.state, e.after, e.error) for e in events if isinstance(e, JobChanged)]


def notices(events) -> list[str]:
    return [e.text for e in events if isinstance(e, Notice)]
