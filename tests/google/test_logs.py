"""Log entries as Cloud Logging gives them → ours."""

from __future__ import annotations

import re

import pytest

from distlaunch import timestamps
from distlaunch.errors import GoogleError, UsageError
from distlaunch.google.client import connect
from distlaunch.google.logs import LogQuery, Logs, check_tasks, task_names
from distlaunch.google.tail import LogReader, LogSelection

from .servers import Reply, in_turn

STAMP = "2026-11-21T17:00:00.123456789Z"


def entry(task: str = "workerpool0-0", *, trial: str | None = None, **more: object) -> dict:
    labels = {"ml.googleapis.com/trial_id": trial} if trial else {}
    return {
        "insertId": "abc",
        "resource": {"type": "ml_job", "labels": {"job_id": "77", "task_name": task}},
        "labels": labels,
        "timestamp": STAMP,
        "receiveTimestamp": "2026-11-21T17:00:01Z",
        "severity": "INFO",
        "jsonPayload": {"message": "hello"},
        **more,
    }


@pytest.fixture
def read(serve):
    """Read a page of entries."""

    def run(*entries: dict, query: LogQuery | None = None, token: str | None = None, **more):
        run.server = serve(in_turn(Reply(body={"entries": list(entries), **more})))
        logs = Logs(connect(run.server.url), "p")
        return logs.page(
            query or LogQuery(("77",)), timestamps.parse("2026-11-21T16:00:00Z"), token
        )

    return run


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ({"entries": {}}, "entries: expected a list, got an object"),
        ({"entries": [5]}, "entries[0]: expected an object, got 5"),
        ({"entries": [], "nextPageToken": {}}, "nextPageToken: expected text, got an object"),
    ],
)
def test_an_invalid_page_names_host_and_field(serve, page, problem):
    server = serve(in_turn(Reply(body=page)))
    with pytest.raises(GoogleError) as error:
        Logs(connect(server.url), "p").page(LogQuery(("77",)), 0.0)
    assert str(error.value) == f"{server.url}: invalid response: {problem}"


@pytest.mark.parametrize("time", ["2026-11-21T17:00:infZ", 5, None])
def test_a_time_that_is_none_is_left_out(read, time):
    (found,), _ = read(entry(timestamp=time, receiveTimestamp=time))
    assert found.time == found.received == 0.0


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
        (LogQuery(("77",), ("chief",)), 'JOB_ID="77" AND TASK_NAME="workerpool0-0"'),
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
    ("theirs", "ours"),
    [
        ("workerpool0-0", "chief"),
        ("workerpool1-3", "worker:3"),
        ("workerpool2-0", "ps:0"),
        ("workerpool3-12", "evaluator:12"),
        ("service", "vertex"),
        ("", "vertex"),
        ("workerpool4-0", "workerpool4-0"),
        ("something-else", "something-else"),
    ],
)
def test_names_of_tasks(read, theirs, ours):
    ((found,), _) = read(entry(theirs))
    assert found.task == ours
    ((found,), _) = read(entry(theirs, trial="2"))
    assert found.task == f"trial:2/{ours}"


def test_a_trial_is_known_by_the_number_of_its_own_job(read):
    ((found,), _) = read(entry("workerpool1-0"), query=LogQuery(("66",), trials={"77": "5"}))
    assert found.task == "trial:5/worker:0"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"jsonPayload": {"message": "hello", "levelname": "INFO"}}, "hello"),
        ({"jsonPayload": {"message": "two\nlines\n"}}, "two\nlines"),
        ({"jsonPayload": {"message": "10%\r20%\r30%\r\nend"}}, "10%\n20%\n30%\nend"),
        ({"jsonPayload": {"message": ""}}, ""),
        ({"jsonPayload": {"loss": 0.5, "é": 1}}, '{"loss": 0.5, "é": 1}'),
        ({"jsonPayload": None, "textPayload": "Job is running."}, "Job is running."),
        ({"jsonPayload": None, "protoPayload": {"a": 1}}, '{"a": 1}'),
        ({"jsonPayload": None}, ""),
    ],
)
def test_text_of_an_entry(read, payload, text):
    ((found,), _) = read(entry(**payload))
    assert found.text == text


def test_times_of_an_entry(read):
    ((found,), _) = read(entry(severity="ERROR"))
    assert (found.timestamp, found.severity) == (STAMP, "ERROR")
    assert found.time == found.moment == pytest.approx(timestamps.parse(STAMP))
    assert found.received - found.time == pytest.approx(0.876543, abs=1e-5)
    ahead = entry(receiveTimestamp="2026-11-21T16:00:00Z")
    ((found,), _) = read(ahead)
    assert found.moment == timestamps.parse("2026-11-21T16:00:00Z")


@pytest.mark.parametrize(
    ("tasks", "wanted"),
    [
        (("trial:1/chief",), ["trial:1/chief"]),
        (("chief",), ["trial:1/chief", "trial:2/chief"]),
        ((), ["trial:1/chief", "trial:2/chief", "trial:1/worker:0"]),
    ],
)
def test_tasks_of_one_trial_or_of_all(read, tasks, wanted):
    there = [entry(trial="1"), entry(trial="2"), entry("workerpool1-0", trial="1")]
    found, _ = read(*there, query=LogQuery(("77",), tasks))
    assert [each.task for each in found] == wanted


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


