"""Log entries of Cloud Logging → lines of tasks."""

from __future__ import annotations

import re

import pytest

from distlaunch import timestamps
from distlaunch.engines.api import LogSelection
from distlaunch.engines.vertex.log_query import LogQuery, check_tasks, read_page, task_names
from distlaunch.engines.vertex.log_reader import LogReader
from distlaunch.errors import UsageError

from .servers import Reply, in_turn

STAMP = "2026-11-21T17:00:00.123456789Z"
JOB = {"name": "projects/1/locations/r/customJobs/77", "createTime": "2026-11-21T17:00:00Z"}


def entry(
    task: str = "workerpool0-0", text: str = "hello", *, trial: str | None = None, **more: object
) -> dict:
    return {
        "insertId": "abc",
        "resource": {"type": "ml_job", "labels": {"job_id": "77", "task_name": task}},
        "labels": {"ml.googleapis.com/trial_id": trial} if trial else {},
        "timestamp": STAMP,
        "receiveTimestamp": "2026-11-21T17:00:01Z",
        "severity": "INFO",
        "jsonPayload": {"message": text},
        **more,
    }


@pytest.fixture
def read(serve, jobs_at):
    """Return the entries of a page and the next token."""

    def run(*entries: dict, query: LogQuery | None = None, token: str | None = None, **more):
        run.server = serve(in_turn(Reply(body={"entries": list(entries), **more})))
        since = timestamps.parse("2026-11-21T16:00:00Z")
        query = query or LogQuery(("77",))
        return read_page(jobs_at(run.server), query, since, token, retry_deadline=0)

    return run


@pytest.fixture
def read_all(serve, jobs_at):
    """Return the lines of a job whose log has these pages of entries."""

    def run(*pages: list[dict], job=JOB, selection=LogSelection(), **options):  # noqa: B008
        if selection.last is not None:  # which are requested newest first
            pages = tuple(page[::-1] for page in pages[::-1])
        tokens = [{"nextPageToken": "next"}] * (len(pages) - 1)
        replies = [
            Reply(body={"entries": page} | token)
            for page, token in zip(pages, [*tokens, {}], strict=True)
        ]
        run.server = serve(in_turn(*replies))
        return list(LogReader(jobs_at(run.server), job, selection, **options).read_all(job))

    return run


def test_the_request(read):
    entries, token = read(nextPageToken="more", token="this")  # noqa: S106 - no secret
    (request,) = read.server.requests
    assert (entries, token) == ([], "more")
    assert (request.method, request.path) == ("POST", "/v2/entries:list")
    assert request.body == {
        "resourceNames": ["projects/p"],
        "filter": 'resource.type="ml_job" AND resource.labels.job_id="77" '
        'AND timestamp>="2026-11-21T16:00:00.000000Z"',
        "orderBy": "timestamp asc",
        "pageSize": 1000,
        "pageToken": "this",
    }


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        (
            LogQuery(("77",), ("worker:3", "vertex", "trial:2/worker:3")),
            'JOB_ID="77" AND (TASK_NAME="service" OR TASK_NAME="workerpool1-3")',
        ),
        (LogQuery(("77", "88", "99")), '(JOB_ID="77" OR JOB_ID="88" OR JOB_ID="99")'),
    ],
)
def test_filters(query, terms):
    terms = terms.replace("JOB_ID", "resource.labels.job_id")
    terms = terms.replace("TASK_NAME", "resource.labels.task_name")
    assert query.filter(0.0) == (
        f'resource.type="ml_job" AND {terms} AND timestamp>="1970-01-01T00:00:00.000000Z"'
    )


@pytest.mark.parametrize(
    ("google_name", "task"),
    [
        ("workerpool0-0", "chief"),
        ("workerpool1-3", "worker:3"),
        ("workerpool2-0", "ps:0"),
        ("workerpool3-12", "evaluator:12"),
        ("service", "vertex"),
        ("", "vertex"),
        ("something-else", "something-else"),
    ],
)
def test_names_of_tasks(read, google_name, task):
    (plain, labelled), _ = read(entry(google_name), entry(google_name, trial="2"))
    assert (plain.task, labelled.task) == (task, f"trial:2/{task}")


