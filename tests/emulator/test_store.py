from __future__ import annotations

import threading

import pytest

from distlaunch.emulator.store import Store, UnknownJob, project_number

PLACE = ("my-project", "us-central1", "customJobs")


def test_a_job_gets_a_name_with_the_project_s_number_a_time_and_a_state():
    made = Store(clock=lambda: 1_763_744_400_123_456_789).create(*PLACE, {"displayName": "digits"})
    parent, _, number = made["name"].rpartition("/")
    assert parent == f"projects/{project_number('my-project')}/locations/us-central1/customJobs"
    assert number.isdecimal()
    assert len(number) == 19
    assert made == {
        "name": made["name"],
        "displayName": "digits",
        "state": "JOB_STATE_QUEUED",
        "createTime": "2025-11-21T17:00:00.123456Z",
        "updateTime": "2025-11-21T17:00:00.123456Z",
    }


def test_a_job_is_found_by_the_project_s_number_and_by_its_id():
    store = Store()
    name = store.create(*PLACE, {})["name"]
    by_id = name.replace(project_number("my-project"), "my-project")
    assert store.get(by_id) == store.get(name)
    store.update(by_id, state="JOB_STATE_RUNNING")
    assert store.get(name)["state"] == "JOB_STATE_RUNNING"
    assert project_number("123") == "123"


def test_the_newest_comes_first_also_where_the_clock_stands_still():
    store = Store(clock=lambda: 0)
    names = [store.create(*PLACE, {})["name"] for _ in range(5)]
    store.create("other", *PLACE[1:], {})
    store.create("my-project", "europe-west4", "customJobs", {})
    store.create("my-project", "us-central1", "hyperparameterTuningJobs", {})
    listed = store.list(*PLACE)
    assert [job["name"] for job in listed] == names[::-1]
    times = [job["createTime"] for job in listed]
    assert times == sorted(set(times), reverse=True)


def test_what_is_handed_out_is_a_copy_and_what_is_handed_in_is_copied():
    store, spec = Store(), {"labels": {"a": "1"}}
    name = store.create(*PLACE, spec)["name"]
    spec["labels"]["a"] = "2"
    store.get(name)["labels"]["a"] = "3"
    store.list(*PLACE)[0]["labels"]["a"] = "4"
    assert store.get(name)["labels"] == {"a": "1"}


def test_a_change_changes_the_time_and_none_takes_a_field_away():
    store = Store()
    made = store.create(*PLACE, {})
    store.update(made["name"], error={"code": 3}, startTime="then")
    store.update(made["name"], error=None)
    changed = store.get(made["name"])
    assert "error" not in changed
    assert changed["startTime"] == "then"
    assert changed["updateTime"] > made["updateTime"]


def test_what_is_deleted_is_gone_and_stays_gone():
    store = Store()
    name = store.create(*PLACE, {})["name"]
    store.delete(name)
    store.update(name, state="JOB_STATE_FAILED")
    for way in (store.get, store.delete):
        with pytest.raises(UnknownJob):
            way(name)
    assert store.list(*PLACE) == []


def test_jobs_made_at_once_are_all_there():
    store = Store()
    threads = [
        threading.Thread(target=lambda: [store.create(*PLACE, {}) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job["createTime"] for job in store.list(*PLACE)}) == 200
