"""Image references."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference, is_google, is_loopback

DIGEST = "sha256:" + "0123456789abcdef" * 4

words = st.from_regex(r"[a-z0-9]{1,6}((\.|_|__|-{1,3})[a-z0-9]{1,4}){0,2}", fullmatch=True)
hosts = st.from_regex(
    r"(localhost|[a-z0-9]{1,4}(-[a-z0-9]{1,3})?(\.[A-Za-z]{2,4}){1,3}|\[[0-9a-f]{0,4}:[0-9a-f:]{1,6}\])(:[0-9]{1,5})?",
    fullmatch=True,
)
paths = st.lists(words, min_size=1, max_size=4).map("/".join)
tags = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
digests = st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)


@given(st.none() | hosts, paths, st.none() | tags, st.none() | digests)
def test_a_reference_is_printed_as_it_was_parsed(host, path, tag, digest):
    # Without a host, a first word with a dot would be parsed as one.
    path = path if host else path.replace(".", "-")
    text = (f"{host}/" if host else "") + path
    text += (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    read = Reference.parse(text)
    assert str(read) == text
    assert (read.tag, read.digest) == (tag, digest)
    assert read.identifier == (digest or tag or "latest")
    if host is not None:
        assert (read.host, read.path) == (host, path)


@given(st.text(max_size=40))
def test_any_text_is_parsed_unchanged_or_refused(text):
    with contextlib.suppress(ImageError):
        read = Reference.parse(text)
        assert str(read) == text
        assert all(each and each == each.lower() for each in read.path.split("/"))


def test_host_and_path():
    for text, *expected in (
        ("python", "docker.io", "library/python"),
        ("index.docker.io/a/b", "docker.io", "a/b"),
        ("tensorflow/tensorflow:2.21.0", "docker.io", "tensorflow/tensorflow"),
        ("localhost:5000/a:1", "localhost:5000", "a"),
        ("[::1]:5000/a/b", "[::1]:5000", "a/b"),
        (f"gcr.io/a/b@{DIGEST}", "gcr.io", "a/b"),
    ):
        read = Reference.parse(text)
        assert [read.host, read.path] == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a repository is words of"),
        ("https://a.b/c", "'https:' is not a host"),
        ("a.b/C/d", "a repository is lower-case; did you mean 'a.b/c/d'?"),
        ("a//b", "a repository is words of"),
        ("a.b/c:", "a tag is up to 128"),
        ("a:" + "x" * 129, "a tag is up to 128"),
        ("a@sha256:12", "a digest is 'sha256:' and 64 digits"),
        ("a@sha512:" + "0" * 128, "a digest is"),
        ("-a.b/c", "'-a.b' is not a host"),
        ("a.b:port/c", "'a.b:port' is not a host"),
        ("${IMAGE}", "a repository is words of"),
    ],
)
def test_a_malformed_reference(text, problem):
    with pytest.raises(ImageError) as caught:
        Reference.parse(text)
    assert caught.value.args[0].startswith(f"{text!r} is not an image reference: {problem}")


def test_google_and_loopback_registries():
    google = ("us-central1-docker.pkg.dev", "gcr.io")
    others = ("pkg.dev.example.com", "mygcr.io", "10.0.0.1:5000", "127.0.0.1.example.com")
    loopback = ("localhost:1", "127.9.9.9:1", "[::1]:1")
    hosts = (*google, *others, *loopback)
    assert tuple(filter(is_google, hosts)) == google
    assert tuple(filter(is_loopback, hosts)) == loopback