def test_a_trial_is_known_by_the_number_of_its_job(read):
    (line,), _ = read(entry("workerpool1-0"), query=LogQuery(("66",), trials={"77": "5"}))
    assert line.task == "trial:5/worker:0"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"jsonPayload": {"message": "hello", "levelname": "INFO"}}, "hello"),
        ({"jsonPayload": {"message": "10%\r20%\r30%\r\nend"}}, "10%\n20%\n30%\nend"),
        ({"jsonPayload": {"message": ""}}, ""),
        ({"jsonPayload": {"loss": 0.5, "é": 1}}, '{"loss": 0.5, "é": 1}'),
        ({"jsonPayload": None, "textPayload": "Job is running."}, "Job is running."),
        ({"jsonPayload": None, "protoPayload": {"a": 1}}, '{"a": 1}'),
        ({"jsonPayload": None}, ""),
    ],
)
def test_text_of_an_entry(read, payload, text):
    (line,), _ = read(entry(**payload))
    assert line.text == text


def test_times_of_an_entry(read):
    ahead = entry(receiveTimestamp="2026-11-21T16:00:00Z")
    invalid = [entry(timestamp=t, receiveTimestamp=t) for t in ("2026-11-21T17:00:infZ", 5, None)]
    (line, ahead_line, *invalid_lines), _ = read(entry(severity="ERROR"), ahead, *invalid)
    assert (line.timestamp, line.severity) == (STAMP, "ERROR")
    assert line.time == line.moment == pytest.approx(timestamps.parse(STAMP))
    assert ahead_line.moment == timestamps.parse("2026-11-21T16:00:00Z")
    assert {(line.time, line.moment) for line in invalid_lines} == {(0.0, 0.0)}


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (("trial:1/chief",), ["trial:1/chief"]),
        (("chief",), ["trial:1/chief", "trial:2/chief"]),
        ((), ["trial:1/chief", "trial:2/chief", "trial:1/worker:0"]),
    ],
)
def test_tasks_of_one_trial_or_of_all(read, tasks, expected):
    entries = [entry(trial="1"), entry(trial="2"), entry("workerpool1-0", trial="1")]
    lines, _ = read(*entries, query=LogQuery(("77",), tasks))
    assert [line.task for line in lines] == expected


SPEC = {"workerPoolSpecs": [{"replicaCount": "1"}, {"replicaCount": 2}, {}, {"replicaCount": "1"}]}


def test_names_of_a_jobs_tasks():
    names = ("chief", "worker:0", "worker:1", "evaluator:0")
    assert task_names({"jobSpec": SPEC}) == (*names, "vertex")
    tuning = {"trialJobSpec": SPEC, "maxTrialCount": 12}
    assert task_names(tuning) == (*(f"trial:12/{name}" for name in names), "vertex")
    assert task_names({}) == ("chief", "vertex")


IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
REDUCTION = {
    "workerPoolSpecs": [
        {"replicaCount": "1"},
        {"replicaCount": "1"},
        {"replicaCount": "2", "containerSpec": {"imageUri": IMAGE}},
    ]
}


def test_the_third_pool_may_be_google_s_reduction_server(read_all):
    job = JOB | {"jobSpec": REDUCTION}
    names = ("chief", "worker:0", "reduction-server:0", "reduction-server:1", "vertex")
    assert task_names(job) == names
    check_tasks(names, task_names(job))
    with pytest.raises(UsageError, match="no such task"):
        check_tasks(("ps:0",), task_names(job))
    selection = LogSelection(("reduction-server:1",))
    [line] = read_all([entry("workerpool2-1", "ready")], job=job, selection=selection)
    assert (line.task, line.text) == ("reduction-server:1", "ready\n")
    assert 'task_name="workerpool2-1"' in read_all.server.requests[0].body["filter"]


def test_tasks_that_a_job_does_not_have():
    check_tasks(("chief", "worker:1", "vertex"), task_names({"jobSpec": SPEC}))
    check_tasks(
        ("chief", "trial:3/worker:1"), task_names({"trialJobSpec": SPEC, "maxTrialCount": 12})
    )
    with pytest.raises(UsageError) as error:
        check_tasks(("worker:2",), task_names({"jobSpec": SPEC}))
    assert str(error.value) == (
        "--task worker:2: no such task in this job; "
        "there are: chief, worker:0, worker:1, evaluator:0, vertex"
    )
    many = {"jobSpec": {"workerPoolSpecs": [{"replicaCount": 1}, {"replicaCount": 99}]}}
    with pytest.raises(UsageError, match=r"there are: chief, worker:0, worker:1, …, vertex$"):
        check_tasks(("ps:0",), task_names(many))
    for name in ("boss", "worker", "worker:-1", "trial:x/chief", "workerpool0-0"):
        with pytest.raises(UsageError, match="no such task in this job; there are: chief, vertex"):
            check_tasks((name,), task_names(JOB))


def entries(*lines: tuple[str, str]) -> list[dict]:
    return [entry(*line, insertId=str(number)) for number, line in enumerate(lines)]


