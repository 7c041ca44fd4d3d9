"""Each broken job is caught before anything is built, pushed or made, with code and remedy."""

from __future__ import annotations

import pytest

from .corpus.broken import BROKEN, OFFLINE, UNREADABLE
from .corpus.cases import WITH_GPUS, Case, run

ERRORS = [name for name, case in BROKEN.items() if case.severity == "error"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_job_is_told_with_its_remedy(name, offline, written, google, with_base):
    case = BROKEN[name]
    if case.is_online:
        google(**case.google)
        said = run("check", "--json", *with_base, *case.words, folder=written(case))
    else:
        folder, denied = offline(OFFLINE)[name]
        said = run("check", "--json", "--offline", *case.words, folder=folder)
        assert said == denied
    assert said.codes == {case.code} | case.also, said.report["problems"]
    found = [each for each in said.problems if each["code"] == case.code]
    assert any(case.remedy in each["remedy"] for each in found), found
    assert all(case.where in each["where"] for each in found), found
    assert {each["severity"] for each in found} == {case.severity}
    is_ready = all(each["severity"] == "warning" for each in said.problems)
    assert (said.report["ready"], said.code) == (is_ready, 0 if is_ready else 1)


@pytest.mark.parametrize("name", ERRORS)
def test_nothing_is_made_of_a_broken_job(name, written, google, base_registry):
    case = BROKEN[name]
    folder = written(case)
    here = google(**(case.google or {}))
    said = run("submit", "--detach", *case.words, folder=folder)
    assert said.code == 1, said.stderr
    assert said.stdout == ""
    assert f"[{case.code}]" in said.stderr
    assert (here.jobs["customJobs"], base_registry.changes) == ([], [])
    assert not (folder / ".distlaunch/jobs").exists()


@pytest.mark.parametrize("command", ["check", "submit"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_job_is_refused_with_its_place(name, command, written, google):
    changes, told = UNREADABLE[name]
    case = Case(**changes)
    here = google()
    said = run(command, *case.words, folder=written(case))
    assert (said.code, said.stdout) == (1, "")
    assert told in said.stderr
    assert "Traceback" not in said.stderr
    assert here.jobs["customJobs"] == []


def test_a_quota_that_others_take_is_told_with_figures(written, google, base_registry):
    here = google(limits={"nvidia_t4_gpus": 5})
    folder = written(Case(job=WITH_GPUS))
    image = f"--image={base_registry.host}/python:3.12"
    first = run("submit", "--detach", image, folder=folder)
    assert first.code == 0, first.stderr
    second = run("check", "--json", image, folder=folder)
    [found] = second.problems
    assert (found["code"], second.code) == ("quota-in-use", 1)
    assert all(figure in found["what"] for figure in "353"), found
    assert run("submit", "--detach", image, "--new", folder=folder).code == 1
    assert len(here.jobs["customJobs"]) == 1
