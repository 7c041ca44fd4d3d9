"""The version of a project's code is read without running what its repository names."""

from __future__ import annotations

import os
import subprocess

import pytest

from distlaunch.source_version import commit_of, has_changes


@pytest.fixture
def git(tmp_path):
    """Run git in a repository with one commit."""
    identity = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }

    def run(*words):
        done = subprocess.run(
            ["git", "-C", tmp_path, *words],
            env={**os.environ, **identity},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    run("init", "-q")
    (tmp_path / "a.txt").write_text("a\n")
    run("add", "a.txt")
    run("commit", "-q", "-m", "first")
    return run


def test_changes_of_tracked_files(git, tmp_path):
    (tmp_path / "new.txt").touch()
    assert (commit_of(tmp_path), has_changes(tmp_path)) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "a.txt").write_text("b\n")
    assert has_changes(tmp_path) is True


@pytest.mark.parametrize("kind", ["filter", "included filter", "hook", "monitor", "server"])
def test_no_program_of_a_repository_runs(git, tmp_path, kind):
    marker, program = tmp_path / "marker", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    program.chmod(0o755)
    if kind == "monitor":
        git("config", "core.fsmonitor", str(program))
    elif kind == "hook":
        git("config", "core.hooksPath", str(tmp_path / "hooks"))
        (tmp_path / "hooks").mkdir()
        program.rename(tmp_path / "hooks/post-index-change")
    elif kind == "server":
        tree = git("rev-parse", "HEAD^{tree}")
        (tmp_path / ".git/objects" / tree[:2] / tree[2:]).unlink()
        git("config", "remote.origin.url", str(tmp_path))
        git("config", "remote.origin.promisor", "true")
        git("config", "remote.origin.uploadpack", str(program))
    else:
        (tmp_path / ".git/info/attributes").write_text("* filter=evil\n")
        git("config", "--file", ".git/more", "filter.evil.clean", str(program))
        if kind == "filter":
            (tmp_path / ".git/more").rename(tmp_path / ".git/local")
            text = (tmp_path / ".git/local").read_text()
            with (tmp_path / ".git/config").open("a") as config:
                config.write(text)
        else:
            git("config", "include.path", "more")
    os.utime(tmp_path / "a.txt", (1, 1))  # so that git compares the contents
    expected = None if "filter" in kind else False
    assert has_changes(tmp_path) is expected
    assert not marker.exists()
