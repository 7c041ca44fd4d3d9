"""Ignore files by Docker's rules; the last test compares with Docker itself."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from distlaunch.errors import ImageError
from distlaunch.image.ignore import IgnoreRules, pattern_for

MATCHES = [
    ("file", "file", True),
    ("file", "a/file", False),
    ("folder", "folder/a/b", True),
    ("/folder", "folder/a", True),
    ("./folder/../other", "other", True),
    ("fold", "folder", False),
    ("*", "a", True),
    ("*", "a/b", True),  # by its parent
    ("*/b", "a/b", True),
    ("*/c", "a/b/c", False),
    ("a?", "a/b", False),
    ("a?b", "a☺b", True),
    ("**/b", "b", True),
    ("**/b", "a/c/b", True),
    ("**/b", "ab", False),
    ("**b", "ab", True),  # as Docker has it
    ("a/**", "a/b", True),
    ("a/**", "a", False),
    ("a/**/d", "a/d", True),
    ("a/**/d", "ab/d", False),
    ("**/*.pyc", "a/b/x.pyc", True),
    ("[a-c]x", "bx", True),
    ("[^a-c]x", "dx", True),
    (r"a\*b", "a*b", True),
    (r"a\*b", "axb", False),
    (r"\!a", "!a", True),
    ("#a", "#a", False),
    ("a.b", "axb", False),
    ("a(b)|{c}+$", "a(b)|{c}+$", True),
    ("[[]x", "[x", True),
    (".", "a", False),
    ("\ufeffa", "a", True),
]


@pytest.mark.parametrize(("pattern", "path", "matches"), MATCHES)
def test_one_pattern(pattern, path, matches):
    assert IgnoreRules(pattern).ignores(path) is matches


@pytest.mark.parametrize(
    ("lines", "path", "ignored"),
    [
        (["*", "!a"], "a/b", False),
        (["*", "!a/b"], "a/c", True),
        (["*", "!a/b"], "a/b/c", False),
        (["*", "!a", "a/b"], "a/b/c", True),
        (["*", "!a", "**/x", "!a/x/y"], "a/x/y", False),
        (["*", "!a", "**/x", "!a/x/y"], "a/x/z", True),
        (["*", "! a"], "a", False),
        (["*.md", "!README*.md", "README-secret.md"], "README-secret.md", True),
        (["a", "!!a"], "a", True),
        # Docker skips 'a' at the folder, which '*' has matched, and so does not apply it below.
        (["*", "!a/x", "a"], "a/x", False),
    ],
)
def test_the_last_pattern_that_matches_wins(lines, path, ignored):
    assert IgnoreRules("\n".join(lines)).ignores(path) is ignored


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("!", "nothing after '!'"),
        ("a[b", "'[' without ']'"),
        ("[]", "'[' without ']'"),
        ("[b-a]", "bad character range b-a"),
    ],
)
def test_a_malformed_pattern_is_reported_with_its_line(line, reason):
    with pytest.raises(ImageError) as caught:
        IgnoreRules(f"# first\n\n  {line}  \n")
    assert str(caught.value).startswith(f".dockerignore:3: invalid pattern {line!r} ({reason}")


names = st.text("abc.*[]\\!# ?^-$é☺", min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
steps = st.sampled_from(["a", "b", "c.py", "*", "?", "**", "*.py", "[ab]", "a*", "**b"])
lines = st.lists(
    st.tuples(st.sampled_from(["", "!"]), st.lists(steps, min_size=1, max_size=4).map("/".join)),
    max_size=6,
)
plain_paths = st.lists(st.sampled_from(["a", "b", "c.py", "ab"]), min_size=1, max_size=4)


@given(paths, paths)
@example("a", "a")
def test_the_pattern_of_a_path_matches_it_and_no_other(path, other):
    assume(other != path and not other.startswith(f"{path}/"))
    rules = IgnoreRules(pattern_for(path))
    assert rules.ignores(path)
    assert rules.ignores(f"{path}/below")
    assert not rules.ignores(other)
    assert not IgnoreRules(f"*\n!{pattern_for(path)}").ignores(path)


@given(lines, plain_paths)
def test_no_folder_with_an_included_file_is_skipped(patterns, parts):
    rules = IgnoreRules("\n".join(f"{sign}{pattern}" for sign, pattern in patterns))
    matches = rules.root
    for end in range(1, len(parts)):
        folder = "/".join(parts[:end])
        ignored, matches = rules.match(folder, matches)
        if ignored and not rules.may_include_below(folder):
            assert rules.ignores("/".join(parts))


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
def test_docker_includes_the_same_files(engine, tmp_path, text):
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".dockerignore").write_text(f"{text}\nDockerfile\n.dockerignore\n")
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY . /\nENTRYPOINT ["x"]\n')
    environment = {**os.environ, "DOCKER_HOST": engine.socket, "DOCKER_BUILDKIT": "0"}

    def docker(*words: str) -> bytes:
        return subprocess.run(
            ["/usr/bin/docker", *words],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        ).stdout

    image = docker("build", "--quiet", ".").decode().strip()
    container = docker("create", image).decode().strip()
    with tarfile.open(fileobj=io.BytesIO(docker("export", container))) as tar:
        inside = {member.name for member in tar if member.isfile()}
    docker("rm", container)
    docker("rmi", image)
    rules = IgnoreRules(text)
    assert inside & set(TREE) == {name for name in TREE if not rules.ignores(name)}
