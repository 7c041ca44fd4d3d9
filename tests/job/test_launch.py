"""What is launched, as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_jobs import JOB

from distlaunch.job.launch import LaunchRequest


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (None, False),
        ("http://127.0.0.1:1", True),
        ("HTTP://127.0.0.1:1", True),
        ("https://h", False),
    ],
)
def test_an_endpoint_without_tls_is_an_emulator(endpoint, expected):
    assert LaunchRequest(Path(), JOB, endpoint=endpoint).is_for_emulator is expected
