"""A task's figures, and when its GPUs are idle; two tasks are in runs/test_figures.py."""

from __future__ import annotations

import json
import os
import threading
import time
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from distlaunch_trainer.loop.stopping import stop_vote
from distlaunch_trainer.report.figures import PLAN, STOP_IF, Figures, IdleLimit, IdleWatch
from distlaunch_trainer.report.utilization import measure_gpus
from distlaunch_trainer.task import messages, stop_signal

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/figures.json").read_text())
SHARES = st.none() | st.floats(0, 1)


@given(st.lists(st.tuples(SHARES, st.integers(60, 95))), st.floats(0.01, 1), st.integers(60, 600))
def test_gpus_are_idle_after_so_much_measured_time_however_slow_nvidia_smi_is(
    shares, limit, needed
):
    watch = IdleWatch(IdleLimit(limit, needed))
    for share, seconds in shares:
        watch.add(share, seconds)
    below = [(share < limit, seconds) for share, seconds in shares if share is not None]
    runs = [(kind, sum(s for _, s in run)) for kind, run in groupby(below, itemgetter(0))]
    kind, lasted = runs[-1] if runs else (False, 0)
    assert watch.is_idle is (None if not below else kind and lasted >= needed)


@given(st.lists(st.tuples(st.booleans(), st.none() | st.booleans()), min_size=1, max_size=64))
def test_all_stop_if_one_received_a_signal_or_all_that_measure_gpus_are_idle(tasks):
    votes = [stop_vote(received=r, is_idle=i, replicas=len(tasks)) for r, i in tasks]
    measured = [is_idle for _, is_idle in tasks if is_idle is not None]
    assert (sum(votes) > 0) is (any(r for r, _ in tasks) or (bool(measured) and all(measured)))


def test_only_the_gpus_of_the_task_are_measured(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        '#!/bin/sh\ncase "$*" in *--id=2,3) echo "40, 1024\n60, 512";; *--id=4) echo "[N/A], 9";; '
        "*) exit 1; esac\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    known = {"gpu": 0.5, "gpu_memory_gib": 1.5}
    for visible, values in (("2,3", known), ("-1", {}), ("4", {}), ("7", {})):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert measure_gpus() == values


def test_in_the_cloud_figures_are_an_entry_of_the_log(capsys, monkeypatch):
    golden = GOLDEN["entry"]
    monkeypatch.setenv("CLOUD_ML_JOB_ID", "7")
    messages.figures(golden["figures"])
    assert json.loads(capsys.readouterr().out) == golden
    figures = Figures({"DISTLAUNCH_FIGURES_SECONDS": "0.06"})
    figures.plan = {name: golden["figures"][name] for name in PLAN}
    with figures.training(lambda _: {"input": 0.25, "compute": 0.5, "exchange": 0.25}):
        time.sleep(0.1)
        assert not capsys.readouterr().out  # before the first step
        end = time.monotonic() + 20
        while not (out := capsys.readouterr().out) and time.monotonic() < end:
            figures.progress(120, 2, 10)
            time.sleep(0.01)
    values = json.loads(out.splitlines()[0])["figures"]
    assert values["examples_per_second"] > 0
    assert set(golden["figures"]) - set(values) <= {"gpu", "gpu_memory_gib"}
    monkeypatch.setenv("DISTLAUNCH_EVENTS", "events.jsonl")
    messages.figures(golden["figures"])
    assert not capsys.readouterr().out


def test_figures_that_cannot_be_written_end_nothing(monkeypatch, recwarn):
    monkeypatch.setenv("DISTLAUNCH_EVENTS", "/dev/full")
    figures = Figures({"DISTLAUNCH_FIGURES_SECONDS": "0.01"})
    with figures.training():
        figures.progress(1, 1, 10)
        [thread] = [each for each in threading.enumerate() if each.name == "figures"]
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()
    assert not recwarn.list


def test_the_limit_is_that_of_the_launcher():
    golden = GOLDEN["stop_if"]
    figures = Figures({STOP_IF: json.dumps(golden["value"])})
    assert (golden["variable"], golden["exit_code"]) == (STOP_IF, stop_signal.IDLE)
    assert f"stopped: {figures.limit} (stop_if): saved" in golden["error"]
    assert figures.is_idle is None
    assert str(IdleLimit(0.05, 90)) == "GPU use below 5 % for 90 s"
