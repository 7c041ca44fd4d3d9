from __future__ import annotations

import json
import shutil
import tempfile
import threading
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import StorageError
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving import checkpoints as checkpoint_files
from distlaunch_trainer.saving.checkpoints import Checkpoint, Checkpoints
from distlaunch_trainer.training_state import Progress, RunOptions, TrainingState

MODEL = {"model": "Sequential", "optimizers": {"optimizer": "Adam"}}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def checkpoints_in(folder):
    return Checkpoints(str(folder), Report(Role(), "logs"))


def state_at(step):
    history = [{"epoch": 1, "logs": {"loss": 0.5}}]
    options = RunOptions(100, 10, 12, 0, 100, 10, "float32", 1e-3)
    return TrainingState(options, Progress(step, history))


def checkpoint_at(step, size=3):
    return Checkpoint(state_at(step), MODEL, {"dense/kernel": np.full(size, step, np.float32)})


def write(checkpoints, *steps, size=3):
    for step in steps:
        checkpoints.save(checkpoint_at(step, size))
        checkpoints.wait()


def save(folder, *steps):
    write(checkpoints_in(folder), *steps)


def latest_step(folder):
    latest = checkpoints_in(folder).latest()
    if latest is None:
        return None
    step = latest.state.progress.step
    assert latest.state == state_at(step)
    assert latest.model == MODEL
    assert latest.values.keys() == {"dense/kernel"}
    np.testing.assert_array_equal(latest.values["dense/kernel"], np.full(3, step, np.float32))
    return step


def names(folder):
    return sorted(path.name.replace("step-000000", "") for path in folder.iterdir())


def test_values_are_read_as_they_were_saved(folder):
    values = {
        "dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
        "file": np.array(3, np.int64),
        "dense/kernel#2": np.array([0.1, -2.5, 1e30], ml_dtypes.bfloat16),
        "scale": np.array(0.5, ml_dtypes.bfloat16),
        "quantized": np.array([-128, 127], np.int8),
        "float8": np.array([0.5, -448], ml_dtypes.float8_e4m3fn),
        "mask": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float16),
    }
    checkpoints = checkpoints_in(folder)
    checkpoints.save(Checkpoint(state_at(7), MODEL, values))
    checkpoints.wait()
    restored = checkpoints_in(folder).latest().values
    for name, expected in values.items():
        assert (restored[name].dtype, restored[name].shape) == (expected.dtype, expected.shape)
        assert restored[name].tobytes() == expected.tobytes()


def test_the_latest_three_are_kept(folder):
    save(folder, 5, 10, 15, 20, 25)
    assert names(folder) == ["15", "20", "25"]
    assert latest_step(folder) == 25


def test_a_step_that_is_saved_again_is_whole_all_the_time(folder, monkeypatch):
    save(folder, 5, 10)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_files, "write_whole", lambda *_: pytest.fail("killed here"))
        with pytest.raises(pytest.fail.Exception):
            save(folder, 10)
    assert latest_step(folder) == 10
    save(folder, 10)
    assert names(folder) == ["05", "10-3"]
    save(folder, 10, 15)
    assert names(folder) == ["05", "10-4", "15"]
    assert latest_step(folder) == 15


def test_a_checkpoint_of_another_run_is_not_overwritten(folder):
    checkpoints = checkpoints_in(folder)
    assert checkpoints.latest() is None
    save(folder, 5)
    with pytest.raises(StorageError, match=r"^cannot write .*/step-00000005: File exists$"):
        write(checkpoints, 5)
    assert latest_step(folder) == 5


def test_damaged_checkpoints_are_removed_first(folder):
    save(folder, 5, 10, 15)
    for step in (10, 15):
        flip(folder / f"step-000000{step}")
    checkpoints = checkpoints_in(folder)
    assert checkpoints.latest().state.progress.step == 5
    write(checkpoints, 7)
    assert names(folder) == ["05", "07", "15"]
    write(checkpoints, 9)
    assert names(folder) == ["05", "07", "09"]
    assert latest_step(folder) == 9


def test_an_unwait_at_mosted_save_is_no_checkpoint(folder, capsys):
    assert latest_step(folder) is None
    assert latest_step(folder / "nothing") is None
    save(folder, 5, 10)
    (folder / "step-00000010" / "checkpoint.json").unlink()
    (folder / ".partial-abc").mkdir()
    assert latest_step(folder) == 5
    assert capsys.readouterr().err == ""


