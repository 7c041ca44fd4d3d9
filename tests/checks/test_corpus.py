"""The jobs of the corpus: problems with code and remedy, and no false alarms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .corpus.cases import BROKEN, GOOD, UNREADABLE, Case

# One broken job for each kind of check: `submit` has to stop at all of them.
SUBMITTED = (
    "no project anywhere",
    "an open bracket",
    "three GPUs",
    "a global encryption key",
    "data outside the image",
    "billing is off",
)

# The cases whose messages the document of the codes has.
FIRST = {case.code: name for name, case in reversed(BROKEN.items())}
DOCUMENT = Path(__file__).parents[2] / "docs/look-up/check-codes.md"
MESSAGES = dict(re.findall(r"### (.*)\n\n.*\n\n> `(.*)`", DOCUMENT.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_job_has_its_problem_with_a_remedy(name, write, google, with_base, run):
    case = BROKEN[name]
    if case.google is not None:
        google(**case.google)
    options = ("--offline",) if case.google is None else with_base
    result = run("check", "--json", *options, *case.words, folder=write(case))
    assert result.codes == {case.code, *case.also}, result.problems
    problems = [problem for problem in result.problems if problem["code"] == case.code]
    assert any(case.remedy in problem["remedy"] for problem in problems), problems
    assert all(case.where in problem["where"] for problem in problems), problems
    assert {problem["severity"] for problem in problems} == {case.severity}
    if FIRST[case.code] == name:
        message = re.escape(MESSAGES[case.code]).replace("…", ".*")  # what differs
        assert any(re.fullmatch(message, problem["what"]) for problem in problems), problems
    is_ready = all(problem["severity"] == "warning" for problem in result.problems)
    assert (result.report["ready"], result.code) == (is_ready, 0 if is_ready else 1)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_job_is_ready(name, write, google, with_base, run):
    case = GOOD[name]
    google()
    result = run("check", "--json", *with_base, *case.words, folder=write(case))
    assert result.codes == set(case.warned), result.problems
    assert (result.report["ready"], result.code) == (True, 0)


@pytest.mark.parametrize("name", SUBMITTED)
def test_nothing_is_created_for_a_broken_job(name, write, google, base_registry, run):
    case = BROKEN[name]
    folder = write(case)
    server = google(**(case.google or {}))
    result = run("submit", "--detach", *case.words, folder=folder)
    assert (result.code, result.stdout) == (1, "")
    assert f"[{case.code}]" in result.stderr
    assert (server.jobs["customJobs"], base_registry.changes) == ([], [])
    assert not (folder / ".distlaunch/jobs").exists()


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_job_that_cannot_be_read_is_refused_with_its_location(name, write, google, run):
    case = UNREADABLE[name]
    google()
    result = run("check", *case.words, folder=write(case))
    assert (result.code, result.stdout) == (1, "")
    assert case.message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_quota_in_use_is_reported_with_figures(write, google, base_registry, run):
    server = google(limits={"nvidia_t4_gpus": 5})
    gpu = {"machine": "n1-standard-8", "accelerator": {"type": "NVIDIA_TESLA_T4", "count": 1}}
    folder = write(Case(job={"cluster": {"chief": gpu, "workers": gpu}}))
    image = f"--image={base_registry.host}/python:3.12"
    first = run("submit", "--detach", image, folder=folder)
    assert first.code == 0, first.stderr
    second = run("check", "--json", image, folder=folder)
    [problem] = second.problems
    assert (problem["code"], second.code) == ("quota-in-use", 1)
    assert all(figure in problem["what"] for figure in "353"), problem
    assert run("submit", "--detach", image, "--new", folder=folder).code == 1
    assert len(server.jobs["customJobs"]) == 1
