"""What the tests of commands share."""

from __future__ import annotations

import pytest

from .cloud import Cloud


@pytest.fixture
def cloud(tmp_path):
    """A Vertex AI on loopback, whose commands run in the test's folder."""
    with Cloud(tmp_path) as cloud:
        yield cloud
