"""Bad input to the trainer: one line that names the place and the remedy, and an exit code."""

import os
import subprocess
import sys
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


def no_such_files(project):
    project.replace(DATA, "train-*", "trian-*")


def failing_parse(project):
    project.replace(DATA, '"label": tf.io.FixedLenFeature', '"lable": tf.io.FixedLenFeature')
    project.replace(DATA, 'examples["label"]', 'examples["lable"]')


def broken_parse(project):
    project.replace(DATA, "(-1, 8, 8, 1))", "(-1, 8, 8, 1)) + no_such_name")


def wrong_shape(project):
    project.replace(DATA, "(-1, 8, 8, 1))", "(-1, 4, 16, 1))")


def not_finite(project):
    project.replace(MODEL, "Adam(4e-3)", "SGD(1e9)")


def not_compiled(project):
    project.replace(MODEL, "    model.compile(", "    dict(")


def not_a_model(project):
    project.replace(MODEL, "    return model", "    return 3")


def failing_model(project):
    project.replace(MODEL, "keras.layers.Flatten()", "keras.layers.Flaten()")


def own_train_step(project):
    own = (
        "class Own(keras.Sequential):\n    def train_step(self, data):\n        raise RuntimeError"
    )
    project.replace(MODEL, "def create_model()", f"{own}\n\n\ndef create_model()")
    project.replace(MODEL, "keras.Sequential(\n", "Own(\n")


def one_callback(project):
    project.replace(MODEL, "return []", "return keras.callbacks.TerminateOnNaN()")


def tuple_for_data(project):
    project.replace(DATA, TRAINING, "return [1], [2]")


def list_for_array(project):
    project.replace(DATA, "import Records", "import Arrays, Records")
    project.replace(DATA, TRAINING, "return Arrays([1])")


def too_few_classes(project):
    project.replace(MODEL, "Dense(10)", "Dense(5)")


def syntax_error(project):
    project.replace(MODEL, "def create_model()", "def create_model(")


def nothing(project):
    pass


CASES = [
    (cut_off, (), f"{TRAIN} is cut off: record 400 should end at byte"),
    (spoil_length, (), f"{TRAIN} is damaged at byte 0 (record 0): the length's checksum"),
    (spoil_record, (), f"{TRAIN} is damaged at record 0 (byte 0)"),
    (empty_files, (), "there are no examples to train on"),
    (no_such_files, (), "trian-*.tfrecord: see trainer/data.py"),
    (failing_parse, (), "parse failed on record 0 of"),
    (broken_parse, (), "name 'no_such_name' is not defined (trainer/data.py, line 32)"),
    (wrong_shape, (), "the model does not take what trainer/data.py gives"),
    (not_finite, (), "the loss is not finite at step"),
    (not_compiled, (), "is not compiled: end it with model.compile("),
    (not_a_model, (), "create_model() in trainer/model.py returned int"),
    (failing_model, (), "has no attribute 'Flaten' (trainer/model.py, line 13)"),
    (too_few_classes, (), "Received a label value of"),
    (syntax_error, (), "modules failed: SyntaxError: invalid syntax (trainer/model.py, line"),
    (own_train_step, (), "Own.train_step() of trainer/model.py would not be called"),
    (one_callback, (), "callbacks() in trainer/model.py has to return a list of Keras callbacks"),
    (tuple_for_data, (), "training() in trainer/data.py returned tuple: return Records(...)"),
    (list_for_array, (), "Arrays takes arrays, and x is a list: give np.asarray(x)"),
    (nothing, ("--shards", "0"), "--shards: must be 1 or more, got 0"),
    (nothing, ("--batch-size", "0"), "--batch-size: must be 1 or more, got 0"),
    (nothing, ("--job-dir", "/proc/none"), "cannot write the folder /proc/none"),
    (nothing, ("--no-such-option",), "unrecognized arguments: --no-such-option"),
]


@pytest.mark.parametrize(("spoil", "options", "told"), CASES)
def test_one_line_tells_what_is_wrong(project, spoil, options, told):
    spoil(project)
    options = ("--epochs=2", "--job-dir=job", *options)
    result = project.trainer(*options)
    assert result.code == (2 if told.startswith(("--", "unrec")) else 1), result.text
    errors = [line for line in result.err.splitlines() if line.startswith("trainer: error: ")]
    assert len(errors) == 1, result.text
    assert told in errors[0]
    assert "Traceback" not in result.text


def test_tf_config_that_is_not_json(project):
    result = project.trainer("--job-dir=job", TF_CONFIG="{'cluster': 1}")
    assert result.code == 1
    assert "trainer: error: TF_CONFIG is not JSON" in result.err
    assert "Traceback" not in result.text


def test_traceback_is_shown_when_it_is_asked_for(project):
    """The launcher's `--debug` is the trainer's too."""
    not_compiled(project)
    done = subprocess.run(
        [sys.executable, "-m", "distlaunch", "--debug", "local", "--workers", "1"],
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stdout
    assert "trainer: error: the model that create_model()" in done.stdout


def test_damaged_record_is_named_by_the_cluster_too(project):
    spoil_record(project)
    result = project.local("job", "--workers", "2")
    assert result.code == 1, result.text
    assert f"{TRAIN} is damaged at record 0 (byte 0)" in result.text
    assert "chief failed with exit code 1" in result.text
    assert "Traceback" not in result.text


def test_more_workers_than_examples(regression):
    regression_data = (regression.folder / DATA).read_text()
    regression.replace(DATA, "_arrays(121, 1)", "_arrays(1, 1)")
    try:
        result = regression.local("few", "--workers", "2")
    finally:
        regression.write(DATA, regression_data)
    assert result.code == 1
    assert "2 replicas are more than the 1 examples: use 1 or fewer" in result.text


def test_cluster_size_that_does_not_divide_the_shards(regression):
    result = regression.local("odd", "--workers", "2", "--", "--shards=9")
    assert result.code == 1
    assert "do not divide the 9 logical shards: use 1, 3, 9 replicas" in result.text


def test_last_good_checkpoint_is_kept_when_the_loss_is_not_finite(regression):
    assert regression.local("nan", "--workers", "1", "--", "--epochs=1").code == 0
    before = {
        path.name: zlib.crc32((path / "values.npz").read_bytes())
        for path in (regression.folder / "nan/checkpoints").iterdir()
    }
    result = regression.local("nan", "--workers", "1", "--", "--learning-rate=1e38")
    assert result.code == 1
    assert "the loss is not finite at step" in result.text
    after = {
        path.name: zlib.crc32((path / "values.npz").read_bytes())
        for path in (regression.folder / "nan/checkpoints").iterdir()
    }
    assert before.items() <= after.items()


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
    assert result.code == 1
    errors = [line for line in result.err.splitlines() if line.startswith("trainer: error: ")]
    assert len(errors) == 1, result.text
    assert "cannot write" in errors[0]
    assert "No space left on device" in errors[0]
    assert not list(small_disk.rglob("*partial*"))


def test_steps_of_the_users_own_are_called_out(project):
    few = project.trainer("--epochs=1", "--batch-size=64", "--steps-per-epoch=11", "--job-dir=a")
    assert few.code == 0
    assert "covers 48 % of the 1,437 examples and leaves 733 to the next epoch" in few.err
    many = project.trainer("--epochs=1", "--batch-size=64", "--steps-per-epoch=46", "--job-dir=b")
    assert many.code == 0
    assert "sees each example 2.0 times" in many.err
