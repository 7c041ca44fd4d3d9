"""Calls over real HTTP; only the waiting between them is by a clock of the test's."""

from __future__ import annotations

import base64
import json
import socket

import pytest
import trustme

from distlaunch import __version__
from distlaunch.engines.vertex import auth, client, tokens
from distlaunch.engines.vertex.client import connect
from distlaunch.errors import GoogleError, RetryableError, UsageError

from .servers import HALF, RESET, Reply, Server, in_turn, refused

GOOD = Reply(body={"name": "good"})
GZIP = Reply(body=b"{}", headers={"Content-Encoding": "gzip"})
LOGIN = "run 'gcloud auth application-default login'"


@pytest.fixture
def call(serve, clock):
    """Call a server that gives replies in turn; returns the answer."""

    def run(*replies: Reply, **kwargs):
        run.server = serve(in_turn(*replies))
        session = connect(run.server.url, project="p", clock=clock, sleep=clock.sleep)
        return session.call("GET", "logging", "things", **kwargs)

    return run


def test_a_call_and_its_response(serve):
    server = serve(in_turn(GOOD))
    session = connect(f"{server.url}/")
    answer = session.call("POST", "aiplatform", "a/b", params={"n": 3, "f": "x=1"}, body={"é": [1]})
    (request,) = server.requests
    assert answer == {"name": "good"}
    assert (request.method, request.path, request.body) == ("POST", "/v1/a/b", {"é": [1]})
    assert request.params == {"n": "3", "f": "x=1"}
    assert request.headers["user-agent"] == f"distlaunch/{__version__}"


@pytest.mark.parametrize(
    "failure",
    [
        *(refused(status, "UNAVAILABLE") for status in (408, 429, 500, 502, 503, 504)),
        RESET,
        HALF,
        Reply(body=b"{ half"),
        Reply(body=b"<html>a hotel's wifi</html>"),
        Reply(body=["no object"]),
        Reply(body=b"[" * 100_000),
        GZIP,
    ],
    ids=lambda reply: reply.breaks or f"{reply.status} {str(reply.body)[:10]}",
)
def test_transient_failures_are_retried_with_longer_and_longer_waits(call, clock, failure):
    assert call(*[failure] * 4, GOOD) == {"name": "good"}
    assert len(call.server.requests) == 5
    for wait, most in zip(clock.slept, (0.5, 1.0, 2.0, 4.0), strict=True):
        assert most / 2 <= wait <= most


def test_a_silent_server_is_not_waited_for(call):
    with pytest.raises(RetryableError, match=r"^cannot reach .* \(.*timed out.*\)$") as error:
        call(Reply(breaks="silent"), retry_deadline=0, timeout=(1.0, 0.1))
    assert error.value.may_have_been_processed


def test_retry_after_is_waited_for_unless_it_exceeds_the_deadline(call, clock):
    call(Reply(503, {}, {"Retry-After": "9"}), GOOD)
    assert clock.slept == [9.0]
    with pytest.raises(RetryableError):
        call(Reply(503, {}, {"Retry-After": "3600"}), retry_deadline=60)
    assert clock.slept == [9.0]


@pytest.mark.parametrize(
    ("reply", "status", "problem"),
    [
        (refused(503, "UNAVAILABLE"), 503, " answers 503 (No)"),
        (
            Reply(body=b"<html>wifi</html>"),
            200,
            " answers 200 with a page that is not Google's (wifi): a proxy or firewall is in "
            "between; contact your network's administrators, or set HTTPS_PROXY and NO_PROXY",
        ),
        (Reply(body=[1]), 200, ": invalid response: expected a JSON object, got '[1]'"),
        (
            GZIP,
            200,
            ": invalid response: Error -3 while decompressing data: incorrect header check",
        ),
    ],
    ids=["503", "page", "no object", "gzip"],
)
def test_retries_end_at_the_deadline(call, clock, reply, status, problem):
    with pytest.raises(RetryableError) as error:
        call(reply, retry_deadline=60)
    assert (str(error.value), error.value.status) == (f"{call.server.url}{problem}", status)
    assert 30 < sum(clock.slept) <= 60


@pytest.mark.parametrize(
    "reply",
    [
        *(refused(status, "SO_IT_IS") for status in (400, 401, 403, 404, 409, 412)),
        Reply(400, b"no " * 200_000),
        Reply(302, b"", {"Location": "http://[::1"}),
    ],
    ids=lambda reply: str(reply.status),
)
def test_a_refusal_is_not_retried(call, clock, reply):
    is_renewed = reply.status == 401  # once, with a new token
    with pytest.raises(GoogleError, match=r"Google (refuses|does not)|not found") as error:
        call(reply, refused(401) if is_renewed else GOOD)
    assert error.value.status == reply.status
    assert clock.slept == []
    assert len(call.server.requests) == (2 if is_renewed else 1)


