"""Which endpoints of records get the user's credentials."""

from __future__ import annotations

import pytest

from distlaunch.cli import main
from distlaunch.submit.records import Record, Records

from .servers import in_turn, refused

NAME = "projects/p/locations/us-central1/customJobs/1"


@pytest.fixture
def evil(serve, trusted, user, tmp_path, monkeypatch):
    """A server with a trusted certificate, named by a record that came with the folder."""
    server = serve(in_turn(refused(404)), trusted)
    record = Record(
        launch_id="digits-1",
        name="digits",
        project="p",
        region="us-central1",
        collection="customJobs",
        content="",
        request={},
        endpoint=server.url,
        resource=NAME,
        time="2099-01-01T00:00:00Z",
    )
    Records(tmp_path).write(record)
    monkeypatch.chdir(tmp_path)
    return server


@pytest.mark.parametrize(
    "words",
    [["status"], ["logs", "digits-1"], ["cancel", NAME], ["resubmit"]],
    ids=" ".join,
)
def test_no_credentials_go_to_an_endpoint_that_only_a_record_names(evil, words, capsys):
    assert main(words) == 1
    assert evil.requests == []
    assert capsys.readouterr().err == (
        f"distlaunch: error: digits-1: its record names the endpoint {evil.url}, and credentials "
        "are sent to a remote endpoint only if it is given on the command line; if you trust it, "
        f"pass --endpoint {evil.url}\n"
    )


def test_an_endpoint_of_the_command_line_gets_credentials(evil, capsys):
    assert main(["status", "--endpoint", evil.url]) == 1
    assert evil.requests[0].headers["authorization"] == "Bearer the-token"
    assert "not found: No" in capsys.readouterr().err
