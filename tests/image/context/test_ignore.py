"""Ignore files by Docker's rules; the engine itself is asked in the last test."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from distlaunch.errors import ImageError
from distlaunch.image.context.ignore import NOTHING, IgnoreRules, pattern_for

ENGINES_DOCKER = "/usr/bin/docker"

MATCHES = [
    ("file", "file", True),
    ("file", "a/file", False),
    ("folder", "folder/a/b", True),
    ("folder/", "folder/a", True),
    ("/folder", "folder/a", True),
    ("./folder/../other", "other", True),
    ("fold", "folder", False),
    ("*", "a", True),
    ("*", "a/b", True),  # by its parent
    ("*/b", "a/b", True),
    ("*/b", "b", False),
    ("*/*/c*", "a/b/cd", True),
    ("*/c", "a/b/c", False),
    ("a?", "ab", True),
    ("a?", "a/b", False),
    ("a?b", "a☺b", True),
    ("**", "a/b/c", True),
    ("**/b", "b", True),
    ("**/b", "a/c/b", True),
    ("**/b", "ab", False),
    ("**/b", "a/b/c", True),
    ("**b", "ab", True),  # as Docker has it
    ("**/b/c", "a/b/c", True),
    ("**/b/c", "ab/c", False),
    ("a/**", "a/b", True),
    ("a/**", "a", False),
    ("a/**/d", "a/d", True),
    ("a/**/d", "a/b/c/d", True),
    ("a/**/d", "ab/d", False),
    ("**/*.pyc", "x.pyc", True),
    ("**/*.pyc", "a/b/x.pyc", True),
    ("**/*.pyc", "a/pyc", False),
    ("**/.env.*", "a/.env.local", True),
    ("**/.env.*", "a/x.env.local", False),
    ("*.p[xyc]", "a.pyc"[:3] + "c", True),
    ("[a-c]x", "bx", True),
    ("[^a-c]x", "bx", False),
    ("[^a-c]x", "dx", True),
    (r"a\*b", "a*b", True),
    (r"a\*b", "axb", False),
    (r"\!a", "!a", True),
    (r"\#a", "#a", True),
    ("#a", "#a", False),
    ("a.b", "axb", False),
    ("a(b)|{c}+$", "a(b)|{c}+$", True),
    ("[[]x", "[x", True),
    ("", "a", False),
    (".", "a", False),
    ("a ", "a", True),
    ("\ufeffa", "a", True),
    ("a\r", "a", True),
]


@pytest.mark.parametrize(("pattern", "path", "matches"), MATCHES)
def test_one_pattern(pattern, path, matches):
    assert IgnoreRules(pattern).ignores(path) is matches


@pytest.mark.parametrize(
    ("lines", "path", "ignored"),
    [
        (["*", "!a"], "a", False),
        (["*", "!a"], "a/b", False),
        (["*", "!a"], "b", True),
        (["*", "!a/b"], "a/c", True),
        (["*", "!a/b"], "a/b/c", False),
        (["!a", "*"], "a", True),
        (["*", "!a", "a/b"], "a/b/c", True),
        (["*", "!a", "**/x", "!a/x/y"], "a/x/y", False),
        (["*", "!a", "**/x", "!a/x/y"], "a/x/z", True),
        (["**", "!**/*.py"], "a/b/c.py", False),
        (["*", "! a"], "a", False),
        (["*.md", "!README*.md", "README-secret.md"], "README-secret.md", True),
        (["a", "!!a"], "a", True),
    ],
)
def test_the_last_pattern_that_matches_wins(lines, path, ignored):
    assert IgnoreRules("\n".join(lines)).ignores(path) is ignored


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("!", "nothing stands behind the '!'"),
        ("a[b", "a '[' without its ']'"),
        ("[]", "a '[' without its ']'"),
        ("[b-a]", "bad character range b-a"),
    ],
)
def test_what_is_no_pattern_is_named_with_its_line(line, said):
    with pytest.raises(ImageError) as refusal:
        IgnoreRules(f"# first\n\n  {line}  \n")
    text = str(refusal.value)
    assert text.startswith(f".dockerignore:3: not a pattern ({said}")
    assert text.endswith(f"got {line!r}")


names = st.text("abc.*[]\\!# ?^-$é☺", min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
steps = st.sampled_from(["a", "b", "c.py", "*", "?", "**", "*.py", "[ab]", "a*", "**b"])
patterns = st.lists(steps, min_size=1, max_size=4).map("/".join)
plain_paths = st.lists(st.sampled_from(["a", "b", "c.py", "ab"]), min_size=1, max_size=4).map(
    "/".join
)
lines = st.lists(st.tuples(st.booleans(), patterns), max_size=6)


@given(paths, paths)
@example("a", "a")
def test_the_pattern_of_a_path_matches_it_and_no_other(path, other):
    assume(other != path and not other.startswith(f"{path}/"))
    rules = IgnoreRules(pattern_for(path))
    assert rules.ignores(path)
    assert rules.ignores(f"{path}/below")
    assert not rules.ignores(other)
    assert not IgnoreRules(f"*\n!{pattern_for(path)}").ignores(path)


def as_documented(listed: list[tuple[bool, str]], path: str) -> bool:
    """Say whether a path is ignored, by the rules word for word and one pattern after the other."""
    parts = path.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    ignored = False
    for lets_in, pattern in listed:
        if any(one_matches(pattern, each) for each in above):
            ignored = not lets_in
    return ignored


def one_matches(pattern: str, path: str) -> bool:
    if pattern == "**":
        return True
    if re.fullmatch(r"\*\*[a-z./]+", pattern):
        rest = pattern.removeprefix("**")
        return path.endswith(rest) or (rest[0] == "/" and path == rest[1:])
    if re.fullmatch(r"[a-z./]+/\*\*", pattern):
        return path.startswith(pattern.removesuffix("**"))
    made = re.sub(
        r"\*\*/?$|\*\*/?|\*|\?|\.",
        lambda found: (
            {
                "*": "[^/]*",
                "?": "[^/]",
                ".": r"\.",
            }.get(found[0])
            or (".*" if found.end() == len(pattern) else "(.*/)?")
        ),
        pattern,
    )
    return bool(re.fullmatch(made, path))


@given(lines, plain_paths)
@example([(False, "*"), (True, "a"), (False, "**/b")], "a/ab/b")
def test_groups_of_patterns_say_what_each_by_itself_would(listed, path):
    text = "\n".join(f"{'!' if lets_in else ''}{pattern}" for lets_in, pattern in listed)
    assert IgnoreRules(text).ignores(path) == as_documented(listed, path)


@given(lines, plain_paths)
def test_no_folder_is_passed_over_in_which_something_is_let_in(listed, path):
    text = "\n".join(f"{'!' if lets_in else ''}{pattern}" for lets_in, pattern in listed)
    rules = IgnoreRules(text)
    last, above = NOTHING, ""
    for name in path.split("/")[:-1]:
        last = rules.last_match(above + name, name, last)
        if rules.leaves_out(last) and not rules.lets_in_below(above + name, last):
            assert rules.ignores(path)
        above += f"{name}/"


def test_a_folder_is_only_entered_for_what_may_be_in_it():
    rules = IgnoreRules("*\n!trainer\n!data/small\n**/__pycache__\n")
    assert not rules.lets_in_below("models", 0)
    assert rules.lets_in_below("data", 0)
    assert not rules.lets_in_below("data/large", 0)
    assert not rules.lets_in_below("trainer/__pycache__", 2)
    assert IgnoreRules("*\n!**/x.py").lets_in_below("anything", 0)


TREE = [
    "a/b/c.py", "a/x.pyc", "a/__pycache__/y.pyc", "b/.env", "b/.env.local", "b/ab", "c d/e",
    "$x/[y]", "star*", "ab", "d/ab/z", "d/e/ab", "é/☺",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "*\n!a\n!c d\n**/__pycache__\n**/*.pyc\n",
        "**/ab\n!d/ab\n",
        "**ab\n",
        "b/**\n!b/.env*\nb/.env.*\n",
        "d/**/ab\n",
        "*\n!" + pattern_for("$x/[y]") + "\n!" + pattern_for("star*") + "\n",
        "[^a]*\n!é\n",
        "?\n",
        "*/*/*\n",
    ],
)
def test_the_engine_takes_the_same_files(engine, tmp_path, text):
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".dockerignore").write_text(f"{text}\nDockerfile\n.dockerignore\n")
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY . /\nENTRYPOINT ["x"]\n')
    environment = {**os.environ, "DOCKER_HOST": engine.socket, "DOCKER_BUILDKIT": "0"}

    def docker(*words: str) -> bytes:
        return subprocess.run(
            [ENGINES_DOCKER, *words], cwd=tmp_path, env=environment, check=True, capture_output=True
        ).stdout

    image = docker("build", "--quiet", ".").decode().strip()
    container = docker("create", image).decode().strip()
    with tarfile.open(fileobj=io.BytesIO(docker("export", container))) as tar:
        inside = {member.name for member in tar if member.isfile()}
    docker("rm", container)
    docker("rmi", image)
    rules = IgnoreRules(text)
    assert inside & set(TREE) == {name for name in TREE if not rules.ignores(name)}
