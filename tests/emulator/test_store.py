from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.store import (
    Store,
    UniqueClock,
    UnknownJob,
    format_time,
    parse_time,
    project_number,
)

PARENT = ("my-project", "us-central1", "customJobs")


def test_a_created_job_has_a_name_a_time_and_a_state():
    job = Store().create(*PARENT, {"displayName": "digits"})
    parent, _, job_id = job["name"].rpartition("/")
    assert parent == f"projects/{project_number('my-project')}/locations/us-central1/customJobs"
    assert job_id.isdecimal()
    assert len(job_id) == 19
    assert job["displayName"] == "digits"
    assert job["state"] == "JOB_STATE_QUEUED"
    assert job["createTime"] == job["updateTime"]


def test_a_job_is_known_by_the_number_and_the_id_of_its_project():
    store = Store()
    created = store.create(*PARENT, {})
    name = created["name"]
    name_with_id = name.replace(project_number("my-project"), "my-project")
    store.update(name_with_id, state="JOB_STATE_RUNNING")
    assert store.get(name) == store.get(name_with_id)
    assert store.get(name)["state"] == "JOB_STATE_RUNNING"
    assert store.get(name)["updateTime"] > created["updateTime"]
    assert project_number("123") == "123"


def test_jobs_are_listed_newest_first():
    store = Store()
    names = [store.create(*PARENT, {})["name"] for _ in range(50)]
    store.create("other", *PARENT[1:], {})
    store.create("my-project", "europe-west4", "customJobs", {})
    store.create("my-project", "us-central1", "hyperparameterTuningJobs", {})
    jobs = store.list(*PARENT)
    assert [job["name"] for job in jobs] == names[::-1]
    times = [job["createTime"] for job in jobs]
    assert times == sorted(set(times), reverse=True)


def test_a_deleted_job_stays_deleted():
    store = Store()
    name = store.create(*PARENT, {})["name"]
    store.delete(name)
    store.update(name, state="JOB_STATE_FAILED")
    for method in (store.get, store.delete):
        with pytest.raises(UnknownJob):
            method(name)
    assert store.list(*PARENT) == []


@given(st.integers(0, 10**16))
def test_a_formatted_time_parses_back(microseconds):
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=microseconds)
    assert parse_time(format_time(moment)) == moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T17:00:00+01:00", "2026-11-21T16:00:00.000000Z"),
        ("2026-11-21T17:00:00.123456+0000", "2026-11-21T17:00:00.123456Z"),
        ("2026-11-21t17:00:00.5z", "2026-11-21T17:00:00.500000Z"),
        ("2026-11-21T17:00:00.123456789Z", "2026-11-21T17:00:00.123456Z"),
        ("2026-11-21", "2026-11-21T00:00:00.000000Z"),
    ],
)
def test_formats_of_times(text, expected):
    assert format_time(parse_time(text).astimezone(timezone.utc)) == expected


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-21T17:00", "2026-13-01T00:00:00Z", "1763744400"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="is not a time in RFC 3339"):
        parse_time(text)


def test_a_unique_clock_returns_no_time_twice():
    clock = UniqueClock()
    times = [clock() for _ in range(1000)]
    assert times == sorted(set(times))
