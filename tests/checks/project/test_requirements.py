from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from distlaunch.checks.project.requirements import any_version

START = "tensorflow-cpu==2.21.0\nkeras>=3.12,<3.16\n"
HASH = "--hash=sha256:" + "0" * 64
DOCKERFILE = "FROM python:3.12-slim\nCOPY . .\nRUN pip install -r requirements.txt\n"
DEFAULT = "image={repository: us-docker.pkg.dev/a/b/c, base: null}"


def check(bundled, text, *overrides):
    bundled.write("requirements.txt", START + text)
    return bundled.problems(*overrides)


@pytest.mark.parametrize(
    "text",
    [
        "numpy==2.3.1", "numpy~=2.3", "numpy<3", "numpy>=1.26,<3  # as keras", "numpy===2.3.1",
        "numpy==2.*", "numpy [all] == 2.3.1 ; python_version < '4'", "",
        "nothing; sys_platform == 'win32'", "nothing; python_version < '3.8'",
        "--extra-index-url https://example.com/simple", "-i https://example.com/simple",
        "-f wheels", "--pre", "--no-binary=:all:", "nothing==${VERSION}",
        f"numpy==2.3.1 {HASH}", f"numpy==2.3.1 \\\n    {HASH} \\\n    {HASH}",
        "https://example.com/numpy-2.3.1-cp312-cp312-linux_x86_64.whl",
        "numpy @ https://example.com/numpy-2.3.1.tar.gz",
        "git+https://example.com/acme.git@0123456789abcdef#egg=acme",
        "acme @ git+https://example.com/acme.git@v1.2",
    ],
)  # fmt: skip
def test_pinned_requirements_are_no_problem(text, bundled):
    assert check(bundled, text) == []


@pytest.mark.parametrize(
    ("text", "code", "location", "remedy"),
    [
        ("gensim>=0.1", "unpinned", "3", "gensim==VERSION ('pip index versions gensim' lists the"),
        ("PyYAML!=5.3", "unpinned", "3", "pin it, e.g. pyyaml==6"),
        ("acme @ git+https://example.com/acme.git", "unpinned", "3", "e.g. acme==VERSION"),
        ("git+https://example.com/acme.git@main#egg=acme", "unpinned", "3", "acme==VERSION"),
        ("-r more/base.txt", "unpinned", "more/base.txt:3", "gensim==VERSION"),
        ("numpy=2.3.1=py312h_0", "unreadable", "3", "write numpy==2.3.1"),
        ("numpy 2.3.1", "unreadable", "3", "expected a requirement"),
        ("numpy==2.3.1 \\\n  and more\n", "unreadable", "3", "expected a requirement"),
        ("\n\n# odd\nnumpy>>2", "unreadable", "6", "expected a requirement"),
        ("numpy==2.3.1\nNumPy===2.3.2", "clash", "4", "one range only (the other is at req"),
        ("numpy==2.3.1\nnumpy>=2.4", "clash", "4", "write one range only"),
        ("numpy>2.4,<=2.4", "clash", "3", "write a range that has versions"),
        ("gensim\n-c constraints.txt", "clash", "constraints.txt:2", "write one range only"),
    ],
)
def test_a_problem_of_a_line(text, code, location, remedy, bundled):
    bundled.write("more/base.txt", "\n\ngensim\n")
    bundled.write("constraints.txt", "gensim==0.20\ngensim==0.21\n")
    [problem] = check(bundled, text)
    assert problem.code == f"requirement-{code}"
    assert problem.where.removeprefix("requirements.txt:") == location
    assert remedy in problem.remedy


def test_constraints_pin_and_install_nothing(bundled):
    bundled.write("constraints.txt", "gensim==0.20\nabsent==1.0\nabsent==1.1\n")
    assert check(bundled, "gensim\n-c constraints.txt") == []
    bundled.prepend("trainer/model.py", "import absent\n")
    problems = check(bundled, "gensim\n-c constraints.txt")
    assert "import-missing" in {each.code for each in problems}


@pytest.mark.parametrize(
    ("text", "are_checked"),
    [
        (DOCKERFILE, True),
        (DOCKERFILE.replace("RUN pip", "RUN cat <<< word && \\\n  pip"), True),
        (
            "ARG BASE=python:3.12\nFROM ${BASE} AS A\n"
            + DOCKERFILE.replace("python:3.12-slim", "A"),
            True,
        ),
        (DOCKERFILE.replace("requirements.txt", "other.txt"), False),
        (DOCKERFILE.replace("RUN pip", "# RUN pip"), False),
    ],
)
def test_the_requirements_that_a_dockerfile_names_are_checked(text, are_checked, bundled):
    bundled.write("Dockerfile", f"{text}RUN pip install --no-index distlaunch_trainer\n")
    bundled.prepend("trainer/data.py", "import seaborn\n")  # the Dockerfile may install it
    problems = check(bundled, "gensim\n", DEFAULT)
    assert [each.code for each in problems] == ["requirement-unpinned"] * are_checked


@pytest.mark.parametrize(
    ("text", "override", "where"),
    [
        ("FROM company/base:1\n", "image.base=python:3.12", ["image.base"]),
        ("FROM python:3.12 AS a\nFROM a\n", "image.base=python:3.12", []),
        ("ARG B\nFROM $B\n", "image.base=python:3.12", []),
        ("FROM a\n", "image.requirements=requirements.txt", ["image.requirements"]),
        (DOCKERFILE, "image.requirements=requirements.txt", []),
    ],
)
def test_settings_that_the_dockerfile_does_not_use(text, override, where, bundled):
    bundled.write("Dockerfile", text)
    problems = bundled.problems(DEFAULT, override)
    ignored = [each for each in problems if each.code == "dockerfile-wins"]
    assert [each.where for each in ignored] == where
    assert all("Dockerfile" in each.remedy for each in ignored)


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


@given(st.lists(SPECIFIERS, min_size=1, max_size=4))
def test_no_range_with_versions_is_a_clash(specifiers):
    both = SpecifierSet(",".join(specifiers))
    has_version = any(both.contains(version, prereleases=True) for version in GRID)
    assert any_version(specifiers) or not has_version
