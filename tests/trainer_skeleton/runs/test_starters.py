"""Starters, created by `init` and trained by `local` as their READMEs say.

`make laws` trains all on one task, on two, and on one with two devices, and runs their own tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tensorflow as tf

from distlaunch.resources import starters

pytestmark = pytest.mark.slow

IS_LAWS = bool(os.environ.get("DISTLAUNCH_TEST_LAWS"))

# What the README states; a script's shape of an input comes with it.
ACCURACY = {
    "digits": 0.94,
    "own-script": 0.99,
    "custom-loop": 0.94,
    "custom-train-step": 0.94,
    "tf-keras": 0.94,
    "text": 0.72,
}
INPUT_SHAPES = {"own-script": (8, 12, 12, 1)}
NEEDS_IMPORT = {"custom-train-step": {"IMPORT": "trainer.model"}}

NAMES, WAYS = sorted(ACCURACY.keys() - {"own-script"}), {"": ()}
if IS_LAWS:
    NAMES = sorted(ACCURACY)
    WAYS = {
        "": (),
        "one-device": ("--workers", "1"),
        "mirrored": ("--workers", "1", "--devices", "2"),
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_a_starter_reaches_the_accuracy_of_its_readme(new_starter, name, way):
    project = new_starter(name)
    result = project.local("job", *WAYS[way])  # the cluster and the arguments of its job file
    summary = project.summary("job")
    assert summary["replicas"] == (1 if way == "one-device" else 2), result.text
    assert summary["epochs"][-1]["logs"]["val_accuracy"] >= ACCURACY[name]
    readme = (project.folder / "README.md").read_text(encoding="utf-8")
    assert f"{ACCURACY[name]} or more" in readme
    if name == "tf-keras":
        check_classic_saving(project)
    else:
        project.check_model("job", *INPUT_SHAPES.get(name, ()), **NEEDS_IMPORT.get(name, {}))


def check_classic_saving(project):
    """The chief's file alone is kept, and predicts what the model of the job folder does."""
    saved = [project.folder / "saved", Path(project.job_dir("job"), "model")]
    x = tf.random.stateless_uniform((8, 8, 8, 1), (1, 2))
    models = [tf.saved_model.load(str(folder)) for folder in saved]
    one, other = (model(x, training=False) for model in models)
    tf.debugging.assert_near(one, other)
    assert [path.name for path in project.folder.rglob("saved_model.pb")].count(
        "saved_model.pb"
    ) == len(saved)


if IS_LAWS:

    @pytest.mark.parametrize("name", NAMES)
    def test_the_tests_of_a_project_pass(new_starter, name):
        new_starter(name).own_tests()

    def test_mixed_precision_of_a_custom_loop(new_starter):
        project = new_starter("custom-loop")
        project.local("job", "--", "--epochs=3", "--precision=mixed_float16")
        assert project.summary("job")["epochs"][-1]["logs"]["val_accuracy"] > 0.85


def test_the_vocabulary_is_that_of_the_training_text(new_starter):
    project = new_starter("text")
    file = project.folder / "data/vocabulary.txt"
    before = file.read_text()
    file.unlink()
    result = project.run("trainer.vocabulary")
    assert result.code == 0, result.text
    assert file.read_text() == before


def test_every_starter_is_trained_by_a_test():
    assert ACCURACY.keys() <= starters().keys()
