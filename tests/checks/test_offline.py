"""`check --offline` speaks to nobody, and loads nothing that would."""

from __future__ import annotations

from .corpus.cases import Case, run

HEAVY = {"tensorflow", "keras", "numpy", "google.auth", "google.cloud.storage", "grpc"}
HEAVY |= {"google.cloud.aiplatform", "requests", "urllib3", "docker", "dxf"}


def test_nothing_heavy_is_loaded_and_a_denied_socket_would_be_seen(denied, written):
    folder = written(Case())
    [said], modules = denied([("--offline",)], [folder])
    assert said.code == 0
    assert modules & HEAVY == set()
    [said], _ = denied([("--endpoint", "http://127.0.0.1:9")], [folder])
    assert "socket." in said.stdout + said.stderr


def test_without_credentials_all_is_looked_at_that_needs_none(written, with_base):
    said = run("check", "--json", *with_base, folder=written(Case()))
    assert (said.codes, said.code) == ({"no-credentials"}, 0)
    [found] = said.problems
    assert "gcloud auth application-default login" in found["remedy"]
