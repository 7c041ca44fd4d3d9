"""Cloud Logging's entries:list."""

from __future__ import annotations

import contextlib
import time
import tracemalloc

import pytest
import requests

from distlaunch.emulator.http import Server
from distlaunch.emulator.logs import LogStore

TEXTS = ["provisioned", "epoch 1", "epoch 2"]


@pytest.fixture(scope="module")
def call():
    """Send queries of the log of a job with three lines, and of one of another project."""
    logs = LogStore()
    for job, project, texts in (("11", "my-project", TEXTS), ("22", "other", ["no"])):
        logs.add_job(job, project)
        for text in texts:
            logs.add(job, "workerpool1-0", "ERROR", text, trial="3")
    with contextlib.closing(logs), contextlib.closing(Server(0, print, is_open=True)) as server:
        server.start(logs.routes())

        def call(**query):
            url = f"{server.url}/v2/entries:list"
            body = {"resourceNames": ["projects/my-project"]} | query
            return requests.post(url, json=body, timeout=20).json()

        yield call


def texts_of(page):
    return [entry["jsonPayload"]["message"] for entry in page["entries"]]


def test_an_entry_names_its_task_and_trial(call):
    [entry] = call(filter='jsonPayload.message="provisioned"')["entries"]
    assert entry["severity"] == "ERROR"
    assert entry["logName"] == "projects/my-project/logs/workerpool1-0"
    labels = {"project_id": "my-project", "job_id": "11", "task_name": "workerpool1-0"}
    assert entry["resource"] == {"type": "ml_job", "labels": labels}
    assert entry["labels"]["ml.googleapis.com/trial_id"] == "3"


@pytest.mark.parametrize(("order", "texts"), [("", TEXTS), ("timestamp desc", TEXTS[::-1])])
def test_pages_are_in_the_requested_order(call, order, texts):
    first = call(orderBy=order, pageSize=2)
    second = call(orderBy=order, pageSize=2, pageToken=first["nextPageToken"])
    assert texts_of(first) + texts_of(second) == texts
    assert "nextPageToken" not in second


@pytest.mark.parametrize(
    "query",
    [
        {"pageToken": "no"},
        {"pageSize": -1},
        {"resourceNames": ["my-project"]},
        {"orderBy": "severity"},
        {"filter": "epoch"},
    ],
)
def test_other_queries_are_refused(call, query):
    assert call(**query)["error"]["code"] == 400


def test_queries_of_a_long_log_read_only_what_they_return(tmp_path):
    count = 30_000
    tracemalloc.start()
    with (
        contextlib.closing(LogStore()) as logs,
        contextlib.closing(Server(0, str, is_open=True)) as server,
    ):
        for job in ("11", "22"):
            logs.add_job(job, "my-project")
            for number in range(count):
                logs.add(job, "workerpool0-0", "INFO", f"line {number} of a log that is long")
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
        tracemalloc.stop()
        server.start(logs.routes())

        def call(**query):
            body = {"resourceNames": ["projects/my-project"], "pageSize": 3} | query
            return requests.post(f"{server.url}/v2/entries:list", json=body, timeout=20).json()

        of_job = 'resource.labels.job_id="11"'
        began = time.monotonic()
        assert call(filter='resource.labels.job_id:"no"') == {"entries": []}
        scan = time.monotonic() - began  # of all entries
        began = time.monotonic()
        for _ in range(5):
            newest = call(orderBy="timestamp desc", filter=of_job)
            since = newest["entries"][-1]["timestamp"]
            after = call(filter=f'{of_job} AND timestamp>="{since}"')
            either = call(filter=f'({of_job} OR resource.labels.job_id="33")', orderBy="timestamp")
        assert time.monotonic() - began < 15 * scan / 4
        assert texts_of(newest)[0].startswith(f"line {count - 1} ")
        assert texts_of(after) == texts_of(newest)[::-1]
        assert texts_of(either)[0].startswith("line 0 ")
        assert call(filter="resource.labels.job_id:1", orderBy="timestamp desc") == newest
        assert call(filter=f'{of_job} AND resource.labels.job_id="22"') == {"entries": []}
