"""The sentences of the starter `text`: as many of each class, none twice, and their licence."""

from __future__ import annotations

from collections import Counter

import pytest

from distlaunch.resources import skeleton

DATA = skeleton() / "starters/text/data"


def rows(name: str) -> list[list[str]]:
    header, *lines = (DATA / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "source\ttext"
    return [line.split("\t") for line in lines]


@pytest.mark.parametrize(("name", "count"), [("train", 1700), ("validation", 300)])
def test_every_class_has_as_many_sentences(name, count):
    classes = Counter(source for source, _ in rows(name))
    assert classes == dict.fromkeys(("keras", "tensorflow", "google-cloud"), count)


def test_no_sentence_is_there_twice():
    sentences = [text for name in ("train", "validation") for _, text in rows(name)]
    assert len(sentences) == len(set(sentences)) == 6000


def test_licence_is_beside_the_data():
    text = (DATA / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert "Apache License 2.0" in text
