"""Ignore files by Docker's rules; the last test compares with Docker itself."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from distlaunch.errors import ImageError
from distlaunch.image.context import read_context
from distlaunch.image.ignore_matcher import IgnoreRules, pattern_for

MATCHES = {
    "file": (["file"], ["a/file"]),
    "folder": (["folder/a/b"], []),
    "/folder": (["folder/a"], []),
    "./folder/../other": (["other"], []),
    "fold": ([], ["folder"]),
    "*": (["a", "a/b"], []),  # the latter by its parent
    "*/b": (["a/b"], []),
    "*/c": ([], ["a/b/c"]),
    "a?": ([], ["a/b"]),
    "a?b": (["a☺b"], []),
    "**/b": (["b", "a/c/b"], ["ab"]),
    "**b": (["ab"], []),  # as Docker has it
    "a/**": (["a/b"], ["a"]),
    "a/**/d": (["a/d"], ["ab/d"]),
    "**/*.pyc": (["a/b/x.pyc"], []),
    "[a-c]x": (["bx"], []),
    "[^a-c]x": (["dx"], []),
    r"a\*b": (["a*b"], ["axb"]),
    r"\!a": (["!a"], []),
    "#a": ([], ["#a"]),
    "a.b": ([], ["axb"]),
    "a(b)|{c}+$": (["a(b)|{c}+$"], []),
    "[[]x": (["[x"], []),
    ".": ([], ["a"]),
    "\ufeffa": (["a"], []),
}


def ignores(rules: IgnoreRules, path: str) -> bool:
    """Return whether a path is ignored, its folders first."""
    ignored, matches = False, rules.root
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        ignored, matches = rules.match("/".join(parts[:end]), matches)
    return ignored


@pytest.mark.parametrize("pattern", MATCHES)
def test_one_pattern(pattern):
    rules = IgnoreRules(pattern)
    matching, others = MATCHES[pattern]
    assert [path for path in (*matching, *others) if ignores(rules, path)] == matching


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
    assert ignores(IgnoreRules("\n".join(lines)), path) is ignored


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
    assert ignores(rules, path)
    assert ignores(rules, f"{path}/below")
    assert not ignores(rules, other)
    assert not ignores(IgnoreRules(f"*\n!{pattern_for(path)}"), path)


@given(lines, plain_paths)
def test_no_folder_with_an_included_file_is_skipped(patterns, parts):
    rules = IgnoreRules("\n".join(f"{sign}{pattern}" for sign, pattern in patterns))
    matches = rules.root
    for end in range(1, len(parts)):
        folder = "/".join(parts[:end])
        ignored, matches = rules.match(folder, matches)
        if ignored and not rules.may_include_below(folder):
            assert ignores(rules, "/".join(parts))


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
    env = {**os.environ, "DOCKER_BUILDKIT": "0"}
    image = engine.docker("build", "--quiet", str(tmp_path), env=env).stdout.strip()
    container = engine.docker("create", image).stdout.strip()
    engine.docker("export", "--output", str(tmp_path / "image.tar"), container)
    with tarfile.open(tmp_path / "image.tar") as tar:
        inside = {member.name: member.isdir() for member in tar}
    engine.docker("rm", container)
    engine.docker("rmi", image)
    allowed = "".join(f"# distlaunch: allow-secret {name}\n" for name in TREE if ".env" in name)
    context = read_context(tmp_path, f"{text}\nimage.tar\n{allowed}")
    files = {file.path for file in context.files}
    assert inside.keys() & set(TREE) == files & set(TREE)
    folders = {str(folder) for name in TREE for folder in Path(name).parents} - {"."}
    parents = {str(folder) for name in files for folder in Path(name).parents} - {"."}
    assert {name for name in folders if inside.get(name)} == parents | {
        folder.path for folder in context.folders
    }
