from __future__ import annotations

import pytest

from distlaunch import __version__

SPOT = "scheduling.strategy=SPOT"
LAYER = "\nLAYER = keras.layers.{}\n"
APPLICATIONS = "keras.applications."


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ([SPOT], ["spot-without-checkpoints"]),
        ([SPOT, "args=[--checkpoint-every=0]"], ["spot-without-checkpoints"]),
        ([SPOT, "args=[--checkpoint-every=100]"], []),
        ([SPOT, "args=[--checkpoint-every, '100']"], []),
        ([SPOT, "args=[--checkpoint-every=9, --no-resume]"], ["spot-without-resume"]),
        ([SPOT, "args=[--checkpoint-every=9, --no-resume, --resume]"], []),
        (["args=[--no-resume]"], []),
        (["scheduling.strategy=FLEX_START"], []),
    ],
)
def test_machines_that_can_be_taken_want_checkpoints(words, codes, made):
    found = made.problems(*words)
    assert [each.code for each in found] == codes
    assert all(each.severity == "warning" for each in found)


@pytest.mark.parametrize(
    ("layer", "is_told"),
    [
        ("BatchNormalization()", True),
        ("BatchNormalization(axis=1, name='norm')", True),
        ("BatchNormalization(synchronized=False)", True),
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
def test_a_layer_that_sees_its_own_rows_alone_is_pointed_out(layer, is_told, made):
    model = made.folder / "trainer/model.py"
    line = model.read_text().count("\n") + 2
    made.write("trainer/model.py", model.read_text() + LAYER.format(layer))
    found = made.problems()
    expected = [("batch-norm-unsynchronised", "warning", f"trainer/model.py:{line}")]
    assert [(each.code, each.severity, each.where) for each in found] == expected * is_told


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        (["cluster={chief: {machine: n1-standard-4}}"], False),
        (
            ["cluster={chief: {machine: n1-standard-8, accelerator: "
             "{type: NVIDIA_TESLA_T4, count: 2}}}"],
            True,
        ),
        (["args=[--sync-batch-norm]"], False),
        (["args=[--epochs=3]"], True),
    ],
)  # fmt: skip
def test_it_matters_where_several_train_and_is_mended_by_an_option(words, is_told, made):
    model = made.folder / "trainer/model.py"
    made.write("trainer/model.py", model.read_text() + LAYER.format("BatchNormalization()"))
    assert ("batch-norm-unsynchronised" in dict(made.codes(*words))) is is_told


@pytest.mark.parametrize("role", ["parameter_servers", "evaluators"])
def test_roles_that_the_trainer_has_no_place_for_are_refused(role, made):
    [problem] = made.problems(f"cluster.{role}={{machine: n1-standard-4, count: 1}}")
    assert (problem.code, problem.severity) == ("trainer-role", "error")
    assert problem.where == f"cluster.{role}"


def test_accelerators_that_the_trainer_does_not_use_are_refused(made):
    kind = "{machine: ct5lp-hightpu-4t, accelerator: {type: TPU_V5_LITEPOD, count: 4}}"
    found = made.problems(f"cluster={{chief: {kind}}}")
    [problem] = [each for each in found if each.severity == "error"]
    assert (problem.code, problem.where) == ("trainer-tpu", "cluster.chief.accelerator")


@pytest.mark.parametrize(
    ("text", "is_told"),
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
def test_what_the_trainer_calls_has_to_be_there(text, is_told, made):
    made.write("trainer/models.py", "def build(): ...\ndef create_model(): ...\n")
    made.write("trainer/model.py", text)
    found = [each for each in made.problems() if each.code == "trainer-incomplete"]
    assert [(each.severity, each.where) for each in found] == [
        ("error", "trainer/model.py")
    ] * is_told


def test_tpus_by_their_topology_are_refused_too(made):
    words = ["cluster={chief: {machine: ct5lp-hightpu-4t}}"]
    topology = "vertex.jobSpec.workerPoolSpecs=[{machineSpec: {tpuTopology: 2x2}}]"
    found = {each.code for each in made.problems(*words, topology)}
    assert "trainer-tpu" in found


@pytest.mark.parametrize(("count", "codes"), [(1, []), (2, ["accelerators-unequal"])])
def test_gpus_that_are_not_as_many_on_all_machines_are_refused(count, codes, made):
    machine = "machine: n1-standard-8, accelerator: {{type: NVIDIA_TESLA_T4, count: {}}}"
    chief, workers = machine.format(1), machine.format(count)
    words = f"cluster={{chief: {{{chief}}}, workers: {{{workers}, count: 1}}}}"
    found = [each for each in made.problems(words) if each.severity == "error"]
    assert [each.code for each in found] == codes


@pytest.mark.parametrize(
    ("version", "is_told"), [("0.0.9", True), (__version__, False), ("0.10.0", False)]
)
def test_an_engine_room_that_is_older_is_pointed_out(version, is_told, made):
    file = "trainer/distributed/__init__.py"
    text = (made.folder / file).read_text()
    made.write(file, text.replace(f'"{__version__}"', f'"{version}"'))
    assert made.codes() == [("trainer-older", "warning")] * is_told


def test_none_of_it_is_said_of_a_program_of_ones_own(plain):
    plain.begin("program.py", "from keras.layers import BatchNormalization\nBatchNormalization()\n")
    plain.write("requirements.txt", "tensorflow==2.21.0\n")
    kind = "{machine: n1-standard-4, count: 2}"
    words = [SPOT, f"cluster.workers={kind}", f"cluster.evaluators={kind}", "args=[--odd, words]"]
    assert plain.problems(*words) == []
