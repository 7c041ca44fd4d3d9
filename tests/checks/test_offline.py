"""`check --offline` opens no connection and imports nothing for one."""

from __future__ import annotations

import json
import subprocess
import sys

from .corpus.cases import Case

HEAVY = {"tensorflow", "keras", "numpy", "google.auth", "google.cloud.storage", "grpc"}
HEAVY |= {"google.cloud.aiplatform", "requests", "urllib3", "docker"}

# Refuses addresses and connections, and prints the modules that are imported at the end.
WITHOUT_NETWORK = """
import json, sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        raise AssertionError(f"{event} {arguments}")

sys.addaudithook(refuse)
import distlaunch.checks.preflight
assert "distlaunch.image" in sys.modules  # two threads that import parts of one can deadlock
from distlaunch.cli import main
main(["check", "--offline"])
print(json.dumps(list(sys.modules)), file=sys.stderr)
import socket
socket.create_connection(("localhost", 9))
"""


def test_nothing_heavy_is_imported_and_a_connection_would_be_seen(write):
    program = [sys.executable, "-c", WITHOUT_NETWORK]
    folder = write(Case())
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.rstrip().endswith("ready"), done.stderr
    modules, *_, refusal = done.stderr.splitlines()
    assert set(json.loads(modules)) & HEAVY == set()
    assert refusal.startswith("AssertionError: socket.getaddrinfo")


def test_without_credentials_everything_else_is_checked(write, with_base, run):
    result = run("check", "--json", *with_base, folder=write(Case()))
    assert (result.codes, result.code) == ({"no-credentials"}, 0)
    [problem] = result.problems
    assert "gcloud auth application-default login" in problem["remedy"]