def test_the_third_pool_may_be_google_s_reduction_server(serve):
    job = JOB | {"jobSpec": REDUCTION}
    names = ("chief", "worker:0", "reduction-server:0", "reduction-server:1", "vertex")
    assert task_names(job) == names
    check_tasks(names, job)
    with pytest.raises(UsageError, match="no such task"):
        check_tasks(("ps:0",), job)
    server = serve(in_turn(Reply(body={"entries": entries(("workerpool2-1", "ready"))})))
    logs = Logs(connect(server.url), "p")
    [line] = LogReader(logs, job, LogSelection(("reduction-server:1",))).read_all(job)
    assert (line.task, line.text) == ("reduction-server:1", "ready\n")
    assert 'task_name="workerpool2-1"' in server.requests[0].body["filter"]


def test_tasks_that_a_job_has_not():
    check_tasks(("chief", "worker:1", "vertex"), {"jobSpec": SPEC})
    check_tasks(("chief", "trial:3/worker:1"), {"trialJobSpec": SPEC, "maxTrialCount": 12})
    with pytest.raises(UsageError) as problem:
        check_tasks(("worker:2",), {"jobSpec": SPEC})
    assert str(problem.value) == (
        "--task worker:2: no such task in this job; "
        "there are: chief, worker:0, worker:1, evaluator:0, vertex"
    )
    many = {"jobSpec": {"workerPoolSpecs": [{"replicaCount": 1}, {"replicaCount": 99}]}}
    with pytest.raises(UsageError, match=r"there are: chief, worker:0, worker:1, …, vertex$"):
        check_tasks(("ps:0",), many)
    for name in ("boss", "worker", "worker:-1", "trial:x/chief", "workerpool0-0"):
        with pytest.raises(UsageError, match="is not a task"):
            check_tasks((name,), JOB)


JOB = {"name": "projects/1/locations/r/customJobs/77", "createTime": "2026-11-21T17:00:00Z"}


def entries(*lines: tuple[str, str]) -> list[dict]:
    return [
        entry(task, insertId=str(number), jsonPayload={"message": text})
        for number, (task, text) in enumerate(lines)
    ]


def test_neighbouring_lines_of_a_task_come_together(serve):
    there = entries(("workerpool0-0", "a"), ("workerpool0-0", "b\nc"), ("service", "d"))
    server = serve(in_turn(Reply(body={"entries": there})))
    logs = Logs(connect(server.url), "p")
    (first, second) = LogReader(logs, JOB, LogSelection()).read_all(JOB)
    assert (first.task, first.text, first.time) == ("chief", "a\nb\nc\n", "")
    assert (second.task, second.text) == ("vertex", "d\n")
    assert 'timestamp>="2026-11-21T16:59:00.000000Z"' in server.requests[0].body["filter"]
    lines = list(LogReader(logs, JOB, LogSelection(), per_entry=True).read_all(JOB))
    assert [each.text for each in lines] == ["a\n", "b\nc\n", "d\n"]
    assert {(each.time, each.severity) for each in lines} == {(STAMP, "INFO")}


def tuning_job(trials: int) -> dict:
    name = "projects/1/locations/r/customJobs/{}"
    return {
        **JOB,
        "maxTrialCount": trials,
        "trials": [
            {"id": str(number), "customJob": name.format(10**18 + number)}
            for number in range(trials)
        ],
    }


def test_the_log_of_many_trials_is_read_by_filters_that_cloud_logging_accepts(serve):
    job = tuning_job(1_000)
    texts = iter(range(99))
    server = serve(
        lambda _: Reply(
            body={"entries": [entry(insertId=str(text := next(texts)), textPayload=str(text))]}
        )
    )
    reader = LogReader(Logs(connect(server.url), "p"), job, LogSelection())
    lines = [line.text for line in reader.read_all(job)]
    filters = [request.body["filter"] for request in server.requests]
    assert len(lines) == len(filters) > 1
    assert max(map(len, filters)) <= 20_000
    for trial in job["trials"]:
        number = trial["customJob"].rpartition("/")[2]
        assert sum(f'job_id="{number}"' in text for text in filters) == 1


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
def test_a_part_of_the_log(serve, selection, expected):
    found = entries(("service", "a"), ("workerpool0-0", "oneDNN 1\nb"), ("service", "c"))
    pages = [
        Reply(body={"entries": found[:1], "nextPageToken": "1"}),
        Reply(body={"entries": found[1:]}),
    ]
    server = serve(in_turn(*pages))
    reader = LogReader(Logs(connect(server.url), "p"), JOB, selection)
    assert [line.text for line in reader.read_all(JOB)] == expected


def test_the_noise_of_tensorflow_is_hidden_on_request(serve):
    noise = "I0000 00:00:1795227581.558090    9548 port.cc:153] oneDNN custom operations are on."
    texts = (noise, f"{noise}\nepoch 1", "")
    server = serve(in_turn(Reply(body={"entries": entries(*(("service", t) for t in texts))})))
    logs = Logs(connect(server.url), "p")
    reader = LogReader(logs, JOB, LogSelection(hide_noise=True), per_entry=True)
    assert [line.text for line in reader.read_all(JOB)] == ["epoch 1\n", "\n"]


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


def test_entries_with_next_to_nothing_in_them(read):
    (found, other), _ = read({}, {"timestamp": "yesterday", "severity": 3, "resource": []})
    assert (found.task, found.text, found.severity) == ("vertex", "", "DEFAULT")
    assert found.insert_id != other.insert_id
