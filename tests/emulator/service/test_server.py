"""HTTP itself: whom the server answers, and how faults look on the wire."""

from __future__ import annotations

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlaunch.emulator.faults import Faults, FaultyCalls
from distlaunch.emulator.service.server import Server
from distlaunch.errors import DistlaunchError

PARENT = "projects/my-project/locations/us-central1"

JOBS = f"/v1/{PARENT}/customJobs"
JSON_TYPE = {"Content-Type": "application/json"}


FIELDS = """
displayName jobSpec labels workerPoolSpecs replicaCount machineSpec studySpec parameters
resourceNames filter orderBy pageSize pageToken name contentType metadata sourceObjects generation
objectPreconditions destination ifGenerationMatch permissions
"""
NAMES = st.sampled_from(FIELDS.split())
WAYS = [
    ("POST", JOBS),
    ("POST", JOBS.replace("customJobs", "hyperparameterTuningJobs")),
    ("GET", JOBS),
    ("POST", f"{JOBS}/1:cancel"),
    ("POST", "/v2/entries:list"),
    ("POST", "/storage/v1/b"),
    ("GET", "/storage/v1/b/my-bucket/o"),
    ("PATCH", "/storage/v1/b/my-bucket/o/a"),
    ("POST", "/storage/v1/b/my-bucket/o/a/compose"),
    ("POST", "/storage/v1/b/my-bucket/o/a/rewriteTo/b/my-bucket/o/b"),
    ("POST", "/upload/storage/v1/b/my-bucket/o"),
    ("PUT", "/upload/storage/v1/b/my-bucket/o"),
    ("PUT", "/my-bucket/a"),
    ("DELETE", "/my-bucket/a"),
    ("GET", "/storage/v1/b/my-bucket/iam/testPermissions"),
    ("GET", "/v1/projects/my-project/services:batchGet"),
    ("GET", "/v1beta1/projects/p/services/aiplatform.googleapis.com/consumerQuotaMetrics"),
    ("GET", "/v1/services/C7E2-9256-1C43/skus"),
    ("POST", "/v3/projects/my-project:testIamPermissions"),
    ("POST", "/v3/projects/my-project:getIamPolicy"),
    ("POST", "/v1/projects/-/serviceAccounts/a@p.iam.gserviceaccount.com:testIamPermissions"),
]
QUERIES = [
    "",
    "pageSize=0&pageToken=WzEsMl0=",
    "filter=a",
    "pageToken=WzEsWzJdXQ==",
    "uploadType=media&name=a",
    "uploadType=multipart",
    "uploadType=resumable&name=a&ifGenerationMatch=1",
    "upload_id=x",
    "maxResults=1&delimiter=%2F&prefix=..%2F",
    "generation=1&ifMetagenerationMatch=x",
    "name=%00",
    "names=projects/my-project/services/iam.googleapis.com&permissions=*",
]


def raw(service, request: bytes) -> bytes:
    """Send bytes and return all that comes back until the connection is closed."""
    url = urlsplit(service.url)
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_it_listens_on_loopback_alone(service):
    port = urlsplit(service.url).port
    with socket.socket() as other, pytest.raises(OSError, match="refused"):
        other.connect(("127.0.0.2", port))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:80", "[::1]:80"])
def test_names_of_this_machine_are_answered(service, host):
    assert service.call("GET", JOBS, headers={"Host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8085", "127.0.0.1.evil.example"])
