"""Cloud Logging's entries:list."""

from __future__ import annotations

import contextlib

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
    with contextlib.closing(Server(0, print)) as server:
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
        {"resourceNames": ["my-project"]},
        {"orderBy": "severity"},
        {"filter": "epoch"},
    ],
)
def test_other_queries_are_refused(call, query):
    assert call(**query)["error"]["code"] == 400
