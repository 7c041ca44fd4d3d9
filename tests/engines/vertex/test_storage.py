"""Files of job folders, read from the emulator's buckets by Google's client."""

from __future__ import annotations

import threading

import pytest
from failing_calls import FailingEmulator

from distlaunch.engines.vertex.client import connect
from distlaunch.engines.vertex.storage import read
from distlaunch.errors import GoogleError, RetryableError

FILE = "gs://jobs/digits/summary é.json"


@pytest.fixture
def start(tmp_path, request):
    """Start an emulator that has the file, and connect to it."""
    (tmp_path / "jobs/digits").mkdir(parents=True)
    (tmp_path / "jobs/digits/summary é.json").write_bytes(b"{}\xff")

    def start(faults: str = ""):
        emulator = FailingEmulator(storage=tmp_path, call_faults=faults)
        emulator.__enter__()
        request.addfinalizer(emulator.__exit__)
        return connect(emulator.url, project="p")

    return start


def test_file_is_read_in_spite_of_a_transient_error(start):
    assert read(start("503@storage#1"), FILE) == b"{}\xff"


def test_read_is_one_request(start):
    session, paths, threads = start(), [], set(threading.enumerate())
    session.http.hooks["response"] = [lambda response, **_: paths.append(response.url)]
    read(session, FILE)
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
    assert len(paths) == 1


@pytest.mark.parametrize("uri", ["gs://jobs/digits/other.json", "gs://nowhere/summary.json"])
def test_missing_file_is_none(start, uri):
    assert read(start(), uri) is None


def test_refused_read_names_the_role(start):
    with pytest.raises(GoogleError, match=r"--role=roles/storage\.objectViewer") as refusal:
        read(start("denied@storage"), FILE)
    assert refusal.value.status == 403


def test_stopped_emulator_is_an_error(start, monkeypatch):
    monkeypatch.setattr("distlaunch.engines.vertex.storage.CALL_TIMEOUT", 0.1)
    session = connect("http://127.0.0.1:9", project="p")
    with pytest.raises(RetryableError, match=r"summary é\.json: cannot be read \("):
        read(session, FILE)
