"""HTTP: which requests are refused, and faults on the wire."""

from __future__ import annotations

import pytest
import requests

from .run.jobs import custom_job, pool

BREAKS = (requests.ConnectionError, requests.ReadTimeout)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8085"}, 200),
        ({"Host": "[::1]"}, 200),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_only_this_machine_and_no_web_page_may_call(headers, status, service):
    assert service.call("GET", service.jobs(), headers=headers).status_code == status


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_has_to_be_declared_as_json(content_type, service):
    headers = {"Content-Type": content_type}
    message = f"Content-Type must be application/json, got {content_type or 'none'}."
    error = service.error("POST", service.jobs(), custom_job(pool()), headers=headers)
    assert error == (415, message)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_not_a_json_object_is_refused(body, service):
    headers = {"Content-Type": "application/json"}
    response = requests.post(service.url + service.jobs(), body, headers=headers, timeout=20)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("Invalid JSON payload received. ")


def test_an_unknown_method_is_not_found(service):
    path = f"{service.jobs()}/1:resume"
    assert service.error("POST", path) == (404, f"Method not found: POST {path}")


def test_reset_has_no_effect_and_lost_has(serve):
    service = serve("reset@create,lost@create#2")
    for effects in (0, 1):
        with pytest.raises(BREAKS):
            service.call("POST", service.jobs(), custom_job(pool()))
        assert len(service.call("GET", service.jobs()).json().get("customJobs", [])) == effects
    assert service.call("POST", service.jobs(), custom_job(pool())).status_code == 200


def test_hang_answers_nothing_until_the_client_gives_up(serve):
    service = serve("hang@list")
    with pytest.raises(requests.ReadTimeout):
        requests.get(service.url + service.jobs(), timeout=0.3)
    assert service.call("GET", service.jobs()).status_code == 200


@pytest.mark.parametrize(
    ("fault", "code", "status", "reasons"),
    [
        ("503", 503, "UNAVAILABLE", []),
        ("expired", 401, "UNAUTHENTICATED", ["ACCESS_TOKEN_EXPIRED"]),
        ("denied", 403, "PERMISSION_DENIED", ["IAM_PERMISSION_DENIED"]),
        ("disabled", 403, "PERMISSION_DENIED", ["SERVICE_DISABLED"]),
        ("quota", 429, "RESOURCE_EXHAUSTED", []),
    ],
)
def test_faults_that_are_answers(fault, code, status, reasons, serve):
    service = serve(f"{fault}@create#1")
    response = service.call("POST", service.jobs())
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["status"]) == (code, code, status)
    assert [detail["reason"] for detail in error.get("details", [])] == reasons
    assert response.headers.get("Retry-After") == ("1" if fault == "503" else None)