def test_a_redirection_is_not_followed(serve):
    elsewhere = serve(in_turn(GOOD))
    server = serve(in_turn(Reply(307, b"", {"Location": elsewhere.url})))
    with pytest.raises(GoogleError, match="TEMPORARY_REDIRECT"):
        connect(server.url).call("POST", "logging", "x", body={})
    assert elsewhere.requests == []


def test_a_long_wait_is_reported_once(serve, clock):
    server = serve(in_turn(*[refused(503)] * 7, GOOD))
    messages = []
    session = connect(server.url, clock=clock, sleep=clock.sleep, show_message=messages.append)
    session.call("GET", "logging", "x")
    assert messages == [f"{server.url} answers 503 (No); retrying"]


@pytest.fixture
def closed_url():
    """The URL of a port that is taken but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_no_server_on_loopback(clock, closed_url):
    with pytest.raises(RetryableError) as error:
        connect(closed_url, clock=clock, sleep=clock.sleep).call("GET", "logging", "x")
    assert str(error.value) == (
        f"cannot reach {closed_url} (connection refused); start 'distlaunch emulator' there"
    )
    assert (error.value.may_have_been_processed, clock.slept) == (False, [])


def test_loopback_gets_neither_credentials_nor_proxies(serve, monkeypatch, user):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server = serve(in_turn(GOOD))
    connect(server.url).call("GET", "logging", "x")
    assert not {"authorization", "x-goog-user-project"} & server.requests[0].headers.keys()


# What follows speaks TLS, as only that gets credentials.


@pytest.fixture(scope="module")
def private_key() -> str:
    certificate = trustme.CA().issue_cert("robot", key_type=trustme.KeyType.RSA)
    return certificate.private_key_pem.bytes().decode()


@pytest.fixture
def robot(no_credentials, monkeypatch, private_key, tmp_path, serve):
    """Give a service account's credentials, and return the server that it gets tokens from."""

    def write(*replies: Reply, url: str = "") -> Server:
        server = serve(in_turn(*replies))
        content = {"type": "service_account", "project_id": "p", "private_key_id": "1"}
        content |= {"client_email": "robot@p.iam.gserviceaccount.com", "private_key": private_key}
        content["token_uri"] = f"{url or server.url}/token"
        path = tmp_path / "robot.json"
        path.write_text(json.dumps(content))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        return server

    return write


@pytest.mark.parametrize("quota", [{}, {"quota_project_id": "theirs"}], ids=["none", "quota"])
def test_credentials_go_with_every_call_and_name_the_project_that_pays(serve, trusted, user, quota):
    user(**quota)
    server = serve(in_turn(GOOD), trusted)
    connect(server.url, project="mine").call("GET", "logging", "x")
    headers = server.requests[0].headers
    assert headers["authorization"] == "Bearer the-token"
    assert headers["x-goog-user-project"] == ("theirs" if quota else "mine")


def token(number: int) -> Reply:
    return Reply(body={"access_token": f"token-{number}", "expires_in": 3600})


def test_an_expired_token_is_renewed_once(serve, trusted, robot):
    issuer = robot(token(1), token(2), token(3))
    server = serve(in_turn(GOOD, refused(401, "UNAUTHENTICATED"), GOOD), trusted)
    session = connect(server.url)
    for _ in range(2):
        session.call("GET", "logging", "x")
    used = [request.headers["authorization"] for request in server.requests]
    assert used == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]
    claim = issuer.requests[0].body.partition("assertion=")[2].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(claim + "=="))
    assert claims["iss"] == "robot@p.iam.gserviceaccount.com"


def test_a_refused_token_is_renewed_once_and_errors_name_the_account(serve, trusted, robot):
    robot(token(1))
    denied = refused(403, "PERMISSION_DENIED", "The caller …")
    server = serve(in_turn(*[refused(401, "UNAUTHENTICATED", "Expired.")] * 2, denied), trusted)
    session = connect(server.url, project="p")
    with pytest.raises(GoogleError) as error:
        session.call("GET", "logging", "x")
    assert str(error.value).startswith("Google does not accept the credentials (Expired); replace ")
    assert len(server.requests) == 2
    with pytest.raises(GoogleError, match=r"--member=serviceAccount:robot@p\.iam"):
        session.call("GET", "logging", "x")


NO_EFFECT = "(gcloud's login has no effect while GOOGLE_APPLICATION_CREDENTIALS is set)"


@pytest.mark.parametrize(
    ("description", "remedy"),
    [
        ("Invalid JWT Signature.", "replace the key in {file}, such as by 'gcloud iam service-acc"),
        ("Account has been deleted", "replace the key in {file}, such as by 'gcloud iam service-a"),
        ("Invalid JWT: Token must be a short-lived token", "set this machine's clock, such as by "),
    ],
)
def test_a_refused_key_has_the_remedy_of_the_reason(serve, trusted, robot, description, remedy):
    robot(Reply(400, {"error": "invalid_grant", "error_description": description}))
    file = auth.credentials_file()
    server = serve(in_turn(GOOD), trusted)
    with pytest.raises(GoogleError) as error:
        connect(server.url).call("GET", "logging", "x")
    assert not isinstance(error.value, RetryableError)
    text = f"Google does not accept the credentials (invalid_grant: {description.rstrip('.')}); "
    assert str(error.value).startswith(f"{text}{remedy.format(file=file)}")
    assert "clock" in remedy or str(error.value).endswith(NO_EFFECT)
    assert server.requests == []


