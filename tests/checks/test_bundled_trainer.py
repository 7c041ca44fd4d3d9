from __future__ import annotations

import pytest

from distlaunch import __version__

SPOT = "scheduling.strategy=SPOT"
KERAS = "tensorflow==2.21.0\nkeras{}\n"


def codes(bundled, *overrides):
    return [each.code for each in bundled.problems(*overrides)]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([SPOT, "args=[--checkpoint-every=0]"], ["spot-without-checkpoints"]),
        ([SPOT, "args=[--checkpoint-every, '100']"], []),
        ([SPOT, "args=[--checkpoint-every=9, --no-resume, --resume]"], []),
        (["args=[--no-resume]"], []),
    ],
)
def test_spot_machines_need_checkpoints(overrides, expected, bundled):
    assert codes(bundled, *overrides) == expected


@pytest.mark.parametrize(
    ("layer", "is_reported"),
    [
        ("BatchNormalization()", True),
        ("BatchNormalization(axis=1, name='norm')", True),
        ("BatchNormalization(synchronized=False)", False),
        ("BatchNormalization(synchronized=True)", False),
        ("BatchNormalization(synchronized=CHOICE)", False),
        ("BatchNormalization(**OPTIONS)", False),
        ("BatchNormalization(trainable=False)", False),
        ("LayerNormalization()", False),
        ("__dict__; keras.applications.ResNet50(weights=None)", True),
        ("__dict__; keras.applications.VGG16(weights=None)", False),
        ("__dict__; BASE = keras.applications.ResNet50()\nBASE.trainable = False", False),
    ],
)
def test_a_batch_normalization_of_each_replica_alone(layer, is_reported, bundled):
    bundled.prepend("trainer/model.py", f"import keras\nLAYER = keras.layers.{layer}\n")
    expected = [("batch-norm-unsynchronised", "warning", "trainer/model.py:2")] * is_reported
    assert bundled.summary() == expected
    assert bundled.problems("args=[--sync-batch-norm]") == []
    assert bundled.problems(bundled.cluster(1)) == []
    assert bundled.summary(bundled.cluster(1, gpus=2)) == expected


@pytest.mark.parametrize(
    ("text", "is_reported"),
    [
        ("def build(): ...\n", True),
        ("from .models import create_model\n", False),
        ("from .models import build as create_model\n", False),
        ("from .models import *\n", False),
        ("create_model = build = lambda: None\n", False),
        ("if True:\n    def create_model(): ...\n", False),
        ("def create_model(:\n", False),
    ],
)
def test_the_functions_that_the_trainer_calls(text, is_reported, bundled):
    bundled.write("trainer/models.py", "def build(): ...\ndef create_model(): ...\n")
    bundled.write("trainer/model.py", text)
    problems = [each for each in bundled.summary() if each[0] == "trainer-incomplete"]
    assert problems == [("trainer-incomplete", "error", "trainer/model.py")] * is_reported


@pytest.mark.parametrize(
    ("version", "expected"), [("0.0.9", ["trainer-older"]), (__version__, []), ("0.10.0", [])]
)
def test_an_older_copy_of_the_trainer_package(version, expected, ejected):
    file = "distlaunch_trainer/__init__.py"
    text = (ejected.folder / file).read_text()
    ejected.write(file, text.replace(f'"{__version__}"', f'"{version}"'))
    assert codes(ejected) == expected
    assert all("distlaunch eject --force" in each.remedy for each in ejected.problems())


@pytest.mark.parametrize("file", ["Dockerfile", "templates/Dockerfile.j2"])
def test_a_dockerfile_of_the_user_installs_the_trainer_package(file, bundled):
    base = "FROM python:3.12.12-slim-bookworm\n"
    text = f"{base}COPY requirements.txt .\nRUN pip install -r requirements.txt\n"
    bundled.write(file, text)
    assert bundled.summary() == [("trainer-not-installed", "warning", file)]
    bundled.write(file, f"{text}RUN pip install --no-index --find-links=x distlaunch_trainer\n")
    assert bundled.summary() == []
    bundled.write(file, text)
    bundled.write("distlaunch_trainer/__init__.py", f'__version__ = "{__version__}"\n')
    bundled.write("distlaunch_trainer/run.py", "")
    assert bundled.summary() == []


@pytest.mark.parametrize(
    ("keras", "is_reported"), [("==3.10.0", True), ("<3", True), ("<4", False)]
)
def test_the_versions_of_keras(keras, is_reported, bundled):
    bundled.write("requirements.txt", KERAS.format(keras))
    problem = ("requirement-clash", "warning", "requirements.txt:2")
    assert bundled.summary() == [problem] * is_reported


def test_other_programs_are_not_held_to_these_rules(plain):
    layer = "from keras.layers import BatchNormalization\nBatchNormalization()\n"
    plain.prepend("program.py", layer)
    plain.write("requirements.txt", "tensorflow==2.21.0\n")
    pool = "{machine: n1-standard-4, count: 2}"
    overrides = [f"cluster.workers={pool}", f"cluster.evaluators={pool}", "args=[--odd, words]"]
    assert plain.problems(SPOT, *overrides) == []
