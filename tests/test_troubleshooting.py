"""docs/look-up/troubleshooting.md has the reasons and remedies that are printed, and no others."""

from __future__ import annotations

import ast
import re

import pytest

from distlaunch.failure_reasons import KNOWN_CAUSES, explain
from distlaunch.refusals import KNOWN_REASONS, find_remedy

CAUSE = re.compile(r"^\| `(.+)` \| (.+) \| (.+) \|$", re.MULTILINE)
REMEDY = re.compile(r"^\| `(.+)` \| (.+) \|$", re.MULTILINE)
SHORTEST = 4  # characters of a trainer's message between two of its values


@pytest.fixture(scope="module")
def parts(checkout):
    """The tables of causes, of refused calls and of the trainer's messages."""
    text = (checkout / "docs/look-up/troubleshooting.md").read_text(encoding="utf-8")
    heads = "Google refuses|Errors of the trainer|There is no error"
    return re.split(rf"^## (?:{heads})", text, flags=re.MULTILINE)


def test_each_text_has_the_cause_that_is_printed(parts):
    rows = CAUSE.findall(parts[0])
    for text, reason, remedy in rows:
        code = re.fullmatch(r"exit code (\d+)", text)
        cause = explain("", exit_code=int(code[1])) if code else explain(text)
        assert cause == (reason, remedy), text
    reasons = [reason for _, reason, _ in rows]
    for cause in KNOWN_CAUSES:
        head = cause.reason.partition("{name}")[0]
        assert any(reason.startswith(head) for reason in reasons), cause


def test_each_refusal_of_google_has_its_remedy(parts):
    rows = REMEDY.findall(parts[1])
    for text, remedy in rows:
        assert find_remedy(text).text == remedy
    reasons = [find_remedy(text).text for text, _ in rows]
    assert len(set(reasons)) == len(reasons) == len(KNOWN_REASONS)


def test_each_message_of_the_trainer_is_one(parts, checkout):
    package = checkout / "trainer_skeleton/runtime/distlaunch_trainer"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in package.rglob("*.py")]
    nodes = (node for tree in trees for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    printed = "\n".join(text for text in texts if isinstance(text, str))
    rows = CAUSE.findall(parts[2])
    assert rows
    for message, _, _ in rows:
        for part in message.split("…"):
            assert part in printed or len(part) < SHORTEST, message
