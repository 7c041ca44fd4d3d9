"""Scripts of `fit` train on two workers to what they train to by themselves, without changes."""

from __future__ import annotations

import io
import json
import re
import zipfile
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest
import tensorflow_host

from ..conftest import environment_outside_clusters  # noqa: TID252
from .conftest import LAWS

if TYPE_CHECKING:
    from tensorflow_host import PythonHost, Result

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "fit_scripts"
HERE = Path(__file__).parent
FAULTY = HERE / "faulty_script.py"
QUICK = {"gan", "custom_train_step", "own_loop"}
OTHER_BATCHES = {"multi_worker_tutorial"}  # its global batch grows with the cluster
TOLERANCE = 1e-6
FIT = "distlaunch_trainer.fit"


def scripts() -> list[str]:
    names = sorted({path.stem for path in FOLDER.glob("*.py")} - OTHER_BATCHES)
    return names if LAWS else sorted(QUICK)


def run_alone(host: PythonHost, script: Path, folder: Path) -> Result:
    """Do what ``python script.py`` does."""
    folder.mkdir(parents=True)
    (folder / script.name).symlink_to(script)
    result = host.run(script.stem, cwd=folder, env=environment_outside_clusters())
    assert result.code == 0, result.text
    return result


def make_project(script: Path, folder: Path, *options: str) -> None:
    """Make a project whose job file names the script, or the module that runs it with options."""
    folder.mkdir()
    (folder / script.name).symlink_to(script)
    words = json.dumps([*options, script.name])
    program = f"module: {FIT}, args: {words}" if options else f"script: {script.name}"
    (folder / "distlaunch.yaml").write_text(
        f"{{name: fit, {program}, cluster: {{chief: {{machine: n1-standard-4}}}}}}\n"
    )


def launch(
    host: PythonHost, folder: Path, *options: str, job: str = "job", code: int = 0, **env: str
) -> Result:
    """Launch a project on two workers, if the options do not change that."""
    environment = environment_outside_clusters() | env
    words = ("--job-dir", job, "--workers", "2", *options)
    result = host.run("distlaunch", "local", *words, cwd=folder, env=environment)
    assert result.code == code, result.text
    return result


def run_on_two(host: PythonHost, script: str, folder: Path, *options: str) -> Result:
    make_project(FOLDER / f"{script}.py", folder, *options)
    return launch(host, folder)


def numbers(text: str) -> dict[str, float]:
    """Return what a script printed as ``name: number`` or ``name number``, on the chief."""
    pairs = re.findall(
        r"^(?:chief +\| )?([A-Za-z_ ]+):? (-?[\d.]+(?:e-?\d+)?)$", text, re.MULTILINE
    )
    return {name: float(number) for name, number in pairs}


