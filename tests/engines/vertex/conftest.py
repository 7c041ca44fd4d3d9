"""What the tests of Google's services share."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from distlaunch.engines.vertex.client import connect
from distlaunch.engines.vertex.jobs import Jobs

from .servers import Clock, Reply, Request, Server

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLES = """
    GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT GCLOUD_PROJECT GOOGLE_CLOUD_QUOTA_PROJECT
    GOOGLE_CLOUD_REGION CLOUDSDK_CORE_PROJECT CLOUDSDK_AI_REGION CLOUDSDK_COMPUTE_REGION
    CLOUDSDK_ACTIVE_CONFIG_NAME
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def serve():
    """Start a server with a function from a request to its reply."""
    servers: list[Server] = []

    def start(answer: Callable[[Request], Reply], tls: Any = None) -> Server:
        servers.append(Server(answer, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def jobs_at(clock):
    """Return the jobs of a project at a server, by the clock of the test."""

    def jobs(server: Server, **options: Any) -> Jobs:
        session = connect(server.url, project="p", clock=clock, sleep=clock.sleep, **options)
        return Jobs(session, "p", "us-central1")

    return jobs


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    """Hide this machine's credentials and gcloud's configuration; return gcloud's folder."""
    for name in VARIABLES.split():
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "gcloud"
    folder.mkdir()
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(folder))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    return folder


@pytest.fixture(scope="module")
def tls():
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with authority.cert_pem.tempfile() as file:
        yield context, file


@pytest.fixture
def trusted(tls, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", tls[1])
    return tls[0]


@pytest.fixture
def user(no_credentials):
    """Write a user's credentials as gcloud does."""

    def write(**more: str) -> None:
        names = {"client_id": "id", "client_secret": "secret", "refresh_token": "refresh"}
        token = {"token": "the-token", "expiry": "2999-01-01T00:00:00Z"}
        content = {"type": "authorized_user", **names, **token}
        path = no_credentials / "application_default_credentials.json"
        path.write_text(json.dumps({**content, **more}))

    write()
    return write
