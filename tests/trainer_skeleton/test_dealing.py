"""Warnings and errors about the data before the training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from trainer.distributed.cluster import Role, Team
from trainer.distributed.dealing import Dealer
from trainer.distributed.errors import PlanError
from trainer.distributed.input import Records
from trainer.distributed.settings import Settings
from trainer.task import parser

if TYPE_CHECKING:
    from pathlib import Path


def warnings_of(training: Path, validation: Path | None = None) -> list[str]:
    """Open the files in folders as a run does; return its warnings."""

    def records(folder: Path | None) -> Records | None:
        return folder and Records(f"{folder}/*.tfrecord", parse=lambda record: record)

    warnings: list[str] = []
    Dealer(
        Settings(**vars(parser().parse_args([]))),
        SimpleNamespace(training=lambda: records(training), validation=lambda: records(validation)),
        Team(Role(), tf.distribute.get_strategy()),
        str(training),
        SimpleNamespace(warn=warnings.append),
    ).deal(None)
    return warnings


def write(folder: Path, *counts: int) -> Path:
    folder.mkdir()
    for number, count in enumerate(counts):
        with tf.io.TFRecordWriter(f"{folder}/{number}.tfrecord") as writer:
            for _ in range(count):
                writer.write(b"x")
    return folder


def test_empty_files_among_others_are_a_warning(tmp_path):
    assert warnings_of(write(tmp_path / "whole", 1, 40)) == []
    training = write(tmp_path / "training", 1, 0, 1200, 0, 0, 0)
    validation = write(tmp_path / "validation", 0, 5)
    assert warnings_of(training, validation) == [
        f"4 of 6 files are empty ({training}/1.tfrecord, {training}/3.tfrecord, "
        f"{training}/4.tfrecord and 1 more): the others hold 1,201 examples",
        f"1 of 2 files is empty ({validation}/0.tfrecord): the others hold 5 examples",
    ]


def test_empty_files_alone_are_an_error(tmp_path):
    with pytest.raises(PlanError, match=r"^there are no examples to train on"):
        warnings_of(write(tmp_path / "training", 0, 0))
