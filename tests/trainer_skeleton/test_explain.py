"""What Keras and TensorFlow really raise, in one line."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from trainer.distributed import explain
from trainer.distributed.errors import DataError, ModelError, TrainerError, gist


def raised(function) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        function()
    return caught.value


def test_layer_that_does_not_fit():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    error = raised(lambda: model(tf.zeros((1, 5))))
    assert gist(error).startswith("Input 0 ")
    assert gist(error).endswith("received input with shape (1, 5)")


def test_error_in_a_traced_function():
    @tf.function
    def broken(x):
        return x + no_such_name  # noqa: F821

    assert gist(raised(lambda: broken(tf.constant(1)))) == "name 'no_such_name' is not defined"


def test_error_of_an_operation():
    error = raised(lambda: tf.io.parse_tensor(b"\xff", tf.int32))
    assert "{{" not in gist(error)
    assert "[Op:" not in gist(error)


def test_error_with_the_arguments_of_a_call():
    error = RuntimeError("cannot merge\n\nArguments received by X.call():\n  • kwargs=<class 'x'>")
    assert gist(error) == "cannot merge"


@pytest.mark.parametrize("error", [ValueError(), ValueError(""), ValueError("\n \n")])
def test_error_without_words(error):
    assert gist(error) == "ValueError"


def test_users_code_gets_its_place(tmp_path, monkeypatch):
    (tmp_path / "trainer").mkdir()
    file = tmp_path / "trainer/model.py"
    file.write_text("\n\ndef create_model():\n    return 1 / 0\n")
    monkeypatch.setattr(explain, "_USERS", tmp_path / "trainer")
    scope: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)  # noqa: S102
    with pytest.raises(ModelError) as caught:
        explain.from_user("create_model()", scope["create_model"])
    assert str(caught.value) == (
        "create_model() failed: ZeroDivisionError: division by zero (trainer/model.py, line 4)"
    )


def test_our_own_errors_pass():
    def refuse():
        raise DataError("told already")

    with pytest.raises(DataError, match=r"^told already$"):
        explain.from_user("training()", refuse)


def test_step_that_fails_names_the_record():
    def fail():
        raise tf.errors.DataLossError(None, None, "corrupted record at 12")

    with pytest.raises(DataError, match=r"^record 3$"), explain.steps(lambda: "record 3"):
        fail()
    with (
        pytest.raises(TrainerError, match=r"^a step failed: DataLossError: corrupted"),
        explain.steps(lambda: None),
    ):
        fail()


def test_unexpected_error_is_told_with_the_way_to_see_more():
    assert explain.ending(KeyError("x")) == (
        "unexpected KeyError: 'x'; --debug shows where it comes from"
    )


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.UnavailableError(None, None, "Socket closed"),
        tf.errors.InternalError(None, None, "Collective ops is aborted by: peer restarted"),
    ],
)
def test_loss_of_a_peer_is_told_last_wherever_it_is_noticed(error, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(explain.time, "sleep", waits.append)

    def notice():
        raise error

    # No record is looked for, however many there are.
    with pytest.raises(type(error)) as caught, explain.steps(pytest.fail):
        explain.from_user("create_model()", notice)
    assert explain.ending(caught.value) == "this task lost its peers: another task ended"
    assert waits == [5.0]


def test_storage_that_cannot_be_reached_is_no_peer():
    def read():
        raise tf.errors.UnavailableError(
            None, None, "Error executing an HTTP request: libcurl code 6"
        )

    with (
        pytest.raises(TrainerError, match=r"^a step failed: UnavailableError: Error exec"),
        explain.steps(lambda: None),
    ):
        read()
