"""A project's files as a layer: no file is lost or changed, the same files give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distlaunch.errors import ImageError
from distlaunch.image.context import Context, ContextFile
from distlaunch.image.layers import code_layer

words = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda word: word not in (".", "..") and not word.startswith(".wh."))
paths = st.lists(words, min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(
    paths, st.tuples(st.binary(max_size=3000), st.sampled_from([0o644, 0o755])), max_size=6
).filter(lambda tree: not any(a != b and b.startswith(f"{a}/") for a in tree for b in tree))


def context_of(folder, tree):
    """Write files and return the context that they are."""
    files = []
    for path, (content, mode) in sorted(tree.items(), key=lambda each: each[0].encode()):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        files.append(ContextFile(path, mode, len(content), hashlib.sha256(content).hexdigest()))
    return Context(folder, tuple(files), "digest", sum(each.size for each in files))


def entries(layer):
    with tarfile.open(layer.file) as tar:
        return {
            each.name: (each.type, each.mode, each.isreg() and tar.extractfile(each).read())
            for each in tar
        }


@settings(max_examples=60)
@given(trees)
@example({"ü\n'\"\\ $(x)": (b"1", 0o644), "a" * 250: (b"", 0o755)})
def test_files_are_packed_unchanged(tree):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layer = code_layer(context_of(folder / "in", tree), folder / "layer")
        added = entries(layer)
        packed = layer.file.read_bytes()
    plain = gzip.decompress(packed)
    assert layer.digest == f"sha256:{hashlib.sha256(packed).hexdigest()}"
    assert layer.diff_id == f"sha256:{hashlib.sha256(plain).hexdigest()}"
    assert layer.size == len(packed)
    files = {path: each for path, each in added.items() if each[0] == tarfile.REGTYPE}
    assert files == {
        f"app/{path}": (tarfile.REGTYPE, mode, content) for path, (content, mode) in tree.items()
    }
    folders = {str(above) for path in tree for above in Path("app", path).parents} - {"."}
    assert {p for p, each in added.items() if each[0] == tarfile.DIRTYPE} == folders | {"app"}
    assert all(each[1] == 0o755 for each in added.values() if each[0] == tarfile.DIRTYPE)


def test_folders_have_their_modes_also_without_files_and_those_above_the_root_none(tmp_path):
    context = context_of(tmp_path / "in", {"a/b": (b"", 0o644)})
    folders = [ContextFile(*each, is_folder=True) for each in (("a", 0o755), ("logs", 0o777))]
    context = replace(context, folders=tuple(folders))
    added = entries(code_layer(context, tmp_path / "layer", root="/opt/my/code/"))
    assert {path: each[1] for path, each in added.items()} == {
        "opt/my/code": 0o755,
        "opt/my/code/a": 0o755,
        "opt/my/code/a/b": 0o644,
        "opt/my/code/logs": 0o777,
    }


def test_the_same_files_give_the_same_bytes_in_every_release(tmp_path):
    """A tar that changes with Python or with us would be sent again by every user."""
    tree = {"trainer/__init__.py": (b"", 0o644), "ü/run.sh": (b"echo\n", 0o755)}
    layer = code_layer(context_of(tmp_path / "in", tree), tmp_path / "layer")
    assert layer.diff_id == DIFF_ID
    tree = {"a/b": (b"1" * 10_000, 0o755), "c": (os.urandom(3_000_000), 0o644)}
    first = code_layer(context_of(tmp_path / "one", tree), tmp_path / "first")
    context = context_of(tmp_path / "other", tree)
    for file in (tmp_path / "other").rglob("*"):
        os.utime(file, (1, 1))
    second = code_layer(context, tmp_path / "second")
    assert (first.digest, first.diff_id) == (second.digest, second.diff_id)


DIFF_ID = "sha256:3b03a33e73627178fc9abb9a9e6bc80ca39a6fadad54b9fcdf8953aef063da2f"


@pytest.mark.parametrize("content", [b"1234", b"124", None])
def test_a_file_that_changes_meanwhile_is_an_error(tmp_path, content):
    context = context_of(tmp_path / "in", {"a/b": (b"123", 0o644)})
    file = tmp_path / "in/a/b"
    file.unlink() if content is None else file.write_bytes(content)
    reason = "no such file or directory" if content is None else "its content differs"
    with pytest.raises(ImageError) as caught:
        code_layer(context, tmp_path / "layer")
    assert str(caught.value) == (
        f"a/b: changed while it was added to the image ({reason}); "
        "try again when nothing writes to it"
    )
