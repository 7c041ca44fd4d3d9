"""docs/skill/SKILL.md is what tools/make_skill.py generates, and its workflow runs."""

from __future__ import annotations

import re
import runpy
import time

import pytest
import yaml

PROGRAM = """\
import os, pathlib, time
folder = pathlib.Path(os.environ["AIP_MODEL_DIR"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "model.keras").write_text("weights")
print("saved", flush=True)
time.sleep(600)
"""
JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
image: {uri: "localhost:5000/unused/image:1"}
cluster: {chief: {machine: n1-standard-4}}
scheduling: {timeout: 2h}
"""


@pytest.fixture(scope="module")
def skill(checkout):
    return (checkout / "docs/skill/SKILL.md").read_text("utf-8")


def test_generated_parts_are_those_of_this_version(checkout, skill):
    updated = runpy.run_path(str(checkout / "tools/make_skill.py"))["updated"]
    assert updated(skill) == skill, "run python tools/make_skill.py"
    assert updated(skill.replace("- 2: usage error\n", "- 2: stale\n")) == skill


def test_agents_can_load_it(skill):
    _, front, text = skill.split("---\n", 2)
    facts = yaml.safe_load(front)
    assert (facts.keys(), facts["name"]) == ({"name", "description"}, "distlaunch")
    assert len(facts["description"]) <= 1024
    assert text.count("\n") < 250


@pytest.mark.slow
def test_launch_of_its_workflow_runs_at_the_emulator(skill, cli, emulator, tmp_path):
    block = re.search(r"```sh\n(.*?)```", skill, re.DOTALL)[1]
    commands = re.findall(r"^distlaunch (.*?) +#", block, re.MULTILINE)
    launch = commands[commands.index("check --offline") :]  # the first ones train: see README.md
    assert launch[1].startswith("submit --dry-run --max-cost ")
    assert launch[-1] == "cancel"
    (tmp_path / "distlaunch.yaml").write_text(JOB_FILE)
    (tmp_path / "trainer.py").write_text(PROGRAM)
    server = emulator(project=tmp_path)
    for command in launch:
        if command.startswith("fetch"):
            deadline = time.monotonic() + 60
            while not [*server.storage.rglob("model.keras")] and time.monotonic() < deadline:
                time.sleep(0.05)
        done = cli(*command.split(), env=server.environment)
        assert done.returncode == 0, (command, done.stderr)
        if "--dry-run" in command:
            assert "up to its timeout" in done.stderr
            assert server.jobs() == []
    [fetched] = (tmp_path / "fetched").rglob("model.keras")
    assert fetched.read_text() == "weights"
    assert len(server.jobs()) == 1
