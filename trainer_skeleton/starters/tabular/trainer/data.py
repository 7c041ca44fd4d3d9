"""The data: CSV files of penguins, whose species is to be found."""

from pathlib import Path

from distlaunch_trainer import Csv

# A folder beside the trainer; in the cloud "gs://my-bucket/penguins" or "/gcs/my-bucket/penguins".
DATA = f"{Path(__file__).resolve().parents[1]}/data"

SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
TEXTS = ["island", "sex"]


def training() -> Csv:
    """Return the examples to train on."""
    return csv("train.csv")


def validation() -> Csv:
    """Return the examples to validate on after each epoch."""
    return csv("validation.csv")


def csv(name: str) -> Csv:
    """Return rows as a dict of columns, and the number of the species."""
    types = dict.fromkeys(NUMBERS, "float32")
    return Csv(f"{DATA}/{name}", "species", [*NUMBERS, *TEXTS], types, classes=SPECIES)
