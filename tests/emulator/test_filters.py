"""Filters of jobs and log entries."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.emulator.filters import MAX_LENGTH, parse_filter
from distlaunch.emulator.http import ApiError

ITEM = {
    "insertId": "00000000000003",
    "resource": {"type": "ml_job", "labels": {"job_id": "11", "task_name": "workerpool1-0"}},
    "timestamp": "2026-11-21T17:00:00.123456Z",
    "severity": "ERROR",
    "jsonPayload": {"message": 'a "quoted" \\ failure'},
    "displayName": "digits",
    "state": "JOB_STATE_QUEUED",
    "createTime": "2026-11-21T17:00:00.000001Z",
    "labels": {"team": "blue"},
}


def matches(text, item=ITEM):
    return parse_filter(text, ITEM)(item)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'resource.type="ml_job" AND resource.labels.job_id="11"',
        'resource.type="ml_job" resource.labels.task_name="workerpool1-0"',
        'resource.labels.job_id="1" OR resource.labels.job_id="11" AND severity>=WARNING',
        'resource.labels.task_name!="service" AND severity<CRITICAL',
        'jsonPayload.absent!="a"',
        'jsonPayload.message:"FAIL"',
        'jsonPayload.message="a \\"quoted\\" \\\\ failure"',
        'timestamp="2026-11-21T17:00:00.123456+0000"',  # as google-cloud-logging writes it
        'timestamp="2026-11-21T18:00:00.123456789+01:00"',
        # gcloud's position
        '((timestamp="1970-01-01T01:00:00.000000000Z" AND insertId>"0") OR '
        'timestamp>"1970-01-01T01:00:00.000000000Z") AND timestamp<"2999-01-01T00:00:00+00:00"',
        'display_name="digits" AND labels.team=blue',
        '(state="JOB_STATE_PENDING" OR state="JOB_STATE_QUEUED") AND labels.team:*',
        'create_time>="2026-11-21"',
    ],
)
def test_a_filter_matches(text):
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        'resource.labels.job_id="1"',
        'severity=ERROR AND resource.labels.job_id="1" OR insertId="1"',
        "severity>ERROR",
        "jsonPayload.absent:*",
    ],
)
def test_a_filter_does_not_match(text):
    assert not matches(text)


@given(st.integers(0, 10**16), st.integers(0, 10**16))
def test_times_compare_to_the_microsecond(first, second):
    start = datetime(1970, 1, 1, tzinfo=timezone.utc)
    entry, operand = (start + timedelta(microseconds=number) for number in (first, second))
    text = f'timestamp<"{operand:%Y-%m-%dT%H:%M:%S.%fZ}"'
    assert matches(text, {"timestamp": f"{entry:%Y-%m-%dT%H:%M:%S.%fZ}"}) is (first < second)


@pytest.mark.parametrize(
    "text",
    [
        "epoch",
        "NOT severity=ERROR",
        'jsonPayload.message=~"a.*"',
        'timestamp>="yesterday"',
        "severity>=LOUD",
        'bogus="a"',
        "(severity=INFO",
        "severity=INFO OR",
        'insertId="a',
        'jsonPayload.message="' + "a" * MAX_LENGTH + '"',
    ],
)
def test_other_filters_are_refused(text):
    with pytest.raises(ApiError, match=r"^(Unparseable|The) filter") as problem:
        parse_filter(text, ITEM)
    assert problem.value.code == 400
