"""Figures every minute, and a run that stops as the GPUs of both of its tasks are idle."""

from __future__ import annotations

import json
import os
import re

# The GPUs are busy until their task is in its third epoch.
NVIDIA_SMI = """#!/bin/sh
grep -q '"event": "step".*"epoch": 3' "$DISTLAUNCH_EVENTS" && echo 3, 1024 || echo 90, 2048
"""


def test_a_run_whose_gpus_become_idle_stops_saved(regression, tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(NVIDIA_SMI)
    smi.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "DISTLAUNCH_FIGURES_SECONDS": "0.3",
        "DISTLAUNCH_STOP_IF": json.dumps({"gpu_below": 0.1, "for": 0.9}),
    }
    options = ("--global-batch-size=12", "--checkpoint-every=1000")
    run = ("--workers", "2", "--restarts", "2", "--", "--allow-cpu", *options, "--epochs=9999")
    stopped = regression.run("distlaunch", "local", "--job-dir", "idle", *run, **env)

    assert stopped.code == 80, stopped.text
    reason = re.search(r"use below 10 % for 0\.9 s \(stop_if\): saved at step (\d+)", stopped.out)
    step = int(reason[1])
    assert step > 22
    assert "not restarted: the GPUs were idle (stop_if)" in stopped.err
    assert re.search(r"figures: \d.* examples/s; .*; GPU chief \d+ % [12].0 GiB, wor", stopped.err)
    for task in ("chief", "worker-0"):
        figures = [e for e in regression.events("idle", task) if e["event"] == "figures"]
        assert [each["gpu"] < 0.1 for each in figures[-3:]] == [True] * 3
        assert figures[-1]["step"] <= step
        shares = [
            sum(map(e.get, ("input", "compute", "exchange"))) for e in figures if "input" in e
        ]
        assert all(abs(share - 1) < 0.01 for share in shares)
        assert shares
    names = [path.name for path in (regression.folder / "idle/checkpoints").iterdir()]
    assert any(str(step) in name for name in names), names
