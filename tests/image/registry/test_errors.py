"""Errors of registries: one line with the remedy."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading

import pytest
import requests
import trustme

from distlaunch.image.reference import Reference
from distlaunch.image.registry.credentials import Credentials
from distlaunch.image.registry.errors import connection_error, status_error

GOOGLE = "us-central1-docker.pkg.dev/my-project/training/digits"
ROBOT = Credentials("oauth2accesstoken", "t", member="serviceAccount:r@p.iam.gserviceaccount.com")
USER = Credentials("oauth2accesstoken", "t", source="google")


def error(code, message=""):
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def text_of(status, body, reference, credentials=None, *, pushing=True):
    response = requests.Response()
    response.status_code, response._content = status, body
    problem = status_error(response, Reference.parse(reference), credentials, pushing=pushing)
    assert problem.status == status
    assert len(problem.lines) == 1
    return str(problem)


@pytest.mark.parametrize(
    ("status", "credentials", "member"),
    [(401, USER, "user:$(gcloud config get account)"), (403, ROBOT, ROBOT.member)],
)
def test_a_denied_push_to_google(status, credentials, member):
    message = "Permission 'artifactregistry.repositories.uploadArtifacts' denied"
    assert text_of(status, error("DENIED", message), GOOGLE, credentials) == (
        f"push of {GOOGLE} denied ({message}); have an administrator run 'gcloud artifacts "
        "repositories "
        "add-iam-policy-binding training --project=my-project --location=us-central1 "
        f"--member={member} --role=roles/artifactregistry.writer'"
    )


def test_other_denied_requests():
    text = text_of(403, b"", GOOGLE, USER, pushing=False)
    assert text.startswith(f"pull of {GOOGLE} denied; have an administrator run 'gcloud artifacts")
    assert text.endswith("--role=roles/artifactregistry.reader'")
    organisation = text_of(403, b"", "eu-docker.pkg.dev/example.com/p/r/i", USER)
    assert "binding r --project=example.com:p --location=eu " in organisation
    container_registry = text_of(403, b"", "gcr.io/my-project/digits", USER)
    assert "gcloud projects add-iam-policy-binding my-project --member=" in container_registry
    login = "run 'gcloud auth application-default login'"
    assert text_of(401, b"", GOOGLE) == f"push of {GOOGLE} denied; {login}"
    assert text_of(401, b"", "a.b/c").endswith("; run 'docker login a.b'")


@pytest.mark.parametrize(
    ("status", "body", "reference", "expected"),
    [
        (
            404,
            error("NAME_UNKNOWN", 'Repository "training" not found'),
            GOOGLE,
            f'there is no repository {GOOGLE} (Repository "training" not found); run '
            "'gcloud artifacts repositories create training --repository-format=docker "
            "--project=my-project --location=us-central1'",
        ),
        (404, b"", "a.b/c", "there is no repository a.b/c; create it in a.b, or check the name"),
        (413, b"", "a.b/c", "a.b rejects a layer of this size; put less into the image, or raise"),
        (429, error("X", "slow\ndown"), "a.b/c", "a.b limits the rate of requests (slow down); "),
        (500, b"<html>", "a.b/c", "the registry a.b fails with 500; try again later"),
        (400, error("X", "x" * 900), "a.b/c:1", f"a.b rejects a.b/c:1 with 400 ({'x' * 600}); "),
        (418, b'{"errors": [1]}', "a.b/c:1", "a.b rejects a.b/c:1 with 418; "),
    ],
)
def test_other_statuses(status, body, reference, expected):
    assert text_of(status, body, reference).startswith(expected)


UNUSED = "Artifact Registry API has not been used in project 7 before or it is disabled."
ON_PUSH = "gcr.io repo does not exist. Creating on push requires the …createOnPush permission"
QUOTA = "Quota exceeded for quota metric 'Requests per project per region'"


@pytest.mark.parametrize(
    ("status", "message", "reference", "remedy"),
    [
        (403, UNUSED, GOOGLE, "services enable artifactregistry.googleapis.com --project=7'"),
        (403, "Request is prohibited by organization's policy.", GOOGLE, "no role does"),
        (
            403,
            "This API requires billing to be enabled.",
            GOOGLE,
            "projects link my-project --bill",
        ),
        (
            403,
            ON_PUSH,
            "eu.gcr.io/my-project/digits",
            "run 'gcloud artifacts repositories create eu.gcr.io --repository-format=docker "
            "--location=europe --project=my-project', or have an administrator run 'gcloud "
            "projects add-iam-policy-binding my-project --member=user:$(gcloud config get account) "
            "--role=roles/artifactregistry.createOnPushWriter'",
        ),
        (404, ON_PUSH, "gcr.io/my-project/digits", "repositories create gcr.io --repository-f"),
        (
            429,
            QUOTA,
            GOOGLE,
            "https://console.cloud.google.com/iam-admin/quotas?project=my-project",
        ),
    ],
)
def test_google_s_reason_has_the_same_remedy_as_at_its_apis(status, message, reference, remedy):
    text = text_of(status, error("DENIED", message), reference, USER)
    assert f"({message})" in text
    assert remedy in text
    assert "docker login" not in text
    assert ("artifactregistry.writer" in text) is False


def test_container_registry_has_ended():
    for body in (b"", b"Container Registry is deprecated and shutting down, please use the tool"):
        text = text_of(412, body, "gcr.io/my-project/base:1", USER, pushing=False)
        assert text == (
            "pull of gcr.io/my-project/base denied (Container Registry has ended); move its images "
            "with 'gcloud artifacts docker upgrade migrate --projects=my-project', or use one in "
            "Artifact Registry: REGION-docker.pkg.dev/my-project/REPOSITORY/IMAGE"
        )


def test_a_page_of_a_proxy_is_no_refusal_of_google():
    page = b"<html><head><title>Web filter</title></head><body>Blocked.</body></html>"
    host = GOOGLE.partition("/")[0]
    for status in (403, 407):
        assert text_of(status, page, GOOGLE, USER) == (
            f"{host} answers {status} with a page that is not Google's (Web filter Blocked): a "
            "proxy or firewall is in between; contact your network's administrators, or set "
            "HTTPS_PROXY and NO_PROXY"
        )
    assert "Blocked" not in text_of(403, page, "a.b/c")  # any page may be that registry's


def text_of_connection(url, reference="a.b/c", **options):
    with pytest.raises(requests.RequestException) as caught:
        requests.get(url, timeout=5, **options)
    problem = connection_error(caught.value, Reference.parse(reference))
    assert len(problem.lines) == 1
    return str(problem)


@pytest.fixture
def serve():
    """Start a server that passes its first connection to a function and keeps the result."""
    with contextlib.ExitStack() as opened:

        def start(handle):
            server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept():
                with contextlib.suppress(OSError):
                    opened.push(handle(server.accept()[0]) or contextlib.nullcontext())

            threading.Thread(target=accept, daemon=True).start()
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield start


def test_an_unreachable_registry():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        closed = f"127.0.0.1:{probe.getsockname()[1]}"
    assert text_of_connection(f"http://{closed}/") == (
        "no registry is listening at a.b; start it, or check the name in a.b/c"
    )
    assert text_of_connection("https://registry.invalid/") == (
        "the registry's host 'a.b' is unknown; check the name in a.b/c"
    )
    proxies = {"https": f"http://{closed}"}
    assert text_of_connection("https://registry.invalid/", proxies=proxies) == (
        "the proxy for a.b cannot be reached; check HTTPS_PROXY and NO_PROXY"
    )


def test_problems_of_tls(serve):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    def handshake(connection):
        with contextlib.suppress(ssl.SSLError):
            return context.wrap_socket(connection, server_side=True)
        return connection

    text = text_of_connection(f"https://{serve(handshake)}/")
    assert text.startswith("the certificate of a.b is not trusted (unable to get local issuer")
    assert "); set REQUESTS_CA_BUNDLE to a file with the certificate of the authority" in text

    def respond_in_plain(connection):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        return connection

    assert text_of_connection(f"https://{serve(respond_in_plain)}/", "a.b:5000/c") == (
        "a.b:5000 speaks http, not https; a registry without TLS is supported on localhost only, "
        "e.g. with 'ssh -L 5000:a.b:5000 …' and localhost:5000"
    )
