from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distlaunch.ui.progress_view import Progress

READY = {"event": "ready", "time": 0.0, "epochs": 5, "steps_per_epoch": 23, "global_batch": 64}


def step(number: float, time: float, **more: object) -> dict[str, object]:
    return {"event": "step", "time": time, "step": number, "epoch": 1, **more}


def test_line_grows_with_what_is_known():
    progress = Progress()
    assert progress.update({"event": "checkpoint", "step": 0}) == ""
    assert progress.update(step(1, 9.0)) == "epoch 1 · step 1"
    assert progress.update(READY) == "epoch 1 · step 1"
    assert progress.update(step(2, 10.0)) == "[------------] epoch 1/5 · step 2/115"
    assert progress.update(step(12, 10.5, loss=0.31234)) == (
        "[#-----------] 5.2 s left · epoch 1/5 · step 12/115 · loss 0.3123 · 1,280 examples/s"
    )
    progress.update({"event": "epoch", "epoch": 1, "examples_per_second": 9000.4})
    assert progress.update(step(24, 12.0, epoch=2, loss=0.3)) == (
        "[##----------] 8.3 s left · epoch 2/5 · step 24/115 · loss 0.3 · 9,000 examples/s"
    )


def test_figures_of_a_job_in_the_cloud_have_its_length():
    progress, figures = Progress(), {"event": "figures", "epochs": 5, "steps_per_epoch": 10}
    progress.update({**figures, "step": 10, "epoch": 1, "time": 100.0})
    assert progress.update({**figures, "step": 25, "epoch": 3, "time": 160.0}) == (
        "[######------] 1 min 40 s left · epoch 3/5 · step 25/50"
    )


def test_bar_is_never_longer_than_full():
    progress = Progress()
    assert progress.update(step(1, 1.0, loss=float("nan"))) == "epoch 1 · step 1 · loss nan"
    progress.update(READY)
    assert progress.update(step(115, 1.0)).startswith("[############] ")
    assert progress.update(step(999, 1.0)).startswith("[############] ")
    assert progress.update(step(-1, 1.0)).startswith("[------------] ")


def test_fields_that_are_no_numbers_are_left_out():
    progress = Progress()
    progress.update({"event": "ready", "epochs": "many", "steps_per_epoch": None})
    line = progress.update(step(7, 1.0) | {"loss": "low", "time": "now", "epoch": True})
    assert line == "step 7"
    progress.update(READY | {"epochs": float("inf")})
    assert progress.update(step(float("nan"), 1.0)) == line


NUMBERS = ("time", "step", "epoch", "loss", "epochs", "steps_per_epoch", "global_batch")
VALUES = st.one_of(st.floats(), st.integers(), st.sampled_from([10**400, -(10**400), None, "x"]))
EVENTS = st.builds(
    lambda kind, fields: fields | {"event": kind},
    st.sampled_from(["ready", "step", "epoch", "checkpoint"]),
    st.dictionaries(st.sampled_from([*NUMBERS, "examples_per_second"]), VALUES),
)


@given(st.lists(EVENTS))
def test_any_events_make_a_line(events):
    progress = Progress()
    for event in events:
        before, line = progress.update({"event": "no such"}), progress.update(event)
        assert "\n" not in line
        if event["event"] != "step" or event.get("step") in (None, "x", 10**400, -(10**400)):
            assert line == before
