"""HTTP: which requests are refused."""

from __future__ import annotations

import pytest
import requests
from failing_calls import FailingEmulator

from distlaunch.emulator.emulator import Emulator

from .jobs import custom_job, pool


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
    response = requests.post(service.url + service.jobs(), body, headers=headers, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("Invalid JSON payload received. ")


def test_an_unknown_method_is_not_found(service):
    path = f"{service.jobs()}/1:resume"
    assert service.error("POST", path) == (404, f"Method not found: POST {path}")


def test_calls_fail_where_a_test_wants_them_to():
    faults = "reset@create#1,lost@create#2,denied@create#3,hang@list#1"
    with FailingEmulator(faults="slow-states:3600", call_faults=faults) as emulator:
        jobs = f"{emulator.url}/v1/projects/p/locations/us-central1/customJobs"
        with pytest.raises(requests.ReadTimeout):
            requests.get(jobs, timeout=0.3)
        for effects in (0, 1):
            with pytest.raises(requests.ConnectionError):
                requests.post(jobs, json=custom_job(pool()), timeout=60)
            assert len(requests.get(jobs, timeout=60).json().get("customJobs", [])) == effects
        codes = [requests.post(jobs, json=custom_job(pool()), timeout=60) for _ in range(2)]
        assert [response.status_code for response in codes] == [403, 200]


def test_only_who_has_the_token_may_call(service):
    address, token = service.url.rsplit("/", 1)
    paths = [service.jobs(), "/storage/v1/b", "/v2/entries:list", "/unknown"]
    unknown = "unregistered callers"
    for url in (address, f"{address}/{token[:-1]}", f"{address}/{token}0"):
        for path in paths:
            response = requests.get(url + path, timeout=20)
            error = response.json()["error"]
            assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED"), url + path
            assert unknown in error["message"]
    assert requests.post(address + service.jobs(), json={}, timeout=20).status_code == 403
    for value in (f"Bearer {token}0", "Bearer ", token, f"Basic {token}", "Bearer é"):
        headers = {"Authorization": value.encode()}
        response = requests.get(address + service.jobs(), headers=headers, timeout=20)
        assert response.status_code == 401
        assert response.json()["error"]["status"] == "UNAUTHENTICATED"
    headers = {"Authorization": f"Bearer {token}"}
    assert requests.get(address + service.jobs(), headers=headers, timeout=20).json() == {}


def test_an_open_emulator_serves_everybody():
    with Emulator(is_open=True) as emulator:
        assert emulator.url.count("/") == 2
        response = requests.get(f"{emulator.url}/storage/v1/b", timeout=20)
        assert response.json() == {"items": []}
