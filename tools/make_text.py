"""Make the data of the starter `text`: `python tools/make_text.py`.

Takes sentences out of the docstrings of installed packages, all under the Apache License 2.0. Run
it by hand; what it writes is committed, and it writes the same bytes every time from the same
versions.
"""

from __future__ import annotations

import ast
import random
import re
import warnings
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent.parent / "trainer_skeleton" / "starters" / "text" / "data"

# The packages of each class.
SOURCES = {
    "keras": {"keras": "keras/src"},
    "tensorflow": {"tensorflow-cpu": "tensorflow/python"},
    "google-cloud": {
        "google-cloud-aiplatform": "google/cloud/aiplatform",
        "google-cloud-storage": "google/cloud/storage",
        "google-auth": "google/auth",
        "google-api-core": "google/api_core",
    },
}
LEFT_OUT = ("tensorflow/python/keras/", "_test.py", "/tests/")
# By these alone a sentence would be classified.
NAMES = re.compile(r"keras|tensorflow|\btf\b|google|gcs|vertex", re.IGNORECASE)
SENTENCE = re.compile(r"[A-Z][A-Za-z0-9 ,;'()/-]+[.]")
FEWEST_WORDS, MOST_WORDS = 7, 30
TRAINING, VALIDATION = 1700, 300  # sentences of each class


def main() -> None:
    """Write the files and print what they were made from."""
    rows: dict[str, list[str]] = {"train": [], "validation": []}
    seen: set[str] = set()
    for name, packages in SOURCES.items():
        found = sorted(set(sentences_of(packages)) - seen)
        seen |= set(found)
        random.Random(0).shuffle(found)  # noqa: S311 - no secret
        versions = ", ".join(f"{package} {distribution(package).version}" for package in packages)
        print(f"{name}: {len(found):,} sentences of {versions}")
        chosen = found[: TRAINING + VALIDATION]
        assert len(chosen) == TRAINING + VALIDATION
        rows["train"] += [f"{name}\t{text}\n" for text in chosen[:TRAINING]]
        rows["validation"] += [f"{name}\t{text}\n" for text in chosen[TRAINING:]]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for split, lines in rows.items():
        random.Random(1).shuffle(lines)  # noqa: S311
        text = "".join(["source\ttext\n", *lines])
        (FOLDER / f"{split}.tsv").write_text(text, encoding="utf-8")


def sentences_of(packages: dict[str, str]) -> Iterator[str]:
    """Yield the sentences of the docstrings of packages."""
    for package, folder in packages.items():
        for file in distribution(package).files or []:
            path = str(file)
            is_source = path.startswith(f"{folder}/") and path.endswith(".py")
            if is_source and not any(part in path for part in LEFT_OUT):
                yield from sentences_in(Path(file.locate()).read_text(encoding="utf-8"))


def sentences_in(source: str) -> Iterator[str]:
    """Yield the sentences of the docstrings of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in their strings
        tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            for paragraph in re.split(r"\n\s*\n", text):
                for sentence in re.split(r"(?<=[.])\s+(?=[A-Z])", " ".join(paragraph.split())):
                    if is_prose(sentence):
                        yield sentence


def is_prose(sentence: str) -> bool:
    """Return whether this is a sentence of words, which names no package."""
    is_long_enough = FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS
    return bool(is_long_enough and SENTENCE.fullmatch(sentence) and not NAMES.search(sentence))


if __name__ == "__main__":
    main()