def test_a_page_that_leads_its_own_name_here_is_refused(service, host):
    reply = service.call("GET", JOBS, headers={"Host": host})
    assert (reply.status, reply.error["status"]) == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},  # of another port
    ],
)
def test_requests_of_web_pages_are_refused_by_every_method_and_service(service, headers):
    ways = [*WAYS, ("OPTIONS", JOBS), ("DELETE", f"{JOBS}/1"), ("GET", "/nowhere")]
    replies = [service.call(method, path, {}, headers) for method, path in ways]
    assert [reply.status for reply in replies] == [403] * len(ways)
    assert {reply.error["status"] for reply in replies} == {"PERMISSION_DENIED"}


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_emulator_s_own_origin_is_answered(service, custom_job, site):
    headers = {"Origin": service.url, "Sec-Fetch-Site": site}
    assert service.call("POST", JOBS, custom_job, headers).status == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None,
     "text/plain; application/json", "application/json, text/plain"],
)  # fmt: skip
def test_content_of_another_type_changes_nothing(service, custom_job, kind):
    name = service.create(custom_job).json["name"]
    service.call("PUT", "/my-bucket/a", b"kept")
    content = json.dumps(custom_job).encode()
    headers = {"Content-Type": kind} if kind else {}
    for method, path in [
        ("POST", JOBS),
        ("POST", f"/v1/{name}:cancel"),
        ("DELETE", f"/v1/{name}"),
        ("POST", "/storage/v1/b"),
        ("DELETE", "/my-bucket/a"),
    ]:
        reply = service.call(method, path, content, headers)
        assert (reply.status, reply.error["status"]) == (415, "INVALID_ARGUMENT")
    jobs = service.store.list("my-project", "us-central1", "customJobs")
    assert [job["state"] for job in jobs] == ["JOB_STATE_QUEUED"]
    assert service.call("GET", "/my-bucket/a").content == b"kept"


def test_json_with_parameters_empty_content_and_uploads_of_any_type_are_taken(service, custom_job):
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    name = service.call("POST", JOBS, custom_job, kind).json["name"]
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # TensorFlow sends it with no body
    assert service.call("POST", f"/v1/{name}:cancel", b"", form).status == 200
    upload = "/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a"
    for method, path in (("POST", upload), ("PUT", "/my-bucket/a")):
        assert service.call(method, path, b"x", {"Content-Type": "text/plain"}).status == 200


def test_one_connection_takes_many_requests_also_after_refusals(service, custom_job):
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=10)
    body = json.dumps(custom_job).encode()
    asked = [
        ("POST", JOBS, body, 200),
        ("POST", "/v1/nowhere", body, 404),  # whose content nobody reads
        ("POST", JOBS, b"{", 400),
        ("GET", JOBS, None, 200),
    ]
    for method, path, content, status in asked:
        connection.request(method, path, content, JSON_TYPE)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        assert connection.sock is not None  # it was not closed
    connection.close()


def test_content_can_come_in_chunks(service, custom_job):
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=10)
    text = json.dumps(custom_job).encode()
    pieces = [text[at : at + 50] for at in range(0, len(text), 50)]
    connection.request("POST", JOBS, iter(pieces), JSON_TYPE, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: many\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 10\r\n\r\n{}",
        b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}",
        b"Transfer-Encoding: chunked\r\n\r\n10\r\n{}",
    ],
)
def test_broken_content_is_refused_and_the_server_goes_on(service, head):
    request = f"POST {JOBS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = raw(service, request.encode() + head)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert service.call("GET", JOBS).json == {}


def test_a_request_that_is_none_is_refused(service):
    assert b"400" in raw(service, b"hello\r\n\r\n")
    assert service.call("GET", JOBS).status == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(way=st.sampled_from(WAYS), body=JSON, query=st.sampled_from(QUERIES))
def test_nothing_that_is_sent_puts_the_emulator_at_fault(service, way, body, query):
    method, path = way
    reply = service.call(method, f"{path}?{query}", body)
    assert reply.status < 500, reply.content


def test_what_a_client_says_of_an_object_begins_no_header(service):
    path = "/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a"
    service.call("POST", path, b"x")
    said = {"contentType": "text/plain\r\nX-Own: 1", "contentEncoding": "ü☃"}
    assert service.call("PATCH", "/storage/v1/b/my-bucket/o/a", said).status == 200
    reply = service.call("GET", "/my-bucket/a")
    assert reply.headers["X-Own"] is None
    assert reply.headers["Content-Type"] == "text/plain X-Own: 1"


