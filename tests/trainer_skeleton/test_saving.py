from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from trainer.distributed import saving
from trainer.distributed.cluster import Role
from trainer.distributed.errors import StorageError
from trainer.distributed.report import Report
from trainer.distributed.saving import Checkpoints, Progress, save_model

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(3, np.int64),
    np.array([0.1, -2.5, 1e30], ml_dtypes.bfloat16),
    np.array(0.5, ml_dtypes.bfloat16),
    np.array([True, False]),
    np.array([[1.5]], np.float16),
    np.zeros((0, 3), np.float64),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def checkpoints_in(folder: Path) -> Checkpoints:
    return Checkpoints(str(folder), Report(Role(), "logs"))


def progress_at(step: int) -> Progress:
    history = [{"epoch": 1, "logs": {"loss": 0.5}}]
    return Progress(step, 100, 10, 12, 0, 100, 10, "float32", 1e-3, history)


def save(folder: Path, *steps: int) -> None:
    checkpoints = checkpoints_in(folder)
    for step in steps:
        checkpoints.save(progress_at(step), [np.full(3, step, np.float32)])
    checkpoints.wait()


def newest_step(folder: Path) -> int | None:
    found = checkpoints_in(folder).newest()
    if found is None:
        return None
    progress, values = found
    assert progress == progress_at(progress.step)
    np.testing.assert_array_equal(values, [np.full(3, progress.step, np.float32)])
    return progress.step


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_found(folder):
    checkpoints = checkpoints_in(folder)
    checkpoints.save(progress_at(7), VALUES)
    checkpoints.wait()
    progress, values = checkpoints_in(folder).newest()
    assert progress == progress_at(7)
    for value, expected in zip(values, VALUES, strict=True):
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        assert value.tobytes() == expected.tobytes()


def test_the_newest_three_are_kept(folder):
    save(folder, 5, 10, 15, 20, 25)
    assert names(folder) == ["step-00000015", "step-00000020", "step-00000025"]
    assert newest_step(folder) == 25


def test_a_step_that_is_saved_again_is_whole_all_the_time(folder, monkeypatch):
    save(folder, 5, 10)
    with monkeypatch.context() as patch:
        patch.setattr(saving, "publish", lambda *_, **__: pytest.fail("killed here"))
        with pytest.raises(pytest.fail.Exception):
            save(folder, 10)
    assert newest_step(folder) == 10
    save(folder, 10)
    assert names(folder) == ["step-00000005", "step-00000010-2"]
    save(folder, 10, 15)
    assert names(folder) == ["step-00000005", "step-00000010-3", "step-00000015"]
    assert newest_step(folder) == 15


def test_steps_beyond_eight_digits_are_still_the_newest(folder):
    save(folder, 99_999_999, 100_000_000)
    assert newest_step(folder) == 100_000_000


def test_nothing_is_found_where_nothing_is(folder):
    assert newest_step(folder) is None
    assert newest_step(folder / "nothing") is None


def test_an_unfinished_save_is_no_checkpoint(folder, capsys):
    save(folder, 5, 10)
    (folder / "step-00000010" / "checkpoint.json").unlink()
    (folder / ".partial-abc").mkdir()
    assert newest_step(folder) == 5
    assert capsys.readouterr().err == ""


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_manifest(place: Path, **changes: object) -> None:
    path = place / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "values cut off": lambda place: (place / "values.npz").write_bytes(
        (place / "values.npz").read_bytes()[:-10]
    ),
    "values empty": lambda place: (place / "values.npz").write_bytes(b""),
    "a bit flipped": lambda place: flip(place / "values.npz"),
    "values missing": lambda place: (place / "values.npz").unlink(),
    "manifest cut off": lambda place: (place / "checkpoint.json").write_text('{"progress": {'),
    "manifest empty": lambda place: (place / "checkpoint.json").write_text(""),
    "manifest a list": lambda place: (place / "checkpoint.json").write_text("[]"),
    "manifest binary": lambda place: (place / "checkpoint.json").write_bytes(b"\xff\xfe\0"),
    "progress of another version": lambda place: change_manifest(place, progress={"steps": 1}),
    "more values told than there": lambda place: change_manifest(place, types=["float32"] * 2),
    "types of another kind": lambda place: change_manifest(place, types=[3]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(folder, capsys, damage):
    save(folder, 5, 10)
    damage(folder / "step-00000010")
    assert newest_step(folder) == 5
    told = capsys.readouterr().err
    assert told.startswith("trainer: warning: ")
    assert str(folder / "step-00000010") in told
    assert told.endswith("; trying the checkpoint before it\n")
    assert told.count("\n") == 1


def test_damaged_checkpoints_alone_are_an_error(folder):
    save(folder, 5, 10)
    for place in folder.iterdir():
        flip(place / "values.npz")
    with pytest.raises(StorageError) as refused:
        newest_step(folder)
    assert str(refused.value) == (
        f"every checkpoint in {folder} is damaged: --no-resume starts anew"
    )


def test_clear_removes_all_checkpoints_and_nothing_else(folder):
    save(folder, 5, 10)
    (folder / "notes").write_text("mine")
    checkpoints_in(folder).clear()
    assert names(folder) == ["notes"]


def test_the_event_comes_when_the_checkpoint_is_whole(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLAUNCH_EVENTS", str(tmp_path / "events"))
    save(folder, 5)
    event = json.loads((tmp_path / "events").read_text())
    assert (event["event"], event["step"]) == ("checkpoint", 5)
    assert Path(event["path"], "checkpoint.json").exists()


def test_a_full_disk_is_told_and_leaves_the_checkpoint_before(small_disk):
    save(small_disk, 5)
    checkpoints = checkpoints_in(small_disk)
    checkpoints.save(progress_at(10), [np.zeros(2 << 20, np.uint8)])
    with pytest.raises(StorageError) as failed:
        checkpoints.wait()
    assert str(failed.value) == (
        f"cannot write {small_disk}/step-00000010: No space left on device"
    )
    assert names(small_disk) == ["step-00000005"]
    assert newest_step(small_disk) == 5
    save(small_disk, 15)
    assert newest_step(small_disk) == 15


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own
def test_a_model_loads_without_this_code(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
    )
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = model(x).numpy()
    save_model(model, str(folder))
    assert names(folder) == ["fingerprint.pb", "model.keras", "saved_model.pb", "variables"]
    np.testing.assert_allclose(keras.models.load_model(folder / "model.keras")(x), expected)
    loaded = tf.saved_model.load(str(folder))
    served = loaded.serve(x)
    np.testing.assert_allclose(served, expected, rtol=1e-5, atol=1e-6)


def test_a_model_that_finds_the_disk_full_is_told_in_one_line(small_disk):
    model = keras.Sequential([keras.layers.Input((1000,)), keras.layers.Dense(500)])
    with pytest.raises(StorageError) as failed:
        save_model(model, str(small_disk))
    assert str(small_disk) in str(failed.value)
    assert "\n" not in str(failed.value)
    assert names(small_disk) == []
