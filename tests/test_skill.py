"""docs/skill/SKILL.md is what tools/make_skill.py writes; test_documents.py runs its commands."""

from __future__ import annotations

import runpy

import pytest
import yaml


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
