"""What the tests of commands share."""

from __future__ import annotations

import pytest

from ..google.servers import Server  # noqa: TID252 - tests are no package
from .cloud import Cloud


@pytest.fixture
def cloud(tmp_path):
    """A Vertex AI on loopback, whose commands run in the test's folder."""
    with Cloud(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def serve():
    """Start servers that answer as a test wants them to."""
    servers = []

    def start(answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
