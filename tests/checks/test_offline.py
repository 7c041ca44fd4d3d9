"""`check --offline` opens no connection and imports nothing for one."""

from __future__ import annotations

import subprocess
import sys

from .corpus.cases import Case, run

HEAVY = {"tensorflow", "keras", "numpy", "google.auth", "google.cloud.storage", "grpc"}
HEAVY |= {"google.cloud.aiplatform", "requests", "urllib3", "docker"}

# Prints for each thread whether the package that most of them import was imported before it.
WATCHED = """
import os, sys, threading

start = threading.Thread.start

def watched(thread):
    os.write(2, b"image\\n" if "distlaunch.image" in sys.modules else b"nothing\\n")
    start(thread)

threading.Thread.start = watched
from distlaunch.__main__ import main
main()
"""


def test_nothing_heavy_is_imported_and_a_connection_would_be_seen(run_without_network, write):
    folder = write(Case())
    words = [
        ("--offline",),
        ("--offline", "--set", "service_account=me"),
        ("--offline", "--image=x/y:1"),
    ]
    results, modules = run_without_network(words, [folder] * len(words))
    assert [result.code for result in results] == [0, 1, 0]
    assert modules & HEAVY == set()
    [result], _ = run_without_network([()], [folder])
    assert "socket." in result.stdout + result.stderr


def test_without_credentials_everything_else_is_checked(write, with_base):
    result = run("check", "--json", *with_base, folder=write(Case()))
    assert (result.codes, result.code) == ({"no-credentials"}, 0)
    [problem] = result.problems
    assert "gcloud auth application-default login" in problem["remedy"]


def test_no_thread_starts_before_the_package_that_threads_import(write):
    """Two threads that import modules of one package can deadlock."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "check", "--endpoint", "http://127.0.0.1:9"],
        cwd=write(Case()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ready" in done.stdout, done.stderr
    assert set(done.stderr.splitlines()) == {"image"}
