from __future__ import annotations

import pytest

from distlaunch.image.dockerfile import read_dockerfile, run_commands
from distlaunch.image.requirements import PipInstall, pip_install


def commands(line):
    (instruction,) = read_dockerfile(f"FROM a\n{line}\n").instructions
    return [" ".join(words) for words in run_commands(instruction)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("RUN a b && c; d || e | f &", ["a b", "c", "d", "e", "f"]),
        ("RUN a \\\n  b && \\\n  c", ["a b", "c"]),
        ("RUN (a 'b; c' > d 2>&1)", ["a b; c 2"]),
        ("RUN --mount=type=cache,target=/x a", ["a"]),
        ('RUN ["a", "b && c"]', ["a b && c"]),
        ("RUN a 'b", ["a 'b"]),
        ("COPY a b", []),
    ],
)
def test_a_run_instruction_is_its_commands(line, expected):
    assert commands(line) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "pip install -r a.txt --requirement=b.txt -rc.txt",
            PipInstall(("a.txt", "b.txt", "c.txt")),
        ),
        ("/opt/bin/python3.12 -m pip install a", PipInstall(packages=("a",))),
        (
            "PIP_NO_CACHE_DIR=1 pip3 --quiet install a -e b",
            PipInstall((), (), ("a", "b"), ("--quiet",)),
        ),
        (
            "pip install -c d.txt -i https://host.example/x -U a==1",
            PipInstall((), ("d.txt",), ("a==1",), ("-i", "https://host.example/x", "-U")),
        ),
        ("pip download a", None),
        ("pip", None),
        ("conda install a", None),
        ("apt-get install python3-pip", None),
    ],
)
def test_the_arguments_of_pip_are_read(command, expected):
    assert pip_install(command.split()) == expected
