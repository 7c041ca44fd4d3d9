"""Jobs are made, found and ended over real HTTP, at a service that fails as Google's can."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from distlaunch.errors import CreateRefused, DistlaunchError, GoogleError, RetryableError
from distlaunch.google import jobs as google_jobs
from distlaunch.google.client import connect
from distlaunch.google.jobs import Jobs

from .servers import HALF, RESET, Clock, Reply, Server, refused

BODY = {"displayName": "digits", "labels": {"distlaunch-launch": "digits-1", "a": "b"}}
PLACE = "projects/p/locations/us-central1"


class Vertex:
    """A service of custom jobs whose lists can be behind, and whose calls fail as planned.

    Parameters
    ----------
    failures
        For each call in turn: None, or when it fails (``before`` or ``after`` it has an effect) and
        with what reply.
    lag
        How many lists a new job is missing from.
    """

    def __init__(self, failures=(), lag: int = 0) -> None:
        self.jobs: list[dict] = []
        self.lag = lag
        self.size = 100
        self._listed: dict[str, int] = {}
        self.fail(failures)
        self.changes: dict = {}
        self._numbers = itertools.count(1)

    def __call__(self, request) -> Reply:
        failure = next(self._failures, None)
        if failure and failure[0] == "before":
            return failure[1]
        reply = self._carry_out(request)
        return failure[1] if failure else reply

    def fail(self, failures) -> None:
        self._failures = iter(failures)

    @property
    def alive(self) -> list[dict]:
        return [job for job in self.jobs if job["state"] != "JOB_STATE_CANCELLED"]

    def _carry_out(self, request) -> Reply:
        path = request.path.removeprefix("/v1/")
        if request.method == "POST" and path.endswith(":cancel"):
            self._job(path.removesuffix(":cancel"))["state"] = "JOB_STATE_CANCELLED"
            return Reply()
        if request.method == "POST":
            number = next(self._numbers)
            job = {
                **request.body,
                "name": f"{path}/{number}",
                "createTime": f"2026-11-21T17:00:{number:02}Z",
                "state": "JOB_STATE_PENDING",
            }
            self.jobs.append(job | self.changes)
            return Reply(body=job)
        if path.endswith("Jobs"):
            return self._list(path, request.params)
        job = self._job(path)
        if job is None:
            return refused(404, "NOT_FOUND", "The CustomJob does not exist.")
        if request.method == "DELETE":
            self.jobs.remove(job)
        return Reply(body=job)

    def _list(self, path: str, params: dict) -> Reply:
        field, _, value = params.get("filter", "").partition("=")
        label = field.removeprefix("labels.")
        shown = []
        for job in self.jobs:
            if not job["name"].startswith(f"{path}/"):
                continue
            times = self._listed.get(job["name"], 0)
            self._listed[job["name"]] = times + 1
            if times >= self.lag and (not label or job["labels"].get(label) == value):
                shown.append(job)
        start = int(params.get("pageToken", 0))
        size = min(int(params["pageSize"]), self.size)
        kind = path.rpartition("/")[2]
        reply = {kind: shown[start : start + size]} if shown else {}
        if start + size < len(shown):
            reply["nextPageToken"] = str(start + size)
        return Reply(body=reply)

    def _job(self, name: str) -> dict | None:
        return next((job for job in self.jobs if job["name"] == name), None)


@pytest.fixture
def vertex(serve, clock):
    """Make a service that fails as planned, and return it with our jobs there."""

    def make(failures=(), lag: int = 0) -> tuple[Vertex, Jobs]:
        service = Vertex(failures, lag)
        server = serve(service)
        service.requests, service.url = server.requests, server.url
        service.messages = []
        session = connect(
            server.url,
            project="p",
            clock=clock,
            sleep=clock.sleep,
            show_message=lambda *message: service.messages.append(message),
        )
        return service, Jobs(session, "p", "us-central1")

    return make


def creations(service: Vertex) -> int:
    return sum(a.method == "POST" and not a.path.endswith(":cancel") for a in service.requests)


def test_a_job_is_made_with_one_call(vertex):
    service, jobs = vertex()
    made = jobs.create("customJobs", BODY, may_exist=False)
    (request,) = service.requests
    assert (request.method, request.path, request.body) == ("POST", f"/v1/{PLACE}/customJobs", BODY)
    assert made.is_new
    assert made.job["name"] == f"{PLACE}/customJobs/1"


@pytest.mark.parametrize("kind", ["customJobs", "hyperparameterTuningJobs"])
def test_one_that_may_exist_is_looked_for_first(vertex, kind):
    service, jobs = vertex()
    first = jobs.create(kind, BODY, may_exist=True)
    assert [request.method for request in service.requests] == ["GET", "GET", "GET", "POST", "GET"]
    assert service.requests[0].params["filter"] == "labels.distlaunch-launch=digits-1"
    again = jobs.create(kind, BODY, may_exist=True)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.job["name"] == first.job["name"]
    assert creations(service) == 1


LOST = [
    RESET,
    HALF,
    Reply(body=b"{"),
    Reply(body={}),
    Reply(504, b"gateway"),
    refused(500, "INTERNAL"),
    refused(503, "UNAVAILABLE"),
]


@pytest.mark.parametrize("reply", LOST, ids=str)
def test_a_job_whose_response_was_lost_is_found_and_not_created_again(vertex, reply):
    service, jobs = vertex([("after", reply)], lag=2)
    made = jobs.create("customJobs", BODY, may_exist=False)
    assert not made.is_new
    assert (len(service.jobs), creations(service)) == (1, 1)


def test_one_that_comes_to_light_too_late_is_not_left_running(vertex):
    service, jobs = vertex([("after", RESET)], lag=3)
    made = jobs.create("customJobs", BODY, may_exist=False)
    assert len(service.jobs) == 2
    assert service.alive == [service.jobs[0]]
    assert (made.job["name"], made.is_new) == (service.jobs[0]["name"], False)


def test_a_lost_response_and_a_failed_look_up(vertex):
    service, jobs = vertex([("after", RESET), *[("before", refused(503))] * 99])
    with pytest.raises(RetryableError) as problem:
        jobs.create("customJobs", BODY, may_exist=False)
    assert str(problem.value) == (
        f"the job may have been created, but the look-up failed ({service.url} answers 503 (No)); "
        "run the same command again: it looks for the job first and never creates a second one"
    )
    assert creations(service) == 1


QUOTA = "The following quota metrics exceed quota limits: custom_model_training_cpus"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429])
def test_a_refused_job_is_not_created_again(vertex, status):
    service, jobs = vertex([("before", refused(status, "RESOURCE_EXHAUSTED", QUOTA))] * 9)
    with pytest.raises(CreateRefused, match="exceed quota limits") as problem:
        jobs.create("customJobs", BODY, may_exist=False)
    assert problem.value.status == status
    assert not isinstance(problem.value, RetryableError)
    assert service.jobs == []
    assert creations(service) == (2 if status == 401 else 1)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_look_up_after_a_lost_answer_is_no_refusal_of_the_job(vertex, status):
    refusals = [("before", refused(status))] * (2 if status == 401 else 1)  # 401 is tried twice
    service, jobs = vertex([("after", RESET), *refusals])
    with pytest.raises(GoogleError, match="the job may have been created, but") as problem:
        jobs.create("customJobs", BODY, may_exist=False)
    assert not isinstance(problem.value, CreateRefused)
    assert problem.value.status == status
    made = jobs.create("customJobs", BODY, may_exist=True)
    assert (len(service.jobs), made.is_new) == (1, False)


@pytest.mark.parametrize("state", ["RUNNING", "SUCCEEDED"])
def test_a_duplicate_that_cannot_be_cancelled_is_returned_while_it_runs(vertex, state):
    service, jobs = vertex([("after", RESET)], lag=3)
    carry_out = service._carry_out

    def without_cancel(request):
        if not request.path.endswith(":cancel"):
            return carry_out(request)
        service.jobs[1]["state"] = f"JOB_STATE_{state}"
        return refused(400, "FAILED_PRECONDITION")

    service._carry_out = without_cancel
    made = jobs.create("customJobs", BODY, may_exist=False)
    assert made.job["name"] == service.jobs[0]["name"]
    running = (service.jobs[1]["name"],) if state == "RUNNING" else ()
    assert (made.is_new, made.duplicates) == (False, running)


REFUSED = [refused(401, "UNAUTHENTICATED"), refused(403, "PERMISSION_DENIED")]
FAILURES = some.lists(
    some.none()
    | some.tuples(some.sampled_from(["before", "after"]), some.sampled_from(LOST))
    | some.tuples(some.just("before"), some.sampled_from(REFUSED)),
    max_size=12,
)


@given(FAILURES, some.integers(0, 2), some.booleans())
@settings(max_examples=60)
def test_whatever_fails_there_is_one_job_in_the_end(failures, lag, may_exist):
    """The law of a submit: also where it gives up, the next one makes no second job."""
    clock, service = Clock(), Vertex(failures, lag)
    server = Server(service)
    try:
        session = connect(server.url, clock=clock, sleep=clock.sleep)
        jobs = Jobs(session, "p", "us-central1")
        while True:
            try:
                made = jobs.create("customJobs", BODY, may_exist=may_exist)
                break
            except CreateRefused:
                assert service.jobs == []
            except GoogleError:
                assert len(service.alive) <= 1
                may_exist = True
        assert [job["name"] for job in service.alive] == [made.job["name"]]
    finally:
        server.close()


def test_get_and_cancel(vertex):
    service, jobs = vertex()
    name = jobs.create("customJobs", BODY, may_exist=False).job["name"]
    assert google_jobs.state(jobs.get(name)) == "PENDING"
    jobs.cancel(name)
    assert google_jobs.state(jobs.get(name)) == "CANCELLED"
    assert google_jobs.has_ended(jobs.get(name))
    service.jobs.clear()
    with pytest.raises(GoogleError, match=r"^not found: The CustomJob does not exist$"):
        jobs.get(name)


def test_a_job_name_is_checked(vertex):
    _, jobs = vertex()
    with pytest.raises(DistlaunchError, match="is not a job; expected projects/P/locations/R/"):
        jobs.get("projects/p/locations/evil.com#/customJobs/1")


def test_lists_are_read_page_by_page(vertex):
    service, jobs = vertex()
    for number in range(7):
        body = {"labels": {"distlaunch-launch": str(number)} if number % 2 else {}}
        jobs.create("customJobs", body | {"labels": {"distlaunch-launch": "x"}}, may_exist=False)
        service.jobs[-1]["labels"] = body["labels"]
    service.size = 2
    numbers = [job["name"].rpartition("/")[2] for job in jobs.list("customJobs")]
    assert numbers == list("1234567")
    assert len(list(jobs.list("customJobs", "labels.distlaunch-launch=3"))) == 1


def test_the_newest_jobs_of_both_kinds_come_first(vertex):
    service, jobs = vertex()
    for kind in ("customJobs", "hyperparameterTuningJobs", "customJobs"):
        jobs.create(kind, BODY, may_exist=False)
    service.jobs[2]["labels"] = {}
    service.size = 1
    numbers = [job["name"].rpartition("/")[2] for job in jobs.newest(9, all_jobs=True)]
    assert numbers == ["3", "2", "1"]
    numbers = [job["name"].rpartition("/")[2] for job in jobs.newest(1, all_jobs=True)]
    assert numbers == ["3"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, "name is missing"),
        ({"name": "x"}, 'name: expected projects/P/locations/R/customJobs/NUMBER, got "x"'),
        ({"state": []}, "state: expected text, got a list"),
    ],
)
def test_an_invalid_job_is_an_error_and_skipped_in_a_list_with_a_warning(vertex, changes, problem):
    service, jobs = vertex()
    for _ in range(3):
        name = jobs.create("customJobs", BODY, may_exist=False).job["name"]
    invalid = {**service.jobs[1], **changes} if changes else {}
    service.fail([("before", Reply(body=invalid))])
    with pytest.raises(GoogleError) as error:
        jobs.get(name)
    assert str(error.value) == f"{service.url}: invalid response: {problem}"
    listed = [service.jobs[0], invalid, service.jobs[2]]
    service.fail([("before", Reply(body={"customJobs": listed}))])
    newest = jobs.newest(9, all_jobs=True)
    assert [job["name"][-2:] for job in newest] == ["/3", "/1"]
    assert service.messages == [
        (
            f"{service.url}: invalid response: customJobs[1].{problem}; this job is skipped",
            "warning",
        )
    ]


@pytest.mark.parametrize("page", [{"customJobs": {}}, {"nextPageToken": 5}, {"customJobs": "x"}])
def test_an_invalid_list_is_an_error(vertex, page):
    _, jobs = vertex([("before", Reply(body=page))])
    with pytest.raises(GoogleError, match=r"invalid response: (customJobs|nextPageToken): exp"):
        jobs.newest(9, all_jobs=True)


def test_state_error_and_page_of_a_job():
    job = {
        "name": "projects/123/locations/europe-west4/customJobs/77",
        "state": "JOB_STATE_FAILED",
        "error": {"code": 3, "message": "The replica\nexited."},
    }
    assert google_jobs.state(job) == "FAILED"
    assert google_jobs.error_message(job) == "The replica exited."
    assert google_jobs.console_url(job, "my-project") == (
        "https://console.cloud.google.com/agent-platform/locations/europe-west4/training/77"
        "?project=my-project"
    )
    assert google_jobs.state({}) == "UNSPECIFIED"


def test_an_invalid_response_creates_no_second_job(vertex):
    service, jobs = vertex([("after", Reply(body={"name": f"{PLACE}/customJobs/1", "state": 5}))])
    created = jobs.create("customJobs", BODY, may_exist=False)
    assert (created.job, len(service.jobs)) == ({"name": f"{PLACE}/customJobs/1"}, 1)
    service, jobs = vertex([("after", RESET)])
    service.changes = {"state": 5}
    with pytest.raises(GoogleError, match=r"customJobs\[0\]\.state: expected text, got 5"):
        jobs.create("customJobs", BODY, may_exist=False)
    assert creations(service) == 1
