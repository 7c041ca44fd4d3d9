"""What the tests of commands share."""

from __future__ import annotations

import pytest

from ..google.conftest import no_credentials, serve, tls, trusted, user  # noqa: F401, TID252
from .cloud import Cloud


@pytest.fixture
def cloud(tmp_path):
    """A Vertex AI on loopback, whose commands run in the test's folder."""
    with Cloud(tmp_path) as cloud:
        yield cloud
