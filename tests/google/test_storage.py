"""Files of job folders, read from the emulator's storage by Google's own client."""

from __future__ import annotations

import gc

import pytest

from distlaunch.emulator.emulator import Emulator
from distlaunch.emulator.faults import Faults
from distlaunch.errors import DistlaunchError, GoogleError, RetryableError
from distlaunch.google.client import connect
from distlaunch.google.storage import read

from .servers import Reply, in_turn

# Google's client leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def storage(tmp_path):
    """Start an emulator with a file, and read from it."""
    (tmp_path / "jobs/digits").mkdir(parents=True)
    (tmp_path / "jobs/digits/summary é.json").write_bytes(b"{}\xff")
    emulators = []

    def run(uri: str, faults: str = "") -> bytes | None:
        emulator = Emulator(storage=tmp_path, faults=Faults(faults))
        emulators.append(emulator)
        emulator.__enter__()
        return read(connect(emulator.url, project="p"), uri)

    yield run
    for emulator in emulators:
        emulator.__exit__()
    gc.collect()


def test_a_file_is_read(storage):
    assert storage("gs://jobs/digits/summary é.json") == b"{}\xff"


@pytest.mark.parametrize("uri", ["gs://jobs/digits/other.json", "gs://nowhere/summary.json"])
def test_a_file_that_is_not_there_is_none(storage, uri):
    assert storage(uri) is None


def test_a_moment_of_trouble_is_survived(storage):
    assert storage("gs://jobs/digits/summary é.json", "503@storage") == b"{}\xff"


def test_a_file_that_does_not_come_in_time_is_given_up(serve, monkeypatch):
    monkeypatch.setattr("distlaunch.google.storage.CALL_TIMEOUT", 0.2)
    server = serve(in_turn(Reply(drips="amid")))
    with pytest.raises(RetryableError, match=r"cannot be read within 0\.2 s$"):
        read(connect(server.url, project="p"), "gs://jobs/digits/summary.json")


def test_what_may_not_be_read_names_the_role(storage):
    with pytest.raises(GoogleError) as problem:
        storage("gs://jobs/digits/summary é.json", "denied@storage")
    assert "gs://jobs/digits/summary é.json: " in str(problem.value)
    assert "--role=roles/storage.objectViewer" in str(problem.value)
    assert problem.value.status == 403


@pytest.mark.parametrize("uri", ["summary.json", "gs://jobs", "s3://jobs/summary.json"])
def test_no_file_in_cloud_storage(storage, uri):
    with pytest.raises(DistlaunchError, match=r"expected gs://BUCKET/PATH"):
        storage(uri)
