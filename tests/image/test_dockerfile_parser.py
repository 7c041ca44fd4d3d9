import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.image.dockerfile_parser import read_dockerfile

OURS = """\
# A comment
FROM python:3.12 AS environment
ENV A=1
COPY ["requirements.txt", "/environment/requirements.txt"]
RUN python -m pip install -r /environment/requirements.txt
WORKDIR /app

# The code
FROM environment
COPY . .
ENTRYPOINT ["python", "-m", "trainer.task"]
"""


def test_a_dockerfile_is_its_stages():
    dockerfile = read_dockerfile(OURS)
    names = [(stage.base, stage.name) for stage in dockerfile.stages]
    assert names == [("python:3.12", "environment"), ("environment", None)]
    words = [(each.word, each.line) for each in dockerfile.instructions]
    assert words == [
        *(("ENV", 3), ("COPY", 4), ("RUN", 5), ("WORKDIR", 6)),
        *(("COPY", 10), ("ENTRYPOINT", 11)),
    ]
    lines = [line for line in OURS.splitlines() if line and not line.startswith("#")]
    assert dockerfile.text.splitlines() == lines


@pytest.mark.parametrize(
    ("text", "bases", "base"),
    [
        ("FROM a\nFROM b AS c\nFROM c\n", ("a", "b"), "b"),
        ("FROM a AS Build\nFROM BUILD AS c\nFROM C\n", ("a",), "a"),
        ("from a as B\nfrom --platform=linux/amd64 c\n", ("a", "c"), "c"),
        ("ARG V=3\nFROM python:${V}-slim\nFROM x:$V\n", ("python:3-slim", "x:3"), "x:3"),
        ("FROM scratch\n", (), "scratch"),
        ("ARG V\nFROM python:$V\n", (), None),
        ("# no stage\n", (), None),
    ],
)
def test_base_images(text, bases, base):
    dockerfile = read_dockerfile(text)
    assert (dockerfile.bases, dockerfile.base) == (bases, base)


@pytest.mark.parametrize(
    ("text", "rests"),
    [
        ("FROM a\nRUN x \\\n  y\n", ["x   y"]),
        ("FROM a\nRUN x \\\n# a comment between\n\n  y\nENV A=1\n", ["x   y", "A=1"]),
        ("# escape=`\nFROM a\nRUN dir C:\\\nENV A=1\n", ["dir C:\\", "A=1"]),
        ("# escape=`\nFROM a\nRUN x `\n y\n", ["x  y"]),
        ("FROM a\nRUN <<EOF\nENV not=one\nEOF\nENV A=1\n", ["<<EOF", "A=1"]),
        ("FROM a\nCOPY <<-'END' /x\nENV no\n\tEND\nENV A=1\n", ["<<-'END' /x", "A=1"]),
        ("FROM a\nRUN <<A cat <<B\n1\nA\n2\nB\nENV A=1\n", ["<<A cat <<B", "A=1"]),
        ("FROM a\nRUN cat <<< EOF\nENV A=1\n", ["cat <<< EOF", "A=1"]),
        ("FROM a\nRUN echo $((1<<N))\nENV A=1\n", ["echo $((1<<N))", "A=1"]),
        ("FROM a\nRUN echo 'a <<B c'\nENV A=1\n", ["echo 'a <<B c'", "A=1"]),
    ],
)
def test_continued_lines_and_here_documents(text, rests):
    (stage,) = read_dockerfile(text).stages
    assert [step.rest for step in stage.instructions] == rests


# Values of ENV, and what Docker sets if A is "a", E is empty and N is not set.
EXPANDED = {
    "$A": "a",
    "x${A}y": "xay",
    "$A/$A:$E.": "a/a:.",
    "${A:-b}": "a",
    "${E:-b}": "b",
    "${N:-b,c}": "b,c",
    "${N:-$A}": "a",
    "${A:+:$A}": ":a",
    "x${E:+:$E}": "x",
    "x${N:+:$N}": "x",
    '"$A \\$A ${N:-b c}"': "a $A b c",
    "'$A'$A": "$Aa",
    "\\$A": "$A",
    "\\\\$A": "\\a",
}


def variable(value: str) -> str | None:
    """Return the value of a variable of a Dockerfile."""
    text = f"FROM x\nENV A=a E=\nENV B=1 X={value}\n"
    return read_dockerfile(text).variables.get("X")


def test_variables_are_expanded_as_docker_does():
    assert {value: variable(value) for value in EXPANDED} == EXPANDED
    for value in ("$5", "$", "${A", "${A:?b}", "${A#b}", "${A:-${E}}", "$N"):
        assert variable(value) is None


@pytest.mark.slow
@pytest.mark.parametrize("buildkit", ["0", "1"])
def test_docker_expands_variables_the_same_way(engine, tmp_path, buildkit):
    pairs = " ".join(f"X{number}={value}" for number, value in enumerate(EXPANDED))
    (tmp_path / "Dockerfile").write_text(f"FROM {engine.base}\nENV A=a E=\nENV {pairs}\n")
    done = engine.docker(
        "build", "--quiet", str(tmp_path), env=os.environ | {"DOCKER_BUILDKIT": buildkit}
    )
    config = engine.docker("inspect", "--format", "{{json .Config.Env}}", done.stdout.strip())
    variables = dict(each.split("=", 1) for each in json.loads(config.stdout))
    engine.docker("rmi", done.stdout.strip())
    assert [variables[f"X{number}"] for number in range(len(EXPANDED))] == [*EXPANDED.values()]


WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="$"))


@given(WORDS)
def test_quoted_values(value):
    quoted = re.sub(r'(["\\])', r"\\\1", value)
    assert variable(f'"{quoted}"') == value
