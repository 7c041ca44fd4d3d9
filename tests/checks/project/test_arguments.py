from __future__ import annotations

import importlib.util

import pytest

from distlaunch.checks.project.arguments import options
from distlaunch.job.model import RangeParameter, Tuning

TASK = "trainer_skeleton/base/trainer/task.py"


def told(made, args, *sets, **job):
    return [
        (each.where, each.what, each.remedy)
        for each in made.problems(f"args={args}", *sets, **job)
        if each.code == "argument-unknown"
    ]


def test_the_trainers_options_are_those_of_its_parser(checkout):
    spec = importlib.util.spec_from_file_location("task", checkout / TASK)
    task = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(task)
    found = options(checkout / TASK)
    real = {name: action for action in task.parser()._actions for name in action.option_strings}
    assert found.keys() == real.keys()
    for name, action in real.items():
        assert found[name].takes_value is (action.nargs != 0), name
        assert set(found[name].choices) == set(action.choices or ()), name


@pytest.mark.parametrize(
    "args",
    [
        "[]", "[--epochs=3, --batch-size, '32']", "[--resume, --no-resume, --sync-batch-norm]",
        "[--learning-rate, '1e-3']", "[--precision=mixed_bfloat16]", "[--job-dir=gs://a/b]",
        "[--shards=10000, '--seed=4294967295', --epochs=2147483647]",
    ],
)  # fmt: skip
def test_what_the_trainer_takes_is_no_problem(args, made):
    assert told(made, args) == []


@pytest.mark.parametrize(
    ("args", "what", "remedy"),
    [
        ("[--epoch=3]", "the trainer has no option --epoch", "did you mean '--epochs'?"),
        ("[--batch_size, '32']", "no option --batch_size", "did you mean '--batch-size'?"),
        ("[--momentum=3]", "no option --momentum", "it has --allow-cpu, --batch-size, "),
        ("[--no-debug]", "no option --no-debug", "--debug"),
        ("[-e, '3']", "no option -e", "--epochs"),
        ("[--epochs]", "--epochs has no value", "write --epochs=VALUE"),
        ("[--epochs, --resume]", "--epochs has no value", "write --epochs=VALUE"),
        ("[--resume=yes]", "--resume takes no value", "write --resume"),
        ("[train]", "'train' is no option", "write --NAME=train"),
        ("[--epochs=many]", "--epochs takes no 'many'", "expected a whole number of 1 or more"),
        ("[--epochs, '0']", "--epochs takes no '0'", "expected a whole number of 1 or more"),
        ("[--shuffle=-1]", "--shuffle takes no '-1'", "expected a whole number of 0 or more"),
        ("[--learning-rate=fast]", "--learning-rate takes no 'fast'", "expected a number"),
        ("[--learning-rate, '-1']", "--learning-rate takes no '-1'", "a number above 0"),
        ("[--learning-rate=0]", "--learning-rate takes no '0'", "a number above 0"),
        ("[--learning-rate=nan]", "--learning-rate takes no 'nan'", "a number above 0"),
        ("[--learning-rate=inf]", "--learning-rate takes no 'inf'", "a number above 0"),
        ("[--shards=10001]", "--shards takes no '10001'", "of 1 or more, 10000 at most"),
        ("['--seed=4294967296']", "--seed takes no '4294967296'", "4294967295 at most"),
        ("['--epochs=2147483648']", "no '2147483648'", "2147483647 at most"),
        ("[--precision=half]", "--precision takes no 'half'", "expected float32, float64"),
    ],
)
def test_what_the_trainers_parser_refuses_is_refused_here(args, what, remedy, made):
    [(where, told_what, told_remedy)] = told(made, args)
    assert where == "args"
    assert what in told_what
    assert remedy in told_remedy


def test_options_that_the_user_added_are_known(made):
    task = made.folder / "trainer/task.py"
    text = task.read_text()
    assert told(made, "[--dropout=0.1, --verbose]") != []
    more = 'add("--dropout", type=float)\n    add("--verbose", "-v", action="store_true")\n    '
    made.write("trainer/task.py", text.replace("return options", f"{more}return options"))
    assert told(made, "[--dropout=0.1, --verbose, -v]") == []


