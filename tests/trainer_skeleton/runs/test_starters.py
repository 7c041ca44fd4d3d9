"""Starters, created by `init` and trained by `local` by the commands of their READMEs.

`make laws` trains each with every strategy that it runs with, and runs the projects' own tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from distlaunch.resources import starters

from .conftest import LAWS

pytestmark = pytest.mark.slow

SERVER_STARTER = "parameter-server"
# What the README states; a script's shape of an input comes with it.
ACCURACY = {
    "digits": 0.94,
    "own-script": 0.99,
    "custom-loop": 0.94,
    "custom-train-step": 0.94,
    "tf-keras": 0.94,
    "text": 0.72,
    "parameter-server": 0.9,
}
INPUT_SHAPES = {"own-script": (8, 12, 12, 1)}
NEEDS_IMPORT = {"custom-train-step": {"IMPORT": "trainer.model"}}

SERVERS = "cluster.parameter_servers={machine: n1-standard-4, count: 1}"
REPLICAS = {"multi-worker": 2, "one-device": 1, "mirrored": 2, "parameter-server": 1}
WAYS = {
    "multi-worker": (),  # the cluster and the arguments of the job file
    "one-device": ("--workers", "1"),
    "mirrored": ("--workers", "1", "--devices", "2"),
    "parameter-server": ("--set", SERVERS),
}
STEPS_OF_THEIR_OWN = {"own-script", "tf-keras", "custom-loop", "custom-train-step"}

# tests/test_documents.py trains digits, runs/test_fit_scripts.py scripts, runs/test_zoo.py a
# train_step(), runs/test_parameter_server.py parameter servers.
SHORT = {
    "custom-loop": (("--", "--epochs=3"), 0.85),
    "text": (("--", "--epochs=1"), 0.4),
    "tf-keras": (("--", "--epochs=2"), 0.8),
}
RUNS = [(name, "multi-worker") for name in SHORT]
if LAWS:
    RUNS = [
        (name, way)
        for name in ACCURACY
        for way in WAYS
        if (name != SERVER_STARTER or way == "parameter-server")
        and (name not in STEPS_OF_THEIR_OWN or way != "parameter-server")
    ]


@pytest.mark.parametrize(("name", "way"), RUNS)
def test_a_starter_reaches_the_accuracy_of_its_readme(new_starter, name, way):
    project = new_starter(name)
    arguments = () if name == SERVER_STARTER else WAYS[way]
    expected = ACCURACY[name]
    if arguments == WAYS["parameter-server"]:
        expected = min(expected, 0.7)  # text has few steps, of which late ones count less
    if not LAWS:
        arguments, expected = SHORT[name]
    result = project.local("job", *arguments)
    summary = project.summary("job")
    assert summary["replicas"] == REPLICAS[way], result.text
    assert summary["epochs"][-1]["logs"]["val_accuracy"] >= expected
    readme = (project.folder / "README.md").read_text(encoding="utf-8")
    assert f"{ACCURACY[name]} or more" in readme
    if name == SERVER_STARTER:
        assert "weights depend on timing" in result.out
        assert "evaluator:0 | evaluation of step 360: " in result.out
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


if LAWS:

    @pytest.mark.parametrize("name", ACCURACY)
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
    (project.folder / "read.py").write_text(
        "from trainer.vocabulary import read_vocabulary\nread_vocabulary()\n"
    )
    assert "words of train.tsv" not in project.run("read").text
    sentences = ["source\ttext", "keras\tNeue Worte, und a model"]
    (project.folder / "data/train.tsv").write_text("\n".join(sentences))
    warning = "vocabulary.txt knows 40% of the words of train.tsv: has the data changed?"
    assert warning in project.run("read").text


def test_every_starter_is_trained_by_a_test():
    assert ACCURACY.keys() <= starters().keys()