def flip(place):
    path = place / "values.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_manifest(place, **changes):
    path = place / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGES = {
    "a bit flipped": flip,
    "values missing": lambda place: (place / "values.npz").unlink(),
    "manifest cut off": lambda place: (place / "checkpoint.json").write_text('{"state": {'),
    "manifest a list": lambda place: (place / "checkpoint.json").write_text("[]"),
    "manifest binary": lambda place: (place / "checkpoint.json").write_bytes(b"\xff\xfe\0"),
    "another state": lambda place: change_manifest(place, state={"steps": 1}),
    "another model": lambda place: change_manifest(place, model={"model": "Functional"}),
    "more values": lambda place: change_manifest(place, types={"a": "float32", "b": "float32"}),
    "types of another kind": lambda place: change_manifest(place, types=[3]),
    "values of another checkpoint": lambda place: shutil.copy(
        place.parent / "step-00000005/values.npz", place
    ),
    "no checksum": lambda place: change_manifest(place, sha256=None),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(folder, capsys, damage):
    save(folder, 5, 10)
    damage(folder / "step-00000010")
    assert latest_step(folder) == 5
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("trainer: warning: ")
    assert str(folder / "step-00000010") in warning
    assert warning.endswith("; trying the checkpoint before it")


@given(st.sampled_from(["values.npz", "checkpoint.json"]), st.data())
def test_no_flip_and_no_cut_of_a_file_is_read_as_another_state(name, data):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save(folder, 5, 10)
        path = folder / "step-00000010" / name
        content = path.read_bytes()
        position = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            path.write_bytes(content[:position])
            assert latest_step(folder) == 5
            return
        byte = bytes([data.draw(st.integers(0, 255))])
        path.write_bytes(content[:position] + byte + content[position + 1 :])
        is_same = byte == content[position : position + 1]
        # Spaces between the values of JSON mean nothing.
        assert latest_step(folder) in ({10} if is_same else {5, 10})


def test_damaged_checkpoints_alone_are_an_error(folder):
    save(folder, 5)
    flip(folder / "step-00000005")
    with pytest.raises(StorageError, match=r"is damaged: --no-resume starts from scratch$"):
        latest_step(folder)


@pytest.mark.parametrize("version", [1, 2])
def test_checkpoint_of_another_format_is_refused(folder, version):
    save(folder, 5, 10)
    path = folder / "step-00000010/checkpoint.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]  # formats below 4 had none
    # Format 1 had no version.
    path.write_text(json.dumps(manifest | {"format": 2} if version > 1 else {"progress": {}}))
    with pytest.raises(StorageError) as refused:
        latest_step(folder)
    assert str(refused.value) == (
        f"the checkpoint {path.parent} has format {version}, this trainer reads format 5: "
        f"resume with the version of distlaunch that wrote it, or --no-resume to start from scratch"
    )


def test_clear_removes_all_checkpoints_and_nothing_else(folder):
    save(folder, 5, 10)
    (folder / "notes").write_text("mine")
    checkpoints_in(folder).clear()
    assert names(folder) == ["notes"]


@pytest.fixture
def gate(monkeypatch):
    """The values of a checkpoint are written when this is set."""
    opened, write_values = threading.Event(), checkpoint_files._write_values

    def wait(place, values):
        assert opened.wait(60)
        return write_values(place, values)

    monkeypatch.setattr(checkpoint_files, "_write_values", wait)
    return opened


def begin(checkpoints, step=5):
    checkpoints.save(checkpoint_at(step))


@pytest.mark.parametrize(("last_took", "is_waited_for"), [(0.0, True), (9.0, False)])
def test_training_continues_during_a_long_write(
    folder, gate, monkeypatch, last_took, is_waited_for
):
    checkpoints = checkpoints_in(folder)
    checkpoints._seconds = last_took
    waits = []
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "wait_at_most", waits.append)
        begin(checkpoints)
    assert bool(waits) == is_waited_for
    assert not checkpoints.wait_at_most(0)
    assert latest_step(folder) is None
    gate.set()
    checkpoints.wait()
    assert latest_step(folder) == 5


def test_one_write_at_most_is_under_way(folder, gate):
    checkpoints = checkpoints_in(folder)
    begin(checkpoints)
    threading.Timer(0.2, gate.set).start()
    begin(checkpoints, 10)
    assert "05" in names(folder)
    checkpoints.wait()


def test_an_error_ends_the_run_after_the_write_under_way(folder, gate):
    def run():
        with checkpoints_in(folder) as checkpoints:
            begin(checkpoints)
            threading.Timer(0.2, gate.set).start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert latest_step(folder) == 5


def test_a_write_that_hangs_or_fails_is_not_waited_for(folder, gate, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "_LAST_WRITE_SECONDS", 0.1)
    with checkpoints_in(folder) as checkpoints:
        begin(checkpoints)
    shutil.rmtree(folder / "step-00000005")
    folder.joinpath("step-00000005").write_text("in the way")
    gate.set()
    assert checkpoints.wait_at_most(60)
    with pytest.raises(StorageError):
        checkpoints.wait()


def test_writing_takes_no_second_copy(folder):
    checkpoints = checkpoints_in(folder)
    values = {name: np.zeros(25 << 20, np.uint8) for name in "abcd"}
    tracemalloc.start()
    try:
        checkpoints.save(Checkpoint(state_at(5), MODEL, values))
        checkpoints.wait()
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_full_disk_is_reported_and_leaves_the_checkpoint_before(small_disk):
    save(small_disk, 5)
    with pytest.raises(StorageError) as failed:
        write(checkpoints_in(small_disk), 10, size=1 << 19)
    assert str(failed.value) == f"cannot write {small_disk}/step-00000010: No space left on device"
    assert names(small_disk) == ["05"]
    save(small_disk, 15)
    assert latest_step(small_disk) == 15
