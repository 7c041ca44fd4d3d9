"""Jobs are created, found and cancelled over real HTTP, at a service that fails as Google's can."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from distlaunch.engines.vertex.client import connect
from distlaunch.engines.vertex.jobs import Jobs, state
from distlaunch.errors import CreateRefused, DistlaunchError, GoogleError, RetryableError

from .servers import HALF, RESET, Clock, Reply, Server, refused

BODY = {"displayName": "digits", "labels": {"distlaunch-launch": "digits-1", "a": "b"}}
PARENT = "projects/p/locations/us-central1"


class Vertex:
    """A service of custom jobs; a new one is missing from its first `lag` lists.

    Of `failures` there is one for each call in turn: None, or when it fails (``before`` or
    ``after`` it has an effect) and with which reply.
    """

    def __init__(self, failures=(), lag: int = 0) -> None:
        self.jobs: list[dict] = []
        self.lag = lag
        self.page = 100
        self.failures = iter(failures)
        self._lists: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def __call__(self, request) -> Reply:
        failure = next(self.failures, None)
        if failure and failure[0] == "before":
            return failure[1]
        reply = self.answer(request)
        return failure[1] if failure else reply

    @property
    def alive(self) -> list[str]:
        return [job["name"] for job in self.jobs if job["state"] != "JOB_STATE_CANCELLED"]

    def answer(self, request) -> Reply:
        path = request.path.removeprefix("/v1/")
        name, _, action = path.partition(":")
        job = next((job for job in self.jobs if job["name"] == name), None)
        if action:
            job["state"] = "JOB_STATE_CANCELLED"
        elif request.method == "POST":
            return self._create(path, request.body)
        elif path.endswith("Jobs"):
            return self._list(path, request.params)
        return Reply(body=job) if job else refused(404, "NOT_FOUND", "The job does not exist.")

    def _create(self, path: str, body: dict) -> Reply:
        number = next(self._numbers)
        time = f"2026-11-21T17:00:{number:02}Z"
        state = "JOB_STATE_PENDING"
        job = {**body, "name": f"{path}/{number}", "createTime": time, "state": state}
        self.jobs.append(job)
        return Reply(body=job)

    def _list(self, path: str, params: dict) -> Reply:
        field, _, value = params.get("filter", "").partition("=")
        label = field.removeprefix("labels.")
        listed = []
        for job in self.jobs:
            if not job["name"].startswith(f"{path}/"):
                continue
            count = self._lists[job["name"]] = self._lists.get(job["name"], 0) + 1
            if count > self.lag and (not label or job["labels"].get(label) == value):
                listed.append(job)
        start = int(params.get("pageToken", 0))
        end = start + min(int(params["pageSize"]), self.page)
        content = {path.rpartition("/")[2]: listed[start:end]} if listed else {}
        return Reply(body=content | ({"nextPageToken": str(end)} if listed[end:] else {}))


@pytest.fixture
def vertex(serve, jobs_at):
    """Return a service that fails as planned, and the jobs there."""

    def start(failures=(), lag: int = 0) -> tuple[Vertex, Jobs]:
        service = Vertex(failures, lag)
        server = serve(service)
        service.requests, service.url, service.messages = server.requests, server.url, []
        show = lambda *message: service.messages.append(message)  # noqa: E731
        return service, jobs_at(server, show_message=show)

    return start


def creations(service: Vertex) -> int:
    return sum(a.method == "POST" and not a.path.endswith(":cancel") for a in service.requests)


def test_a_job_is_created_with_one_call(vertex):
    service, jobs = vertex()
    created = jobs.create("customJobs", BODY, may_exist=False)
    (request,) = service.requests
    path = f"/v1/{PARENT}/customJobs"
    assert (request.method, request.path, request.body) == ("POST", path, BODY)
    assert (created.is_new, created.job["name"]) == (True, f"{PARENT}/customJobs/1")


@pytest.mark.parametrize("kind", ["customJobs", "hyperparameterTuningJobs"])
def test_a_job_that_may_exist_is_looked_up_first(vertex, kind):
    service, jobs = vertex()
    first = jobs.create(kind, BODY, may_exist=True)
    assert [request.method for request in service.requests] == ["GET", "GET", "GET", "POST", "GET"]
    assert service.requests[0].params["filter"] == "labels.distlaunch-launch=digits-1"
    again = jobs.create(kind, BODY, may_exist=True)
    assert (first.is_new, again.is_new, creations(service)) == (True, False, 1)
    assert again.job["name"] == first.job["name"]


UNREADABLE = (Reply(body=b"{"), Reply(body={}))
LOST = [RESET, HALF, *UNREADABLE, Reply(504, b"gateway"), refused(500), refused(503)]


@pytest.mark.parametrize("reply", LOST, ids=str)
def test_a_job_whose_response_was_lost_is_found_and_not_created_again(vertex, reply):
    service, jobs = vertex([("after", reply)], lag=2)
    created = jobs.create("customJobs", BODY, may_exist=False)
    assert (created.is_new, len(service.jobs), creations(service)) == (False, 1, 1)


@pytest.mark.parametrize("state", ["CANCELLED", "RUNNING", "SUCCEEDED"])
def test_a_job_that_is_listed_too_late_leaves_a_duplicate_that_is_cancelled(vertex, state):
    service, jobs = vertex([("after", RESET)], lag=3)
    answer = service.answer

    def without_cancel(request):
        if not request.path.endswith(":cancel"):
            return answer(request)
        service.jobs[1]["state"] = f"JOB_STATE_{state}"
        return Reply() if state == "CANCELLED" else refused(400, "FAILED_PRECONDITION")

    service.answer = without_cancel
    created = jobs.create("customJobs", BODY, may_exist=False)
    oldest, duplicate = (job["name"] for job in service.jobs)
    running = (duplicate,) if state == "RUNNING" else ()
    assert (created.job["name"], created.is_new, created.duplicates) == (oldest, False, running)


QUOTA = "The following quota metrics exceed quota limits: custom_model_training_cpus"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429])
def test_a_refused_job_is_not_created_again(vertex, status):
    service, jobs = vertex([("before", refused(status, "RESOURCE_EXHAUSTED", QUOTA))] * 9)
    with pytest.raises(CreateRefused, match="exceed quota limits") as error:
        jobs.create("customJobs", BODY, may_exist=False)
    assert error.value.status == status
    assert not isinstance(error.value, RetryableError)
    assert (service.jobs, creations(service)) == ([], 2 if status == 401 else 1)


@pytest.mark.parametrize("status", [401, 403, 503])
def test_a_failed_look_up_after_a_lost_response_is_no_refusal_of_the_job(vertex, status):
    service, jobs = vertex([("after", RESET), *[("before", refused(status))] * 99])
    with pytest.raises(GoogleError) as error:
        jobs.create("customJobs", BODY, may_exist=False)
    text = str(error.value)
    assert text.startswith("the job may have been created, but the look-up failed (")
    assert "run the same command again: it looks for the job first and never creates a" in text
    assert not isinstance(error.value, CreateRefused)
    assert (error.value.status, creations(service)) == (status, 1)
    service.failures = iter([])
    created = jobs.create("customJobs", BODY, may_exist=True)
    assert (len(service.jobs), created.is_new) == (1, False)


@given(
    some.lists(
        some.none()
        | some.tuples(some.sampled_from(["before", "after"]), some.sampled_from(LOST))
        | some.tuples(some.just("before"), some.sampled_from([refused(401), refused(403)])),
        max_size=12,
    ),
    some.integers(0, 2),
    some.booleans(),
)
@settings(max_examples=60)
def test_whatever_fails_there_is_one_job_in_the_end(failures, lag, may_exist):
    """Also where a launch gives up, the next one creates no second job."""
    clock, service = Clock(), Vertex(failures, lag)
    server = Server(service)
    try:
        session = connect(server.url, clock=clock, sleep=clock.sleep)
        jobs, created = Jobs(session, "p", "us-central1"), None
        while created is None:
            try:
                created = jobs.create("customJobs", BODY, may_exist=may_exist)
            except CreateRefused:  # noqa: PERF203 - the next launch
                assert service.jobs == []
            except GoogleError:
                assert len(service.alive) <= 1
                may_exist = True
        assert service.alive == [created.job["name"]]
    finally:
        server.close()


def test_get_and_cancel(vertex):
    service, jobs = vertex()
    name = jobs.create("customJobs", BODY, may_exist=False).job["name"]
    assert state(jobs.get(name)) == "PENDING"
    jobs.cancel(name)
    assert state(jobs.get(name)) == "CANCELLED"
    assert state(jobs.get(name)).is_terminal
    service.jobs.clear()
    with pytest.raises(GoogleError, match=r"^not found: The job does not exist$"):
        jobs.get(name)
    with pytest.raises(DistlaunchError, match="is not a job; expected projects/P/locations/R/"):
        jobs.get("projects/p/locations/evil.com#/customJobs/1")


def numbers(jobs) -> list[str]:
    return [job["name"].rpartition("/")[2] for job in jobs]


def test_lists_are_read_page_by_page_and_the_newest_jobs_of_both_kinds_come_first(vertex):
    service, jobs = vertex()
    for kind in ("customJobs", "hyperparameterTuningJobs", *["customJobs"] * 3):
        jobs.create(kind, BODY, may_exist=False)
    service.jobs[-1]["labels"] = {"team": "vision"}
    service.page = 2
    assert numbers(jobs.list("customJobs")) == list("1345")
    assert numbers(jobs.list("customJobs", "labels.team=vision")) == ["5"]
    assert numbers(jobs.newest(9, all_jobs=True)) == list("54321")
    assert numbers(jobs.newest(1, all_jobs=True)) == ["5"]
