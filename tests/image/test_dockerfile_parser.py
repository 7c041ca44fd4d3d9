import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.image.dockerfile_parser import code_settings, parse_pairs, read_dockerfile
from distlaunch.image.registry.manifests import ImageSettings

OURS = """\
# A comment of ours
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


def test_the_last_stage_adds_the_code_at_the_workdir():
    expected = ImageSettings(("python", "-m", "trainer.task"), workdir="/app")
    for text in (OURS, OURS.replace("COPY . .", 'COPY [".", "."]')):
        assert code_settings(read_dockerfile(text)) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("COPY . .", "COPY . .\nRUN make"),
        ("COPY . .", "COPY trainer trainer"),
        ("COPY . .", "COPY . /elsewhere"),
        ("COPY . .", ""),
        ("COPY . .", "USER daemon\nCOPY . ."),
        ('ENTRYPOINT ["python", "-m", "trainer.task"]', "ENTRYPOINT python -m trainer.task"),
        ('ENTRYPOINT ["python", "-m", "trainer.task"]', ""),
        ("WORKDIR /app", ""),
        ("WORKDIR /app", "WORKDIR /$A"),
        ("FROM environment", "FROM python:3.12"),
        ("AS environment", "AS environment\nFROM x AS y"),
    ],
)
def test_a_last_stage_that_does_more_than_add_code(before, after):
    assert before in OURS
    assert code_settings(read_dockerfile(OURS.replace(before, after))) is None


# Values of ENV, and what Docker sets if A is "a", E is empty and N is not set.
EXPANDED = {
    "$A": "a",
    "x${A}y": "xay",
    "$A/$A:$N.": "a/a:.",
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


def test_variables_are_expanded_as_docker_does():
    variables = {"A": "a", "E": ""}
    for value, expected in EXPANDED.items():
        assert parse_pairs(f"A=1 X={value}", variables) == {"A": "1", "X": expected}
    for value in ("$5", "$", "${A", "${A:?b}", "${A#b}", "${A:-${E}}"):
        assert parse_pairs(f"X={value}", variables) is None


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


@given(st.dictionaries(st.from_regex(r"[A-Z_]+", fullmatch=True), WORDS))
def test_quoted_values(values):
    quoted = {name: re.sub(r'(["\\])', r"\\\1", value) for name, value in values.items()}
    text = " ".join(f'{name}="{value}"' for name, value in quoted.items())
    assert parse_pairs(text, {}) == values
