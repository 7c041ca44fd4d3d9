"""The messages of Google's errors; see api_errors.yaml for responses and texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from requests import Response

from distlaunch.engines.vertex.api_errors import ErrorResponse
from distlaunch.errors import GoogleError, RetryableError

CASES = yaml.safe_load(Path(__file__).with_name("api_errors.yaml").read_text())
RPC = "type.googleapis.com/google.rpc."


def error_of(
    status: int,
    content: bytes,
    headers: dict | None = None,
    service: str = "aiplatform",
    member: str | None = None,
) -> GoogleError:
    response = Response()
    response.status_code, response._content = status, content
    response.headers.update(headers or {})
    response.url = f"https://{service}.googleapis.com/storage/v1/b/data/o"
    return ErrorResponse(response, service, "p", member).error()


def body_of(case: dict) -> str:
    """Return the body of a response; details are of Google's types."""
    if "error" not in case:
        return case["body"]
    details = [
        detail | {"@type": RPC + detail["@type"]} for detail in case["error"].get("details", [])
    ]
    return json.dumps({"error": {"code": case["status"], **case["error"], "details": details}})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['status']} {case['text'][-60:]}")
def test_an_error_names_the_cause_and_what_fixes_it(case):
    options = {name: case[name] for name in ("service", "member") if name in case}
    error = error_of(case["status"], body_of(case).encode(), **options)
    assert str(error) == case["text"]
    fields = {"status": case["status"]} | case.get("fields", {})
    assert {name: getattr(error, name) for name in fields} == fields
    assert isinstance(error, RetryableError) == (case["status"] == 429)
    assert not getattr(error, "may_have_been_processed", False)


@pytest.mark.parametrize(
    ("header", "wait"), [("7", 7.0), ("-7", 0.0), ("soon", 0.0), ("nan", 0.0), (None, 3.5)]
)
def test_the_delay_before_a_retry(header, wait):
    details = [] if header else [{"@type": f"{RPC}RetryInfo", "retryDelay": "3.5s"}]
    body = {"error": {"code": 503, "status": "UNAVAILABLE", "details": details}}
    headers = {"Retry-After": header} if header else {}
    assert error_of(503, json.dumps(body).encode(), headers).wait == wait


JSON = some.recursive(
    some.none() | some.booleans() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
)
KINDS = ("ErrorInfo", "BadRequest", "QuotaFailure", "Help", "RetryInfo", "Other")
FIELDS = ("metadata", "reason", "fieldViolations", "violations", "links", "retryDelay")
DETAIL = some.fixed_dictionaries(
    {"@type": some.sampled_from([f"{RPC}{kind}" for kind in KINDS])},
    optional=dict.fromkeys(FIELDS, JSON),
)
ERRORS = some.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("code", "message", "status"), JSON)
    | {"details": JSON | some.lists(DETAIL)},
)


@given(
    some.sampled_from([400, 401, 403, 404, 429, 503]) | some.integers(300, 599),
    some.binary() | ERRORS.map(lambda e: json.dumps({"error": e}).encode()),
)
def test_any_response_gives_a_message_in_one_line(status, content):
    text = str(error_of(status, content))
    assert "\n" not in text
    assert 0 < len(text) < 3_000