def test_a_port_that_is_taken_is_told_with_the_way_out():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(DistlaunchError) as problem:
            Server(port, FaultyCalls(Faults()), print)
    assert str(problem.value) == (
        f"port {port} of 127.0.0.1 cannot be had (address already in use); "
        "choose another with --port, or 0 for any that is free"
    )


def test_a_lost_answer_is_of_a_job_that_was_made_and_a_reset_one_was_not(serve, custom_job):
    for fault, made in (("lost@create", 1), ("reset@create", 0)):
        service = serve(fault)
        with pytest.raises(ConnectionError):
            service.create(custom_job)
        assert len(service.store.list("my-project", "us-central1", "customJobs")) == made
        assert service.create(custom_job).status == 200
        assert f"POST {JOBS} without an answer" in service.told


@pytest.mark.parametrize(
    ("fault", "status", "reason", "detail"),
    [
        ("404", 404, "NOT_FOUND", None),
        ("429", 429, "RESOURCE_EXHAUSTED", None),
        ("500", 500, "INTERNAL", None),
        ("502", 502, "UNAVAILABLE", None),
        ("503", 503, "UNAVAILABLE", None),
        ("504", 504, "DEADLINE_EXCEEDED", None),
        ("expired", 401, "UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED"),
        ("denied", 403, "PERMISSION_DENIED", "IAM_PERMISSION_DENIED"),
        ("disabled", 403, "PERMISSION_DENIED", "SERVICE_DISABLED"),
    ],
)
def test_faults_that_are_answers(serve, fault, status, reason, detail):
    service = serve(f"{fault}@list")
    reply = service.call("GET", JOBS)
    assert (reply.status, reply.error["code"], reply.error["status"]) == (status, status, reason)
    details = reply.error.get("details", [])
    assert [each["reason"] for each in details if "reason" in each] == ([detail] if detail else [])
    assert reply.headers["Retry-After"] == ("1" if fault == "503" else None)
    again = service.call("GET", JOBS).status
    assert again == (403 if status == 403 else 200)


def test_a_permission_and_an_api_are_named(serve):
    denied = serve("denied@list").call("GET", JOBS).error["message"]
    assert denied == (
        "Permission 'aiplatform.customJobs.list' denied on resource "
        "'//aiplatform.googleapis.com/projects/my-project' (or it may not exist)."
    )
    disabled = serve("disabled@logs").call("POST", "/v2/entries:list", {}).error
    assert "logging.googleapis.com has not been used in project" in disabled["message"]
    assert disabled["details"][0]["links"][0]["url"].startswith("https://console.developers.")


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        ("logs", "POST", "/v2/entries:list"),
        ("storage", "GET", "/storage/v1/b/bucket"),
        ("prices", "GET", "/v1/services/6F81-5844-456A/skus"),
        ("list", "GET", JOBS),
    ],
)
def test_an_api_is_not_enabled_in_some_project_even_where_the_path_names_none(
    serve, call, method, path
):
    error = serve(f"disabled@{call}").call(method, path, {} if method == "POST" else None).error
    link, info = error["details"]
    project = info["metadata"]["consumer"].removeprefix("projects/")
    assert project
    assert link["links"][0]["url"].endswith(f"?project={project}")
    assert f"has not been used in project {project} before" in error["message"]


def test_a_call_that_hangs_ends_when_its_client_has_had_enough_and_keeps_no_other(serve):
    service = serve("hang@list#*")
    url = urlsplit(service.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=0.2)
    connection.request("GET", JOBS)
    with pytest.raises(TimeoutError):
        connection.getresponse()
    assert service.call("POST", "/v2/entries:list", {"projectIds": ["p"]}).status == 200
    connection.close()


def test_clients_that_say_nothing_keep_nobody_waiting(service):
    url = urlsplit(service.url)
    idle = [socket.create_connection((url.hostname, url.port)) for _ in range(50)]
    try:
        assert service.call("GET", JOBS).status == 200
    finally:
        for each in idle:
            each.close()
