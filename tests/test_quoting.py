"""What is written for a place is read back there as it was, whatever is in it."""

from __future__ import annotations

import json
import math
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.job.yaml_document import Document
from distlaunch.quoting import (
    CannotBeQuoted,
    destination,
    docker_value,
    exec_form,
    shell_word,
    source,
    yaml_text,
)

if TYPE_CHECKING:
    from distlaunch.image.dockerfile_parser import Instruction

NASTY = "'\"\\$`{}[]<>#!|&;*?~=: \t-é☺\u2028\x85"
HOSTILE = [
    "$HOME", "${x:-y}", "{{ 7 * 7 }}", "{% raw %}", '" RUN x "', "'", "\\", "a\\", "<<EOF",
    "# not a comment", "`id`", "$(id)", "a && b", " a ", "", "-", "日本語",
]  # fmt: skip
# No lone surrogates: what is not UTF-8 can't be written into any of these files.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
lines = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.one_of(st.sampled_from(NASTY), characters), max_size=20).filter(
        lambda text: all(char == "\t" or (char >= " " and char != "\x7f") for char in text)
    ),
)
texts = st.one_of(lines, st.text(st.one_of(st.sampled_from(NASTY + "\r\n"), characters)))


def instruction(line: str) -> Instruction:
    (only,) = read_dockerfile(f"FROM a\n{line}\n").instructions
    return only


@given(st.lists(texts, min_size=1, max_size=4))
def test_exec_form(words):
    assert list(instruction(f"ENTRYPOINT {exec_form(words)}").array) == words


@example({"A": "a\x85b"})  # no end of a line for Docker
@given(st.dictionaries(st.sampled_from(["A", "B_C"]), lines, min_size=1))
def test_values_of_env_and_label(values):
    pairs = " ".join(f"{name}={docker_value(text)}" for name, text in values.items())
    variables = read_dockerfile(f"FROM x\nENV {pairs}\n").variables
    assert {name: variables[name] for name in values} == values


def without_escapes(word: str) -> str:
    """Remove backslashes as Docker does in a word of COPY; no character is left with a meaning."""
    assert re.fullmatch(r"(?:[^\\$\"']|\\.)*", word, re.DOTALL)
    return re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL)


@given(texts.filter(bool), texts.filter(bool))
def test_paths_of_copy(path, folder):
    copy = instruction(f"COPY {exec_form([source(path), destination(folder)])}")
    pattern, target = map(without_escapes, copy.array)
    assert target == folder
    # As Go's filepath.Match reads it: special characters are in a class of their own.
    characters = re.findall(r"\[\\\\\]|\[[^\\]\]|[^*?\[\\]", pattern, re.DOTALL)
    assert "".join(characters) == pattern
    assert "".join(each[-2:-1] or each for each in characters) == path


@settings(max_examples=25)
@given(st.lists(lines, min_size=8, max_size=8))
@example(HOSTILE)
def test_words_of_the_shell(words):
    run = instruction(f"RUN printf '%s\\0' {' '.join(map(shell_word, words))}")
    done = subprocess.run(["sh", "-c", run.rest], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


@given(texts, st.sampled_from("\n\r\0\x1b\x7f\v\f"), texts)
def test_what_would_end_an_instruction_is_refused(before, char, after):
    for quote in (docker_value, shell_word):
        with pytest.raises(CannotBeQuoted, match="no way to write"):
            quote(before + char + after)
    with pytest.raises(CannotBeQuoted):
        exec_form([f"{before}\0{after}"])


data = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


@given(data)
@example({"a": "line\nline", "b": ["- x", "a: b", "yes", "1e3", "0o17", "1_000", "~", "=", "<<"]})
@example({"%": "...", "---": "--- x", "!tag": "&anchor", "*alias": "@", "`": "%"})
def test_yaml(value):
    assert yaml.safe_load(yaml_text(value)) == value


@given(st.dictionaries(texts.filter(bool), texts, min_size=1))
def test_yaml_is_read_by_our_own_reader(value):
    assert Document(yaml_text(value)).data == value


def no_json(word):
    raise ValueError(f"{word} is no JSON")


@given(texts)
@example("Infinity")
def test_text_is_one_line_and_text_in_every_version_of_yaml(word):
    """YAML 1.2 takes plain text for JSON's numbers and words, and for octal numbers."""
    written = yaml_text(word)
    assert re.fullmatch(r"[^\n\r\x85\u2028\u2029]*", written)
    if not written.startswith('"'):
        assert not re.fullmatch(r"[-+]?(\.?[0-9].*|\.inf|\.nan)", written, re.IGNORECASE)
        with pytest.raises(ValueError, match=r"Expecting value|no JSON"):
            json.loads(written, parse_constant=no_json)  # Python's alone: Infinity


def test_numbers_stay_numbers_and_nothing_is_an_alias():
    assert yaml_text({"a": 1, "b": 1.5, "c": True, "d": None}) == "a: 1\nb: 1.5\nc: true\nd: null"
    assert yaml.safe_load(yaml_text(math.inf)) == math.inf
    pool = {"machineType": "n1-standard-4"}
    assert "&" not in yaml_text([pool, pool])
