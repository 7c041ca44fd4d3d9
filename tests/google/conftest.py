"""What the tests of Google's services share."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from .servers import Clock, Reply, Request, Server

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def serve():
    """Make a server of a function from a request to its reply."""
    servers: list[Server] = []

    def make(answer: Callable[[Request], Reply], tls: Any = None) -> Server:
        servers.append(Server(answer, tls))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    """See that no credentials and no configuration of this machine's are found; gcloud's folder."""
    for name in (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
        "GCLOUD_PROJECT",
        "GOOGLE_CLOUD_QUOTA_PROJECT",
        "GOOGLE_CLOUD_REGION",
        "CLOUDSDK_CORE_PROJECT",
        "CLOUDSDK_AI_REGION",
        "CLOUDSDK_COMPUTE_REGION",
        "CLOUDSDK_ACTIVE_CONFIG_NAME",
    ):
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
    """Give a user's credentials, as gcloud writes them."""

    def write(**more: str) -> None:
        content = {
            "type": "authorized_user",
            "client_id": "id",
            "client_secret": "secret",
            "refresh_token": "refresh",
            "token": "the-token",
            "expiry": "2999-01-01T00:00:00Z",
        }
        path = no_credentials / "application_default_credentials.json"
        path.write_text(json.dumps({**content, **more}))

    write()
    return write
