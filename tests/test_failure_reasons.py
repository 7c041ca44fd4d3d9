"""The reason of a failure from real texts of the programs that print them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.failure_reasons import KEPT_LINES, VICTIM, FailureReport, explain

TEXTS = yaml.safe_load(Path(__file__).with_name("failure_reasons.yaml").read_text())
UNKNOWN = TEXTS.pop(None)


@pytest.mark.parametrize("reason", TEXTS)
def test_each_known_text_has_its_reason_and_a_remedy(reason):
    for text in TEXTS[reason]:
        cause = explain(text)
        assert cause is not None
        assert cause.reason == reason
        assert cause.remedy


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_text_has_no_invented_reason(text):
    assert explain(text) is None
    assert explain(text, exit_code=1) is None


def test_the_scopes_of_a_job_come_with_its_account():
    remedy = explain("403 Request had insufficient authentication scopes.").remedy
    assert remedy.startswith("set service_account in distlaunch.yaml")


@pytest.mark.parametrize(("code", "part"), [(137, "SIGKILL"), (2, "called wrongly"), (139, "segm")])
def test_exit_codes_explain_what_no_text_does(code, part):
    assert part in explain("", exit_code=code).reason
    known = explain("ModuleNotFoundError: No module named 'x'", exit_code=code).reason
    assert known == "a Python module cannot be imported: x"


def test_tasks_that_lost_their_peers_are_victims():
    assert VICTIM.search("trainer: error: this task lost its peers: another task ended")
    assert VICTIM.search("tensorflow.python.framework.errors_impl.UnavailableError: Socket closed")
    assert not VICTIM.search("ModuleNotFoundError: No module named 'pandas'")


@given(st.lists(st.text(st.characters(exclude_characters="\n"))), st.text())
def test_a_report_keeps_the_last_lines_and_is_text_for_any_input(lines, text):
    report = FailureReport.of("worker:0", explain(text), lines)
    assert len(report.lines) <= KEPT_LINES
    assert all(line.strip() for line in report.lines)
    assert "worker:0 failed first" in report.text(with_lines=True)
    shown = report.text(with_lines=False, with_task=False)
    assert bool(shown) is (report.reason is not None)
