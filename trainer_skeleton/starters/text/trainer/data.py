"""The data: sentences, and which library's documentation they are from."""

from pathlib import Path

from distlaunch_trainer import Csv

# A folder beside the trainer; in the cloud "gs://my-bucket/text" or "/gcs/my-bucket/text".
DATA = f"{Path(__file__).resolve().parents[1]}/data"
CLASSES = ("keras", "tensorflow", "google-cloud")


def training() -> Csv:
    """Return the examples to train on."""
    return read("train")


def validation() -> Csv | None:
    """Return the examples to validate on after each epoch, or None."""
    return read("validation")


def read(name: str) -> Csv:
    """Return the examples of a file: ``{"text": ...}`` of shape (n, 1), and their classes."""
    path = f"{DATA}/{name}.tsv"
    return Csv(path, label="source", columns=["text"], classes=CLASSES, delimiter="\t")
