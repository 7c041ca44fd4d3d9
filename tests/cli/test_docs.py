"""`distlaunch docs`: the page that it opens."""

from __future__ import annotations

import json
import shutil

import pytest

from distlaunch import documentation

TOPICS = {
    "index": "index.html",
    "no-project": "look-up/check-codes.html#no-project",
    "exit-codes": "look-up/exit-codes.html",
    "epochs": "look-up/trainer-options.html#epochs",
}


@pytest.fixture
def opened(monkeypatch, tmp_path) -> list[str]:
    """The addresses that were opened in a browser; the site is as in a wheel."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    monkeypatch.setattr(documentation, "_HERE", tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/topics.json").write_text(json.dumps(TOPICS))
    return addresses


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        ((), "index"),
        (("no-project",), "no-project"),
        (("exit", "codes"), "exit-codes"),
        (("--epochs",), "epochs"),
    ],
)
def test_a_page_is_opened_and_its_address_printed(run, tmp_path, opened, words, topic):
    address = f"{tmp_path.as_uri()}/site/{TOPICS[topic]}"
    done = run("docs", *words)
    assert (done.code, done.out, opened) == (0, f"{address}\n", [address])
    assert (run("docs", "--print", *words).out, opened) == (done.out, [address])


def test_an_unknown_topic_is_refused_with_a_close_one(run, opened):
    done = run("docs", "no-projct")
    assert (done.code, opened) == (2, [])
    assert done.err.endswith(": no page on 'no-projct'; did you mean 'no-project'?\n")
    assert run("docs", "x").err.endswith(" an option or a key of the job file\n")


def test_without_an_installed_site_the_pages_are_online(run, tmp_path, opened):
    (tmp_path / "site/topics.json").unlink()
    assert run("docs").out == f"{documentation.SITE}\n"
    assert documentation.SITE in run("--help").out
    assert run("docs", "no project").out == f"{documentation.SITE}?q=no%20project\n"


def test_in_a_checkout_without_a_site_topics_are_validated(
    run, opened, monkeypatch, tmp_path, checkout
):
    shutil.copytree(checkout / "docs", tmp_path / "docs")
    monkeypatch.setattr(documentation, "_HERE", tmp_path / "distlaunch")
    assert run("docs", "no-project").out == f"{documentation.code_url('no-project')}\n"
    assert run("docs", "exit", "codes").out == f"{documentation.SITE}look-up/exit-codes.html\n"
    refused = run("docs", "foo")
    assert (refused.code, refused.out) == (2, "")
    assert len(opened) == 2
