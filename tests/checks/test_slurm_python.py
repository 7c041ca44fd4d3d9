"""What `check` knows of the Python of a job on Slurm, from its files."""

from __future__ import annotations

import json

import pytest

JOB_FILE = """\
name: digits
engine: slurm
script: train.py
slurm: {{folder: {folder}/jobs, python: {python}}}
cluster: {{chief: {{}}}}
"""
TENSORFLOW = {"tensorflow_cpu": "2.21.0", "keras": "3.15.0"}


@pytest.fixture
def environment(tmp_path):
    """Write an environment, by default a virtual one, and return its Python, which cannot run."""

    def write(version="3.12", installed=TENSORFLOW, program="python", settings="version = {}.4\n"):
        python = tmp_path / "env/bin" / program
        packages = tmp_path / f"env/lib/python{version}/site-packages"
        python.parent.mkdir(parents=True)
        packages.mkdir(parents=True)
        python.write_text("#!/nowhere\n")
        python.chmod(0o755)
        if settings:
            (tmp_path / "env/pyvenv.cfg").write_text(settings.format(version))
        for name, number in installed.items():
            (packages / f"{name}-{number}.dist-info").mkdir()
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
            (packages / f"{name}-{number}.dist-info/METADATA").write_text(text)
            (packages / name.partition("_")[0]).mkdir()
        return python

    return write


@pytest.fixture
def check(cli, tmp_path):
    """Return the problems with a Python: their severities and texts."""

    def run(python, program="import keras\n"):
        (tmp_path / "train.py").write_text(program)
        text = JOB_FILE.format(folder=tmp_path, python=python)
        (tmp_path / "distlaunch.yaml").write_text(text)
        done = cli("check", "--offline", "--json")
        problems = json.loads(done.stdout)["problems"]
        return [(each["severity"], each["code"], each["what"]) for each in problems]

    return run


def test_an_environment_with_all_that_is_needed(environment, check):
    assert check(environment()) == []


def test_conda_has_no_settings_and_a_program_with_a_version(environment, check):
    program = environment(program="python3.12", settings="")
    program.with_name("python").symlink_to("python3.12")
    assert check(program.with_name("python")) == []


def test_what_is_missing_or_too_old(environment, check):
    python = environment("3.9", {"tensorflow_cpu": "2.10.0"})
    assert check(python, "import pandas\n") == [
        ("error", "slurm-python", f"{python} is Python 3.9; the trainer needs 3.10 or later"),
        (
            "error",
            "slurm-python",
            f"{python} has tensorflow 2.10.0; the trainer needs tensorflow>=2.21,<2.22",
        ),
        ("error", "slurm-python", f"keras is not installed in {python}"),
        ("error", "import-missing", f"pandas is not installed in {python}"),
    ]


def test_packages_beside_the_environment(environment, check, tmp_path):
    """Editable installations name folders; those that include the system's see its packages."""
    settings = "version = {}.4\nhome = " + f"{tmp_path}/base/bin\n"
    python = environment(settings=settings + "include-system-site-packages = true\n")
    packages = tmp_path / "env/lib/python3.12/site-packages"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/one.py").touch()
    (packages / "mine.pth").write_text(f"import sys; {'x' * 5000}\n\n{tmp_path}/mine\n")
    (tmp_path / "base/lib/python3.12/site-packages/two").mkdir(parents=True)
    assert check(python, "import keras, one, two\n") == []


def test_what_is_not_known_is_not_verified(check, tmp_path):
    program = tmp_path / "wrapper"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    what = f"not verified: the packages of {program}, which belongs to no environment here"
    assert check(program) == [("warning", "slurm-python", what)]
    program.chmod(0o644)
    assert check(program) == [("error", "slurm-python", f"{program}: cannot be run here")]
    absent = tmp_path / "absent"
    assert check(absent) == [("error", "slurm-python", f"{absent}: no such file")]
