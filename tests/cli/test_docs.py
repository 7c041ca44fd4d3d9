"""`distlaunch docs`: the page that it opens."""

from __future__ import annotations

import json

import pytest

from distlaunch import documentation

TOPICS = {
    "index": "index.html",
    "submit": "do/submit.html",
    "no-project": "look-up/check-codes.html#no-project",
}


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The addresses that were opened in a browser."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    return addresses


@pytest.fixture
def site(monkeypatch, tmp_path):
    """The site as in a wheel."""
    folder = tmp_path / "distlaunch" / "site"
    folder.mkdir(parents=True)
    (folder / "topics.json").write_text(json.dumps(TOPICS))
    monkeypatch.setattr(documentation, "_HERE", folder.parent)
    return folder


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ((), "index.html"),
        (("submit",), "do/submit.html"),
        (("no-project",), "look-up/check-codes.html#no-project"),
    ],
)
def test_a_page_is_opened_and_its_address_printed(run, site, opened, words, page):
    done = run("docs", *words)
    assert (done.code, done.out, opened) == (0, f"{site.as_uri()}/{page}\n", [done.out.strip()])
    opened.clear()
    assert run("docs", "--print", *words).out == done.out
    assert opened == []


def test_an_unknown_topic_is_refused_with_a_close_one(run, site, opened):
    done = run("docs", "no-projct")
    assert (done.code, opened) == (2, [])
    assert done.err == ("distlaunch: error: no page on 'no-projct'; did you mean 'no-project'?\n")
    assert run("docs", "x").err.endswith("expected a page, a check code or a command\n")


def test_without_an_installed_site_the_pages_are_online(run, monkeypatch, tmp_path, opened):
    monkeypatch.setattr(documentation, "_HERE", tmp_path / "distlaunch")
    assert run("docs").out == f"{documentation.SITE}\n"
    assert run("docs", "no project").out == f"{documentation.SITE}?q=no%20project\n"
    assert len(opened) == 2


def test_help_and_check_name_the_documentation(run, tmp_path):
    assert documentation.SITE in run("--help").out
    (tmp_path / "distlaunch.yaml").write_text("name: a\ncluster: {chief: {machine: n1-standard-4}}")
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").touch()
    words = ("check", "--offline", "--region", "us-central1")
    report = run(*words, cwd=tmp_path).out
    problem = json.loads(run(*words, "--json", cwd=tmp_path).out)["problems"][0]
    code = problem["code"]
    assert report.endswith(f"\nmore about a problem: distlaunch docs {code}\n")
    assert problem["url"] == f"{documentation.SITE}look-up/check-codes.html#{code}"