def test_a_token_service_that_cannot_be_reached_is_waited_for(
    serve, trusted, robot, clock, closed_url
):
    robot(url=closed_url)
    session = connect(serve(in_turn(GOOD), trusted).url, clock=clock, sleep=clock.sleep)
    with pytest.raises(RetryableError, match=r"^cannot get a token \(connection refused\)$"):
        session.call("GET", "logging", "x", retry_deadline=2)
    assert len(clock.slept) >= 2


def test_a_token_service_that_is_silent_ends_a_command(robot, clock, monkeypatch):
    monkeypatch.setattr(tokens, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        robot(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        session = connect("https://localhost:1", clock=clock, sleep=clock.sleep)
        with pytest.raises(RetryableError, match=r"tokens does not respond within .*; check the"):
            session.call("GET", "logging", "x")
        with pytest.raises(RetryableError, match="does not respond"):
            session.sign_in()
    assert clock.slept == []


def test_a_certificate_that_is_not_trusted_is_not_retried(serve, tls, user, clock):
    server = serve(in_turn(GOOD), tls[0])
    session = connect(server.url, clock=clock, sleep=clock.sleep)
    with pytest.raises(GoogleError, match=r"set REQUESTS_CA_BUNDLE to") as error:
        session.call("GET", "logging", "x")
    assert not isinstance(error.value, RetryableError)
    assert clock.slept == []


@pytest.mark.parametrize("text", ["", "[]", "no json", '{"type": "authorized_user"}'])
def test_invalid_or_missing_credentials_are_reported(no_credentials, monkeypatch, text):
    with pytest.raises(GoogleError, match=f"^no credentials for Google Cloud; {LOGIN}$"):
        connect()
    path = no_credentials / "application_default_credentials.json"
    path.write_text(text)
    with pytest.raises(GoogleError) as error:
        connect()
    message = str(error.value)
    assert message.startswith(f"{path}: not valid credentials (")
    assert message.endswith(f"; {LOGIN} to write a new one")
    assert "\n" not in message
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    with pytest.raises(GoogleError, match=r"^/nowhere.json: .*GOOGLE_APPLICATION_CREDENTIALS"):
        connect()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(no_credentials))
    with pytest.raises(GoogleError, match=r"not valid credentials \(is a directory\); fix the fi"):
        connect()


# URLs and endpoints


@pytest.mark.parametrize(
    ("service", "options", "url"),
    [
        ("aiplatform", {"region": "eu-w4"}, "https://eu-w4-aiplatform.googleapis.com/v1/p"),
        ("logging", {}, "https://logging.googleapis.com/v2/p"),
        ("storage", {}, "https://storage.googleapis.com/storage/v1/p"),
        ("storage", {"version": "v2"}, "https://storage.googleapis.com/storage/v2/p"),
        ("logging", {"endpoint": "http://127.0.0.1:1"}, "http://127.0.0.1:1/v2/p"),
    ],
)
def test_url_of_a_call(service, options, url):
    assert client.service_url(service, "p", **options) == url


@pytest.mark.parametrize(
    "region", ["", None, "evil.com/", "us-central1.evil.com#", "US-1", "a\nb1"]
)
def test_a_region_cannot_choose_the_host_that_gets_a_token(region):
    with pytest.raises(UsageError, match="is not a region; expected one such as us-central1"):
        client.service_url("aiplatform", "x", region=region)


LOOPBACK = ["http://127.0.0.1:8085", "http://127.1.2.3:8085/", "http://localhost:1", "http://[::1]"]


@pytest.mark.parametrize(
    "endpoint", [*LOOPBACK, "https://example.com", "https://127.0.0.1:8085/gate"]
)
def test_valid_endpoints(endpoint):
    assert client.normalise_endpoint(endpoint) == endpoint.rstrip("/")
    assert client.is_loopback(endpoint) is endpoint.startswith("http://")


REFUSED = """
    http://example.com http://10.0.0.1:8085 http://127.0.0.1.example.com https://
    http://localhost.example.com http://127.0.0.1@example.com ftp://127.0.0.1 127.0.0.1:8085
    http://127.0.0.1:port https://example.com?a=b
"""


@pytest.mark.parametrize("endpoint", ["", *REFUSED.split()])
def test_endpoints_that_credentials_must_not_be_sent_to(endpoint):
    with pytest.raises(UsageError, match=r"^--endpoint "):
        client.normalise_endpoint(endpoint)
    assert not client.is_loopback(endpoint)