@pytest.mark.parametrize(
    "change",
    [
        ("parse_args(arguments)", "parse_known_args(arguments)[0]"),
        ('add("--epochs"', "add(NAME"),
        ('add("--epochs"', 'add("files"'),
        (', help="epochs in all (%(default)s)"', ", **MORE"),
        (", allow_abbrev=False", ""),
    ],
)
def test_where_the_options_cannot_be_read_off_nothing_is_refused(change, made):
    text = (made.folder / "trainer/task.py").read_text()
    assert change[0] in text
    made.write("trainer/task.py", text.replace(*change))
    assert told(made, "[--odd=1]") == []


def test_a_tuned_parameter_is_an_option_too(made):
    tuning = (
        "tuning={metric: val_loss, goal: minimize, trials: 4, parameters: "
        "{learning-rate: {type: double, min: 0.001, max: 0.1}, "
        "momentum: {type: double, min: 0, max: 1}}}"
    )
    found = told(made, "[]", tuning)
    assert [(where, what) for where, what, _ in found] == [
        ("tuning.parameters.momentum", "the trainer has no option --momentum")
    ]


def searching(made, parameter, args="[]"):
    tuning = f"tuning={{metric: val_loss, goal: minimize, trials: 4, parameters: {{{parameter}}}}}"
    return told(made, args, tuning)


@pytest.mark.parametrize(
    "parameter",
    [
        "learning-rate: {type: double, min: 0.001, max: 0.1, scale: log}",
        "epochs: {type: integer, min: 1, max: 8}",
        "learning-rate: {type: double, min: 0, max: 0.1, scale: log}",  # told of the search
        "batch-size: {type: double, values: [16, 32]}",
        "batch-size: {values: ['16', '32']}",
        "precision: {values: [float32, float64]}",
        "job-dir: {values: [gs://a/b]}",
    ],
)
def test_a_search_among_what_the_trainer_takes_is_no_problem(parameter, made):
    assert searching(made, parameter) == []


def test_the_ends_of_a_search_may_be_int(made):  # as AI Platform's files are read
    tuning = Tuning("loss", "minimize", {"epochs": RangeParameter(1, 8, is_integer=True)}, trials=4)
    assert told(made, "[]", tuning=tuning) == []


@pytest.mark.parametrize(
    ("parameter", "what", "remedy"),
    [
        ("epochs: {type: double, min: 1, max: 8}", "in between", "a whole number of 1 or more"),
        ("epochs: {type: integer, min: 0, max: 8}", "takes no '0'", "of 1 or more"),
        ("shards: {type: integer, min: 1, max: 20000}", "takes no '20000'", "10000 at most"),
        ("batch-size: {type: double, values: [16, 16.5]}", "takes no '16.5'", "a whole number"),
        ("batch-size: {values: [many]}", "takes no 'many'", "a whole number"),
        ("precision: {values: [float32, half]}", "takes no 'half'", "float32, float64"),
        ("learning-rate: {type: double, min: 0, max: 1}", "takes no '0'", "a number above 0"),
        ("learning-rate: {type: double, values: [-0.5, 1]}", "takes no '-0.5'", "above 0"),
        ("sync-batch-norm: {values: ['true']}", "takes no value", "add --sync-batch-norm"),
    ],
)
def test_a_search_whose_trials_would_end_at_once_is_refused(parameter, what, remedy, made):
    [(where, told_what, told_remedy)] = searching(made, parameter)
    assert where == f"tuning.parameters.{parameter.partition(':')[0]}"
    assert what in told_what
    assert remedy in told_remedy


def test_what_the_user_made_of_the_types_of_options_is_not_held_against_him(made):
    task = (made.folder / "trainer/task.py").read_text()
    for old in ("0 < value < math.inf", "most: int = 2**31 - 1"):
        assert old in task
    task = task.replace("0 < value < math.inf", "-1 < value < math.inf")
    made.write("trainer/task.py", task.replace("most: int = 2**31 - 1", "most: int = MOST"))
    assert told(made, "['--learning-rate=-0.5', '--epochs=2147483648']") == []
