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
from distlaunch.cli import main
main(sys.argv[1:])
print(json.dumps(list(sys.modules)), file=sys.stderr)
"""


def check_without_network(*words, folder):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK, "check", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_heavy_is_imported_and_a_connection_would_be_seen(write):
    folder = write(Case())
    offline = check_without_network("--offline", folder=folder)
    assert offline.stdout.rstrip().endswith("ready"), offline.stderr
    assert set(json.loads(offline.stderr.splitlines()[-1])) & HEAVY == set()
    online = check_without_network(folder=folder)
    assert "socket." in online.stdout + online.stderr


def test_without_credentials_everything_else_is_checked(write, with_base, run):
    result = run("check", "--json", *with_base, folder=write(Case()))
    assert (result.codes, result.code) == ({"no-credentials"}, 0)
    [problem] = result.problems
    assert "gcloud auth application-default login" in problem["remedy"]


def test_what_threads_import_is_imported_before_they_start():
    """Two threads that import modules of one package can deadlock."""
    program = "import sys, distlaunch.checks.preflight; print('distlaunch.image' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"True\n"