def weights(path: Path) -> dict[str, np.ndarray]:
    """Return the weights in a ``.keras`` file by their paths."""
    values: dict[str, np.ndarray] = {}

    def take(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer"):
            values[name] = item[()]

    with zipfile.ZipFile(path) as archive:
        stored = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(stored) as file:
        file.visititems(take)
    return values


def assert_same_numbers(alone: Result, together: Result, tolerance: float) -> None:
    expected, printed = numbers(alone.out), numbers(together.out)
    assert expected
    assert {name: printed[name] for name in expected} == pytest.approx(
        expected, rel=tolerance, abs=tolerance
    )


def assert_same_weights(expected: Path, path: Path, tolerance: float) -> None:
    one, two = weights(expected), weights(path)
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def alone(tensorflow, tmp_path_factory):
    """Run a script by itself once; return what it printed, and its model."""

    @cache
    def run(script: str) -> tuple[Result, Path]:
        folder = tmp_path_factory.mktemp("alone") / script
        return run_alone(tensorflow, FOLDER / f"{script}.py", folder), folder / "model.keras"

    return run


@pytest.mark.parametrize("script", scripts())
def test_two_workers_train_a_script_to_its_own_weights(script, alone, tensorflow, tmp_path):
    """With the numbers that layers draw by themselves; and clear_session() changes nothing."""
    expected, model = alone(script)
    together = run_on_two(tensorflow, script, tmp_path / "two", "--same-random")
    if script == "custom_train_step":
        assert "Largest.compute_metrics() returns largest, which no metric has" in together.text
    if script == "gan":
        assert (
            "each task makes its own rows alone (ParallelMapDatasetV2, BatchDatasetV2)"
            in together.out
        )
    assert_same_numbers(expected, together, TOLERANCE)
    assert_same_weights(model, tmp_path / "two/model.keras", TOLERANCE)


def test_the_page_has_the_loop_of_a_script_that_is_tested():
    page = (HERE.parents[2] / "docs/do/fit-scripts.md").read_text()
    (loop,) = re.findall(r"```python\n(strategy = .*?)```", page, re.DOTALL)
    assert loop in (FOLDER / "own_loop.py").read_text()


def test_a_task_with_two_devices_trains_a_script_to_its_own_weights(alone, tensorflow, tmp_path):
    expected, model = alone("gan")
    (tmp_path / "gan.py").symlink_to(FOLDER / "gan.py")
    env = environment_outside_clusters() | {"DISTLAUNCH_DEVICES": "2"}
    options = ("--no-resume", "--same-random")
    together = tensorflow.run(FIT, *options, "gan.py", cwd=tmp_path, env=env)
    assert together.code == 0, together.text
    assert "fit() runs on 2 replicas" in together.out
    assert_same_numbers(expected, together, TOLERANCE)
    assert_same_weights(model, tmp_path / "model.keras", TOLERANCE)


# Prints the losses of epochs, which depend on the order of the rows; with weights that do not
# change, those of the first batch of each epoch, and of all rows of a data set that repeats them;
# and what a layer draws for four rows. It begins and ends as scripts for one machine may.
WITHOUT_SEED = """
import os
import keras
import numpy as np
import tensorflow as tf
from .data import x

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.distribute.OneDeviceStrategy("/cpu:0")
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
model.compile(keras.optimizers.SGD(0.5), "mse")
model.summary()
losses = [model.fit(x, x * x, batch_size=4, epochs=3).history["loss"] for _ in range(2)]
print("losses", *[f"{loss:.5f}" for loss in sum(losses, [])])

first = []
note = lambda batch, logs: batch or first.append(f"{logs['loss']:.5f}")
model.optimizer.learning_rate = 0.0
callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=note)]
callbacks = keras.callbacks.CallbackList(callbacks, model=model, add_history=True)
for _ in range(2):
    model.fit(x, x * x, batch_size=4, epochs=3, callbacks=callbacks)
print("first", *first)
print("listed", len(callbacks.callbacks))

batches = []
stop = lambda batch, logs: batches.append(batch) or setattr(model, "stop_training", batch == 1)
callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=stop)]
model.fit(x, x * x, batch_size=4, callbacks=callbacks)
print("trained", len(batches), "batches")

negatives = keras.metrics.TrueNegatives(1.0, name="few")
model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[negatives])
few = [x[:5], x[:5] * 0]  # batches with fewer rows than tasks
counts = [*model.evaluate(*few, batch_size=1), *model.fit(*few, batch_size=1).history["few"]]
print("few", *[f"{count:.5f}" for count in counts])
model.export("exported", verbose=False)
loaded = tf.saved_model.load("exported")
print("loaded", *loaded.serve(tf.constant(x[:3], "float32")).numpy().ravel())

rows = tf.data.Dataset.from_tensor_slices((x, x * x)).shuffle(24, seed=1).repeat().batch(8)
for data in rows, rows.map(lambda *row: row):  # each task makes its own rows, or all
    found = {f"{model.evaluate(data, steps=6, verbose=0)[0]:.5f}" for _ in range(8)}
    options = {"epochs": 4, "steps_per_epoch": 3, "validation_data": data, "validation_steps": 6}
    found |= {f"{loss:.5f}" for loss in model.fit(data, **options).history["val_loss"]}
    print("repeated", *found)


class Draws(keras.layers.Layer):
    def call(self, x):
        if by_keras:
            return x + keras.random.normal(keras.ops.shape(x))
        return x + tf.random.normal(tf.shape(x))


for by_keras in (True, False):
    keras.backend.clear_session()
    drawing = keras.Sequential([keras.Input((1,)), Draws()])
    drawing.compile()
    print("drawn", *drawing.predict(np.zeros((4, 1))).ravel())
model.evaluate(*few, batch_size=1)  # after all have printed: the first task to fail ends the others
os.chdir("/")
raise ValueError("at the end")
"""


@pytest.fixture(scope="module")
def package(tensorflow, tmp_path_factory):
    """Run a package with relative imports on one worker and on two."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "course").mkdir()
    (folder / "course/task.py").write_text(WITHOUT_SEED)
    (folder / "course/data.py").write_text("import numpy\nx = numpy.arange(24.0)[:, None] / 24\n")
    (folder / "distlaunch.yaml").write_text(
        "{name: fit, script_module: course.task, cluster: {chief: {machine: n1-standard-4}}}\n"
    )
    jobs = ("1", "2")
    return folder, [launch(tensorflow, folder, "--workers", job, job=job, code=1) for job in jobs]


def test_what_a_script_of_one_machine_sets_up_is_replaced(package):
    """It prints warnings, and comes to its end."""
    two = package[1][1]
    assert "set_intra_op_parallelism_threads() of the script is ignored" in two.text
    assert "OneDeviceStrategy of the script is MultiWorkerMirroredStrategy" in two.text
    assert "at the end" in two.text


def test_an_error_of_a_script_names_its_line_and_its_traceback_is_in_the_log(package):
    folder, (_, two) = package
    line = WITHOUT_SEED.count("\n")
    assert f"error: ValueError: at the end (course/task.py, line {line})" in two.text
    assert "Traceback" not in two.text
    logs = (folder / "2/task-logs/attempt-1").glob("*.log")
    assert any(f'course/task.py", line {line}, in <module>' in log.read_text() for log in logs)


def test_without_a_seed_epochs_have_other_orders_and_tasks_draw_other_numbers(package):
    printed = []
    for result in package[1]:
        # Of epochs, and of batches: those of all rows.
        pattern = r"chief +\| ((?:losses|first|listed|trained|few|loaded|repeated) .*)"
        printed.append(re.findall(pattern, result.out))
        assert result.out.count('| Model: "sequential"') == 1  # on the chief
    assert printed[0] == printed[1]
    _, first, listed, trained, _, _, *repeated = printed[0]
    assert [len(line.split()) for line in repeated] == [2, 2]  # each row is read once in a pass
    assert first.count(".") == 6  # of two calls with one CallbackList
    assert listed == "listed 2"  # that callback and a History
    assert len(set(first.split())) > 2
    assert trained == "trained 2 batches"  # of 6
    drawn = re.findall(r"chief +\| drawn (.*)", result.out)
    assert [len(set(line.split())) for line in drawn] == [4, 4]  # the tasks draw other numbers


def test_the_tutorial_runs_and_only_the_chief_writes(tensorflow, tmp_path):
    """Its workers save too, each into a folder that the script makes and removes."""
    folder = tmp_path / "two"
    result = run_on_two(tensorflow, "multi_worker_tutorial", folder)
    printed = numbers(result.out)
    assert printed["Accuracy"] >= 0
    assert printed["Loss when loaded"] == pytest.approx(printed["Loss"], rel=1e-5)
    assert printed["Restored"] == 1
    assert weights(folder / "model.keras")
    assert list(folder.glob("workertemp*")) == []
    summary = json.loads((folder / "job" / "summary.json").read_text())
    assert (summary["replicas"], summary["steps"], len(summary["epochs"])) == (2, 10, 2)
    assert Path(folder, summary["model"]).is_dir()


CHIEFS_FILES = {
    *("best.keras", "exported", "log.csv", "logs", "model.keras", "model.weights.h5"),
}


def test_stops_and_kills_leave_the_weights_of_an_undisturbed_run(tensorflow, tmp_path):
    """The script has every callback that writes, whose state is restored with the model's."""
    calm, folder = tmp_path / "calm", tmp_path / "faulty"
    undisturbed = run_alone(tensorflow, FAULTY, calm)
    make_project(FAULTY, folder, "--checkpoint-every=2")
    temporary = folder / "temporary"
    temporary.mkdir()
    shared = "--shared-folder"
    stopped = launch(tensorflow, folder, shared, code=143, FAULT="15@0@1", TMPDIR=str(temporary))
    assert "stopped by a signal: saved at step" in stopped.text
    assert not list(temporary.glob("distlaunch-*"))
    (folder / "failed").unlink()
    killed = launch(tensorflow, folder, shared, "--restarts", "1", FAULT="9@2@1")
    steps = [int(step) for step in re.findall(r"resuming after step (\d+)", killed.out)]
    assert len(steps) == 2
    assert steps[1] in {12, 14}  # of 6 in an epoch: the kill is in the middle of the third one
    chiefs = folder / "files/chief"
    assert_same_numbers(undisturbed, killed, 1e-9)
    assert_same_weights(calm / "files/chief/model.keras", chiefs / "model.keras", 1e-11)
    rows = [
        path.read_text().splitlines() for path in (calm / "files/chief/log.csv", chiefs / "log.csv")
    ]
    assert rows[0][0] == rows[1][0]
    for expected, row in zip(rows[0][1:], rows[1][1:], strict=True):
        numbers_of = [list(map(float, line.split(","))) for line in (expected, row)]
        assert numbers_of[1] == pytest.approx(numbers_of[0], abs=1e-6)
    epochs = json.loads((folder / "job/summary.json").read_text())["epochs"]
    assert [epoch["examples"] for epoch in epochs] == [81] * 4
    assert {path.name for path in chiefs.iterdir()} == CHIEFS_FILES
    assert list((folder / "files/worker").iterdir()) == []


def test_tasks_that_differ_are_refused_with_the_line_to_change(tensorflow, tmp_path):
    make_project(HERE / "differing_script.py", tmp_path / "project")
    launch(tensorflow, tmp_path / "project")
    logs = tmp_path / "project/job/task-logs/attempt-1"  # an error of both is shown once
    printed, of_worker = (
        dict(re.findall(r"^([A-Z][a-z ]+): (.*)$", (logs / name).read_text(), re.MULTILINE))
        for name in ("chief.log", "worker-0.log")
    )
    assert of_worker["Alone"] == printed["Alone"]
    script = "differing_script.py, line"
    for name, problem, line in (
        ("Unseeded", f"data of fit() ({script} 57) differ on chief and worker:0", "56 (no seed)"),
        ("Targets", "targets of the first batch of the data of fit()", "56 (no seed)"),
        ("Sharded", "rows or file names of the data of fit()", "63 (rows of this task only)"),
        ("Length", "numbers of batches of the data of fit()", "56 (no seed)"),
        ("Own batch", f"batch of train_on_batch() ({script} 73) differs on", "56 (no seed)"),
    ):
        assert printed[name].startswith("DataError: ")
        assert problem in printed[name]
        assert f"{script} {line}" in printed[name]
    assert printed["Noise"] == "1"  # other numbers of the same rows are no error
    # Shards of 13 and 12 rows: each row once, in a global batch of both tasks'.
    assert float(printed["Own rows"]) == pytest.approx(float(printed["Rows"]), rel=1e-6)
    assert printed["Alone"].startswith(
        f"ClusterError: the tasks do different things: chief is at fit() ({script} 71), "
        f"worker:0 is at evaluate() ({script} 71); "
    )
    assert printed["On batch"] == "(40, 1)"
    assert (printed["Own predictions"], of_worker["Own predictions"]) == ("(13, 1)", "(12, 1)")
    differ = r"ModelError: the replicas differ after step \d+: optimizer/learning_rate is 0.5 on "
    assert re.match(rf"{differ}chief, 1.5 on worker:0 \(and 2 more variables\); ", printed["Rate"])
    assert (printed["Type"], of_worker["Type"]) == ("[1.5]", "[1.5]")
    assert "chief is at the creation of a model's variables" in printed["Other models"]
    assert "worker:0 is at the loading of a model or its weights" in printed["Other models"]


@pytest.fixture(scope="module")
def legacy():
    """A Python that has imported what the commands and scripts of tf_keras import."""
    modules = (*tensorflow_host.COMMAND_IMPORTS, "tensorflow", "tf_keras", "keras")
    with tensorflow_host.running(*modules, TF_USE_LEGACY_KERAS="1") as host:
        yield partial(launch, host, TF_USE_LEGACY_KERAS="1")


def test_scripts_of_tf_keras_need_its_package(tensorflow, tmp_path):
    (tmp_path / "tf_keras.py").write_text("raise ImportError")
    (tmp_path / "train.py").write_text("")
    env = environment_outside_clusters() | {"TF_USE_LEGACY_KERAS": "1"}
    result = tensorflow.run(FIT, "train.py", cwd=tmp_path, env=env)
    assert (result.code, "tf_keras is not installed: add tf-keras" in result.err) == (1, True)


if LAWS:

    @pytest.fixture(scope="module")
    def undisturbed(tensorflow, tmp_path_factory):
        folder = tmp_path_factory.mktemp("undisturbed") / "alone"
        run_alone(tensorflow, FAULTY, folder)
        return folder / "files/chief/model.keras"

    @pytest.mark.parametrize("step", range(1, 24, 2))
    def test_a_kill_at_any_step_leaves_the_weights_of_an_undisturbed_run(
        tensorflow, undisturbed, tmp_path, step
    ):
        """A checkpoint is written every 2 steps, and at the end of each epoch of 6."""
        folder = tmp_path / "killed"
        make_project(FAULTY, folder, "--checkpoint-every=2")
        fault = f"9@{step // 6}@{step % 6}"
        options = ("--shared-folder", "--restarts", "1")
        killed = launch(tensorflow, folder, *options, FAULT=fault)
        resumed = re.findall(r"resuming after step (\d+)", killed.out)
        assert [0 <= step + 1 - int(each) <= 2 for each in resumed] == ([True] if step > 1 else [])
        assert_same_weights(undisturbed, folder / "files/chief/model.keras", 1e-11)

    def test_scripts_of_tf_keras_train_on_all_tasks_and_end_at_once(legacy, tmp_path):
        make_project(HERE / "legacy_script.py", tmp_path / "project")
        folder = tmp_path / "project"
        printed = legacy(folder, "--shared-folder").out
        assert re.search(r"^chief .*tf_keras\.\S+ on 2$", printed, re.MULTILINE), printed
        assert {path.name for path in (folder / "files/chief").iterdir()} == {
            *("best", "log.csv", "model.h5"),
        }
        assert list((folder / "files/worker").iterdir()) == []
        summary = json.loads((folder / "job/summary.json").read_text())
        assert (summary["replicas"], summary["global_batch"], summary["steps"]) == (2, 16, 12)
        assert [epoch["step"] for epoch in summary["epochs"]] == [4, 8, 12]
        assert (folder / "job/model/saved_model.pb").is_file()

        again = legacy(folder, "--shared-folder", code=143, FAULT="15@1@1")
        assert "starts from scratch, also in the job folder of an earlier run" in again.out
        assert "stopped by a signal while a tf_keras script ran" in again.out
        resumed = legacy(folder, "--resume", code=1)
        assert "job has no checkpoints to resume from" in resumed.err
