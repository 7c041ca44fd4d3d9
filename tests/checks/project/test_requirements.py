from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from distlaunch.checks.project.requirements import any_version

START = "tensorflow-cpu==2.21.0\nkeras>=3.12,<3.16\n"


ON_GPUS = tuple(
    f"cluster.{pool}.accelerator={{type: NVIDIA_TESLA_T4, count: 1}}"
    for pool in ("chief", "workers")
)


def told(made, text, *sets):
    made.write("requirements.txt", START + text)
    return [
        (each.code, each.where.removeprefix("requirements.txt:"), each.remedy)
        for each in made.problems(*sets)
        if each.code.startswith("requirement")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "numpy==2.3.1", "numpy~=2.3", "numpy<3", "numpy>=1.26,<3  # as keras", "numpy===2.3.1",
        "numpy==2.*", "numpy [all] == 2.3.1 ; python_version < '4'", "",
        "nothing; sys_platform == 'win32'", "nothing; python_version < '3.8'",
        "--extra-index-url https://example.com/simple", "-i https://example.com/simple",
        "--find-links=wheels", "-f wheels", "--pre", "--no-binary=:all:", "nothing==${VERSION}",
        "numpy==2.3.1 --hash=sha256:" + "0" * 64,
        "numpy==2.3.1 \\\n    --hash=sha256:" + "0" * 64 + " \\\n    --hash=sha256:" + "1" * 64,
        "https://example.com/numpy-2.3.1-cp312-cp312-linux_x86_64.whl",
        "numpy @ https://example.com/numpy-2.3.1.tar.gz",
        "git+https://example.com/acme.git@0123456789abcdef#egg=acme",
        "acme @ git+https://example.com/acme.git@v1.2",
    ],
)  # fmt: skip
def test_what_pip_takes_and_will_take_alike_is_no_problem(text, made):
    assert told(made, text) == []


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("wandb", "as wandb==VERSION"),
        ("wandb>=0.1", "'pip index versions wandb' lists them"),
        ("PyYAML!=5.3", "pin it, as pyyaml==6"),
        ("acme @ git+https://example.com/acme.git", "as acme==VERSION"),
        ("git+https://example.com/acme.git@main#egg=acme", "as acme==VERSION"),
    ],
)
def test_what_the_next_build_may_get_otherwise_is_pointed_out(text, remedy, made):
    [(code, line, told_remedy)] = told(made, text)
    assert (code, line) == ("requirement-unpinned", "3")
    assert remedy in told_remedy


def test_a_constraint_pins_and_installs_nothing(made):
    made.write("constraints.txt", "wandb==0.20\nabsent==1.0\n")
    made.begin("trainer/model.py", "import absent\n")
    assert told(made, "wandb\n-c constraints.txt") == []
    assert ("import-missing", "warning") in made.codes()


def test_files_that_are_taken_in_are_read_with_their_lines(made):
    made.write("more/base.txt", "\n\nwandb\n")
    made.write("requirements.txt", START + "-r more/base.txt")
    [problem] = made.problems()
    assert problem.where == "more/base.txt:3"


@pytest.mark.parametrize(
    ("text", "where", "remedy"),
    [
        ("numpy=2.3.1", "3", "write numpy==2.3.1"),
        ("numpy=2.3.1=py312h_0", "3", "write numpy==2.3.1"),
        ("numpy 2.3.1", "3", "expected a requirement"),
        ("import numpy", "3", "expected a requirement"),
        ("numpy==2.3.1 \\\n  and more\n", "3", "expected a requirement"),
        ("\n\n# odd\nnumpy>>2", "6", "expected a requirement"),
        ("--extra-index https://example.com", "3", "take it out"),
    ],
)
def test_what_pip_cannot_read_is_told_with_its_line(text, where, remedy, made):
    [(code, line, told_remedy)] = told(made, text)
    assert (code, line) == ("requirement-unreadable", where)
    assert remedy in told_remedy


@pytest.mark.parametrize("sets", [(), ON_GPUS])
def test_a_misread_tensorflow_is_shown_as_it_stands_and_told_once(sets, made):
    made.write("requirements.txt", "tensorflow=2.19.0\nkeras>=3.12,<3.16\n")
    [problem] = made.problems(*sets)
    assert (problem.code, problem.where) == ("requirement-unreadable", "requirements.txt:1")
    assert problem.what == "pip cannot read 'tensorflow=2.19.0'"
    assert problem.remedy == "write tensorflow==2.19.0"


@pytest.mark.parametrize(
    "text",
    [
        "numpy==2.3.1\nnumpy==2.3.2",
        "numpy==2.3.1\nnumpy>=2.4",
        "numpy>=2.4\nnumpy<2.4",
        "numpy>2.4,<=2.4",
        "numpy==2.3.*\nnumpy>=2.4",
        "numpy~=2.3.1\nnumpy>=2.4",
        "numpy==2.3.1\nnumpy!=2.3.1",
        "numpy==2.3.1\nNumPy===2.3.2",
    ],
)
def test_requirements_that_no_version_is_for_are_refused(text, made):
    [(code, line, _)] = told(made, text)
    assert code == "requirement-clash"
    assert line == str(3 + text.count("\n"))


def test_a_constraint_on_what_is_not_installed_does_not_clash(made):
    made.write("constraints.txt", "wandb==0.20\nwandb==0.21\n")
    assert told(made, "-c constraints.txt") == []
    assert [code for code, *_ in told(made, "wandb\n-c constraints.txt")] == ["requirement-clash"]


VERSIONS = st.builds(
    "{}.{}{}".format, st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", ".1", "rc1"])
)
SPECIFIERS = st.builds(
    "{}{}".format, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "~="]), VERSIONS
)
GRID = [
    Version(f"{major}.{minor}{rest}")
    for major in range(5)
    for minor in range(5)
    for rest in ("", ".0.1", ".1", ".1.1", ".2", "rc1", "rc2", ".1rc1", ".post1")
]


@given(st.lists(SPECIFIERS, min_size=1, max_size=4).map(lambda said: [*map(SpecifierSet, said)]))
def test_versions_that_there_can_be_are_never_said_not_to_be(specifiers):
    both = SpecifierSet(",".join(map(str, specifiers)))
    there_is = any(both.contains(version, prereleases=True) for version in GRID)
    assert any_version(specifiers) or not there_is
