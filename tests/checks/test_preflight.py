from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from distlaunch.checks import image_check
from distlaunch.checks.image_check import check_image
from distlaunch.checks.preflight import CheckOptions, run_checks
from distlaunch.checks.report import format_plan

IMAGE = "image={uri: 'us-docker.pkg.dev/mine-1234/training/digits:1'}"
GPUS = "cluster={chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 3}}}"


def report(project, *overrides, catalogue=None, **options):
    launch = replace(project.order(*overrides), catalogue=catalogue)
    return run_checks(launch, CheckOptions(offline=True, **options))


def codes(project, *overrides, **options):
    return {problem.code for problem in report(project, *overrides, **options).problems}


def test_errors_come_first_and_each_problem_once(plain):
    sets = ("cluster.chief.machine=n1-standard-9", "region=us-central9", "labels.a=b")
    problems = report(plain, *sets).problems
    severities = [each.severity for each in problems]
    assert severities == sorted(severities)
    assert len({(each.where, each.what) for each in problems}) == len(problems)
    assert {"machine-unknown", "region-unknown"} <= {each.code for each in problems}


def test_arguments_of_a_changed_trainer_are_reported_as_not_checked(bundled):
    task = (bundled.folder / "trainer/task.py").read_text()
    bundled.write("trainer/task.py", task.replace("run.fit(", "mine = run.fit("))
    unchanged = report(bundled, "args=[--odd]")
    assert "argument-unknown" in {each.code for each in unchanged.problems}
    assert "not checked" not in format_plan(unchanged)
    bundled.write("trainer/task.py", task.replace("options.parser()", "my_parser()"))
    changed = report(bundled, "args=[--odd]")
    assert "argument-unknown" not in {each.code for each in changed.problems}
    line = "not checked: main() of trainer/task.py differs from the one that 'init' writes"
    assert f"args       {line}" in format_plan(changed).splitlines()


def test_the_code_here_of_a_named_image_is_checked_with_warnings(whole):
    named = report(whole, IMAGE, "args=[--odd]")
    severities = {each.code: each.severity for each in named.problems}
    assert severities["argument-unknown"] == "warning"
    assert "\ndata       1,437 examples in 5 files\n" in format_plan(named)
    assert "\nargs " not in format_plan(named)
    (whole.folder / "trainer/task.py").unlink()
    line = "args       not checked: the program is in the image"
    assert line in format_plan(report(whole, IMAGE, "args=[--odd]")).splitlines()


def test_a_catalogue_is_read_from_the_folder_or_the_option(plain):
    assert "accelerator-count" in codes(plain, IMAGE, GPUS)
    own = plain.folder / "mine.yaml"
    own.write_text("machines: {n1-standard-8: {accelerators: {NVIDIA_TESLA_T4: [3]}}}\n")
    assert "accelerator-count" not in codes(plain, IMAGE, GPUS, catalogue=own)
    own.rename(plain.folder / "distlaunch.catalogue.yaml")
    assert "accelerator-count" not in codes(plain, IMAGE, GPUS)


@pytest.fixture
def repository():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed again
    return f"image={{repository: 'localhost:{port}/unused/digits', base: null}}"


def test_an_unreachable_registry_is_a_warning(plain, repository):
    plain.write("requirements.txt", "six==1.16.0\n")
    image = check_image(plain.order(repository))
    [problem] = image.problems
    assert (problem.code, problem.severity) == ("registry-unreachable", "warning")
    assert image.plan
    assert not image.registry_contacted
    assert image.files == {"requirements.txt", "program.py"}


@pytest.mark.parametrize("base", ["null", "'localhost:1/base'"])
def test_files_are_read_once_where_no_registry_responds(plain, repository, base, monkeypatch):
    plain.write("data/all.bin", "0" * 100)
    opened, open_path = [], Path.open

    def count(path, *args, **options):
        opened.append(path.name)
        return open_path(path, *args, **options)

    monkeypatch.setattr(Path, "open", count)
    image = repository.replace("null", f"{base}, include: [data]")
    [problem] = check_image(plain.order(image)).problems
    assert (problem.code, opened.count("all.bin")) == ("registry-unreachable", 1)


def test_a_silent_registry_does_not_delay_the_checks(plain, monkeypatch):
    monkeypatch.setattr(image_check, "_REGISTRY_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"localhost:{server.getsockname()[1]}"
        repository, base = f"{host}/unused/digits", f"{host}/base"
        pinned = f"{base}@sha256:{'0' * 64}"
        for its_base, what in ((pinned, repository), (f"{base}:1", f"{base}:1")):
            image = f"image={{repository: '{repository}', base: '{its_base}'}}"
            [problem] = check_image(plain.order(image)).problems
            assert (problem.code, problem.severity) == ("registry-unreachable", "warning")
            assert problem.what == f"no response about {what} within 0.1 s"


def test_a_large_context_is_a_warning_with_its_largest_file(plain, repository):
    plain.write("data/all.bin", "")
    os.truncate(plain.folder / "data/all.bin", 60_000_000)
    [problem] = check_image(plain.order(repository, "image.include=[data]"), offline=True).problems
    assert (problem.code, problem.severity) == ("context-large", "warning")
    assert "data/all.bin" in problem.what
