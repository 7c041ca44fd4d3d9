"""What tasks other than the chief write and read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from distlaunch_trainer.fit.chief_files import file_of_chief, redirected_writes


class Model:
    """What is redirected of Keras; it writes its name."""

    def save(self, filepath):
        with open(filepath, "w") as file:  # noqa: PTH123 - as Keras does
            file.write("saved")

    def summary(self):
        pass

    def load_weights(self, filepath):
        with open(filepath) as file:  # noqa: PTH123
            return file.read()


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with a link to a file of the project."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/large.keras").write_text("theirs")
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "large.keras").symlink_to(tmp_path / "project/large.keras")
    monkeypatch.chdir(folder)
    # They are replaced for the rest of a process, which here runs other tests.
    monkeypatch.setattr(tempfile, "mkdtemp", tempfile.mkdtemp)
    monkeypatch.setattr(tf.summary, "create_file_writer", tf.summary.create_file_writer)
    monkeypatch.setattr(tf.saved_model, "save", tf.saved_model.save)
    for name in ("ModelCheckpoint", "CSVLogger", "TensorBoard"):
        callback = getattr(keras.callbacks, name)
        monkeypatch.setattr(callback, "__init__", callback.__init__)
    monkeypatch.setattr(Model, "save", Model.save)
    monkeypatch.setattr(Model, "load_weights", Model.load_weights)
    monkeypatch.setattr(Model, "summary", Model.summary)
    return folder


def written(own_folder, path):
    """Return what a task reads from a path before and after it has saved there."""
    model = type("Model", (Model,), dict(vars(Model)))
    callbacks = {
        name: type(name, (), {}) for name in ("ModelCheckpoint", "CSVLogger", "TensorBoard")
    }
    library = SimpleNamespace(
        Model=model,
        callbacks=SimpleNamespace(**callbacks),
        saving=None,
        models=None,
        utils=keras.utils,
    )
    with redirected_writes(library, own_folder):
        try:
            before = model().load_weights(path)
        except FileNotFoundError:
            before = None
        model().save(path)
        return before, model().load_weights(path)


def test_a_folder_of_its_own_has_what_a_task_writes(work):
    assert written(str(work), "new.keras") == (None, "saved")
    assert (work / "new.keras").read_text() == "saved"


def test_what_a_task_writes_for_tensorboard_is_discarded(work):
    """Beside the chief's files, it would be drawn with their curves."""
    library = SimpleNamespace(
        Model=Model, callbacks=keras.callbacks, saving=None, models=None, utils=keras.utils
    )
    with redirected_writes(library, str(work)):
        with tf.summary.create_file_writer("logs").as_default():
            tf.summary.scalar("loss", 1.0, 0)
        assert keras.callbacks.TensorBoard("logs").log_dir != "logs"
    assert not (work / "logs").exists()


def test_a_temporary_folder_of_a_task_has_what_it_writes(work):
    """Also where tasks share the working folder; the names of such folders differ."""
    library = SimpleNamespace(
        Model=Model, callbacks=keras.callbacks, saving=None, models=None, utils=keras.utils
    )
    with redirected_writes(library, None), tempfile.TemporaryDirectory() as folder:
        Model().save(f"{folder}/new.keras")
        assert Path(folder, "new.keras").is_file()
        assert keras.callbacks.TensorBoard(folder).log_dir == folder


def test_a_linked_file_is_read_and_replaced_but_not_changed(work):
    assert written(str(work), "large.keras") == ("theirs", "saved")
    assert (work.parent / "project/large.keras").read_text() == "theirs"
    assert not (work / "large.keras").is_symlink()


@pytest.mark.parametrize("own_folder", [None, "own"])
def test_in_a_shared_folder_a_task_reads_what_it_has_written_elsewhere(work, own_folder):
    path = str(work.parent / "project/large.keras")
    assert written(own_folder and str(work), path) == ("theirs", "saved")
    assert (work.parent / "project/large.keras").read_text() == "theirs"


def test_a_file_that_only_the_chief_has_is_copied(work):
    """In a cluster in which this task is the worker, and gets what the chief broadcasts."""
    rendezvous = SimpleNamespace(exchange=lambda kind, value, waits_for: [True, value])
    cluster = SimpleNamespace(
        rendezvous=rendezvous,
        broadcast_bytes=lambda data: b"theirs",
        role=SimpleNamespace(is_chief=False),
    )
    copy = file_of_chief("missing.keras", cluster)
    with open(copy) as file:  # noqa: PTH123
        assert file.read() == "theirs"
    assert file_of_chief("large.keras", cluster) == "large.keras"