def test_consecutive_lines_of_a_task_are_one_event(read_all):
    page = entries(("workerpool0-0", "a"), ("workerpool0-0", "b\nc"), ("service", "d"))
    first, second = read_all(page)
    assert (first.task, first.text, first.time) == ("chief", "a\nb\nc\n", "")
    assert (second.task, second.text) == ("vertex", "d\n")
    assert 'timestamp>="2026-11-21T16:59:00.000000Z"' in read_all.server.requests[0].body["filter"]
    lines = read_all(page, selection=LogSelection(is_per_entry=True))
    assert [line.text for line in lines] == ["a\n", "b\nc\n", "d\n"]
    assert {(line.time, line.severity) for line in lines} == {(STAMP, "INFO")}


def test_the_log_of_many_trials_is_read_by_a_filter_that_cloud_logging_accepts(read_all):
    ids = [str(10**18 + number) for number in range(1_000)]
    trials = [{"customJob": f"projects/1/locations/r/customJobs/{job_id}"} for job_id in ids]
    read_all([], job=JOB | {"maxTrialCount": 1_000, "trials": trials})
    (request,) = read_all.server.requests
    assert len(request.body["filter"]) <= 20_000
    assert all(f'job_id="{job_id}"' in request.body["filter"] for job_id in ["77", *ids[-300:]])


def test_of_a_long_log_only_the_last_pages_are_read(read_all):
    names = [[f"{page} {line}" for line in range(3)] for page in range(9)]
    pages = [[entry("service", name, insertId=name) for name in page] for page in names]
    pages[7][0], pages[7][1] = pages[8][0], pages[8][1]  # Cloud Logging may send one twice
    lines = read_all(*pages, selection=LogSelection(last=4))
    assert [line.text for line in lines] == ["7 2\n8 0\n8 1\n8 2\n"]
    orders = [request.body["orderBy"] for request in read_all.server.requests]
    assert orders == ["timestamp desc"] * 2


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (LogSelection(), ["a\n", "oneDNN 1\nb\n", "c\n"]),
        (LogSelection(last=2), ["oneDNN 1\nb\n", "c\n"]),
        (LogSelection(last=0), []),
        (LogSelection(pattern=re.compile("[ac1]")), ["a\n", "oneDNN 1\n", "c\n"]),
        (LogSelection(pattern=re.compile("b"), last=5), ["b\n"]),
    ],
)
def test_a_part_of_the_log(read_all, selection, expected):
    page = entries(("service", "a"), ("workerpool0-0", "oneDNN 1\nb"), ("service", "c"))
    assert [line.text for line in read_all(page[:1], page[1:], selection=selection)] == expected


def test_the_noise_of_tensorflow_is_hidden_on_request(read_all):
    noise = "I0000 00:00:1795227581.558090    9548 port.cc:153] oneDNN custom operations are on."
    page = entries(*(("service", text) for text in (noise, f"{noise}\nepoch 1", "")))
    lines = read_all(page, selection=LogSelection(hide_noise=True, is_per_entry=True))
    assert [line.text for line in lines] == ["epoch 1\n", "\n"]


def test_times():
    seconds = timestamps.parse("2026-11-21T17:00:00.123456789Z")
    assert seconds == pytest.approx(1795280400.1234567, abs=1e-6)
    assert timestamps.parse(timestamps.format(seconds)) == pytest.approx(seconds, abs=1e-6)
    for text in ("", "Z", "None", "2026-11-21", "2026-11-21T17:00:00+01:00"):
        with pytest.raises(ValueError, match=r"not an RFC 3339|does not match"):
            timestamps.parse(text)
        assert timestamps.seconds_between(text, "2026-11-21T17:00:00Z") is None


def test_since(monkeypatch):
    monkeypatch.setattr(timestamps.time, "time", lambda: 100_000.0)
    since = timestamps.parse_since
    assert [since(text) for text in ("90s", "10m", "2h", "1d")] == [99_910, 99_400, 92_800, 13_600]
    assert since("1970-01-01T00:01") == since("1970-01-01T00:01Z") == 60
    assert since("1970-01-01T01:01+01:00") == 60
    for text in ("", "ten", "10", "-5m", "1w"):
        with pytest.raises(ValueError, match="neither a duration such as 10m nor a time"):
            since(text)


def test_entries_without_their_fields(read):
    (line, other), _ = read({}, {"timestamp": "yesterday", "severity": 3, "resource": []})
    assert (line.task, line.text, line.severity) == ("vertex", "", "DEFAULT")
    assert line.insert_id != other.insert_id
