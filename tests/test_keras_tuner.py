"""The search with Keras Tuner that docs/do/tuning.md shows."""

from __future__ import annotations

import json
import os
import re

import pytest

JOB_FILE = "name: search\nmodule: search\ncluster: {chief: {machine: n1-standard-4}}\n"


@pytest.mark.docs
def test_the_documented_search_trains_each_trial(checkout, tensorflow, tmp_path):
    text = (checkout / "docs/do/tuning.md").read_text(encoding="utf-8")
    [script] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "search.py").write_text(script)
    (tmp_path / "distlaunch.yaml").write_text(JOB_FILE)
    # With one worker: the chief would wait 20 s for a second one.
    words = ("local", "--workers=2", "--job-dir=job")
    done = tensorflow.run("distlaunch", *words, cwd=tmp_path, env=os.environ)
    assert done.code == 0, done.text
    trials = [
        json.loads(path.read_text())
        for path in (tmp_path / "job/checkpoints/search").glob("trial_*/trial.json")
    ]
    assert [trial["status"] for trial in trials] == ["COMPLETED"] * 6
    assert len({trial["hyperparameters"]["values"]["learning_rate"] for trial in trials}) == 6
    best = min(trial["score"] for trial in trials)
    assert f"best: {best:.3f} with" in done.out
