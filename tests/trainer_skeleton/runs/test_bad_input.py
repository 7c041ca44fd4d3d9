"""Bad input to the trainer: one line with the location and the remedy, and an exit code."""

import os
import subprocess
import zlib

import pytest

pytestmark = pytest.mark.slow

MODEL, DATA = "trainer/model.py", "trainer/data.py"
TRAIN = "data/train-00000-of-00005.tfrecord"
TRAINING = 'return Records(f"{DATA}/train-*.tfrecord", parse_batch=parse)'


def cut_off(project):
    path = project.folder / TRAIN
    path.write_bytes(path.read_bytes()[:-7])


def spoil_length(project):
    _flip(project.folder / TRAIN, 0)


def spoil_record(project):
    _flip(project.folder / TRAIN, 40)


def _flip(path, byte):
    data = bytearray(path.read_bytes())
    data[byte] ^= 0xFF
    path.write_bytes(data)


def empty_files(project):
    for path in (project.folder / "data").glob("train-*"):
        path.write_bytes(b"")


def replaced(name, *changes):
    """Return a function that replaces text in a file of the project."""

    def change(project):
        for old, new in changes:
            project.replace(name, old, new)

    return change


OWN_TRAIN_STEP = """\
class Own(keras.Sequential):
    def train_step(self, data):
        raise RuntimeError


def create_model()"""
SHAPE, OTHER_SHAPE = "(-1, 8, 8, 1))", "(-1, 4, 16, 1))"

not_compiled = replaced(MODEL, ("    model.compile(", "    dict("))


CASES = {
    f"{TRAIN} is cut off: record 400 should end at byte": cut_off,
    f"{TRAIN} is damaged at byte 0 (record 0): the length's checksum": spoil_length,
    f"{TRAIN} is damaged at record 0 (byte 0)": spoil_record,
    "there are no examples to train on": empty_files,
    "trian-*.tfrecord: see trainer/data.py": replaced(DATA, ("train-*", "trian-*")),
    "parse failed on record 0 of": replaced(
        DATA,
        ('"label": tf.io.FixedLenFeature', '"lable": tf.io.FixedLenFeature'),
        ('examples["label"]', 'examples["lable"]'),
    ),
    "name 'no_such_name' is not defined (trainer/data.py, line 32)": replaced(
        DATA, (SHAPE, f"{SHAPE} + no_such_name")
    ),
    "the model does not take what trainer/data.py gives": replaced(
        DATA, (SHAPE, "(-1, 4, 16, 1))")
    ),
    "is not compiled: end it with model.compile(": not_compiled,
    "create_model() in trainer/model.py returned int": replaced(
        MODEL, ("    return model", "    return 3")
    ),
    "has no attribute 'Flaten' (trainer/model.py, line 13)": replaced(
        MODEL, ("keras.layers.Flatten()", "keras.layers.Flaten()")
    ),
    "Received a label value of": replaced(MODEL, ("Dense(10)", "Dense(5)")),
    "modules failed: SyntaxError: invalid syntax (trainer/model.py, line": replaced(
        MODEL, ("def create_model()", "def create_model(")
    ),
    "Own.train_step() of trainer/model.py would not be called": replaced(
        MODEL, ("def create_model()", OWN_TRAIN_STEP), ("keras.Sequential(\n", "Own(\n")
    ),
    "callbacks() in trainer/model.py has to return a list of Keras callbacks": replaced(
        MODEL, ("return []", "return keras.callbacks.TerminateOnNaN()")
    ),
    "training() in trainer/data.py returned tuple: return Records(...)": replaced(
        DATA, (TRAINING, "return [1], [2]")
    ),
    "Arrays takes arrays, and x is a list: give np.asarray(x)": replaced(
        DATA, ("import Records", "import Arrays, Records"), (TRAINING, "return Arrays([1])")
    ),
}


@pytest.mark.parametrize(("message", "spoil"), CASES.items(), ids=range(len(CASES)))
def test_one_line_with_the_error(project, message, spoil):
    spoil(project)
    result = project.trainer("--epochs=2", "--job-dir=job")
    assert_one_error(result, message)


def assert_one_error(result, message):
    assert result.code == 1, result.text
    errors = [line for line in result.err.splitlines() if line.startswith("trainer: error: ")]
    assert len(errors) == 1, result.text
    assert message in errors[0]
    assert "Traceback" not in result.text


def test_job_folder_that_cannot_be_written(project):
    assert_one_error(project.trainer("--job-dir=/proc/none"), "cannot write the folder /proc/none")


def test_tf_config_that_is_not_json(project):
    result = project.trainer("--job-dir=job", TF_CONFIG="{'cluster': 1}")
    assert_one_error(result, "TF_CONFIG is not JSON")


def test_debug_of_the_launcher_shows_the_traceback(project):
    not_compiled(project)
    result = project.run("distlaunch", "--debug", "local", "--workers", "1")
    assert result.code == 1
    assert "Traceback (most recent call last)" in result.out
    assert "trainer: error: the model that create_model()" in result.out


def test_damaged_record_is_named_by_the_cluster_too(project):
    spoil_record(project)
    result = project.local("job", "--workers", "2")
    assert result.code == 1, result.text
    assert f"{TRAIN} is damaged at record 0 (byte 0)" in result.text
    assert "chief failed with exit code 1" in result.text
    assert "Traceback" not in result.text


def test_last_good_checkpoint_is_kept_when_the_loss_is_not_finite(regression):
    assert regression.trainer("--job-dir=nan", "--epochs=1").code == 0
    before = checksums(regression.folder / "nan/checkpoints")
    result = regression.trainer("--job-dir=nan", "--learning-rate=1e38")
    assert_one_error(result, "the loss is not finite at step")
    assert before.items() <= checksums(regression.folder / "nan/checkpoints").items()


def checksums(folder):
    return {path.name: zlib.crc32((path / "values.npz").read_bytes()) for path in folder.iterdir()}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 kB, for real."""
    if os.geteuid() != 0:
        pytest.skip("MOUNTING A SMALL DISK NEEDS ROOT: .ci/run runs this test as root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_full_disk(project, small_disk):
    result = project.trainer("--epochs=2", f"--job-dir={small_disk}/job")
    assert_one_error(result, "cannot write")
    assert "No space left on device" in result.err
    assert not list(small_disk.rglob("*partial*"))


def test_steps_that_do_not_cover_the_data_are_a_warning(project):
    result = project.trainer("--epochs=1", "--batch-size=64", "--steps-per-epoch=11", "--job-dir=a")
    assert result.code == 0
    assert "covers 48 % of the 1,437 examples and leaves 733 to the next epoch" in result.err
