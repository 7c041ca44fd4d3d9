from __future__ import annotations

from distlaunch.errors import DistlaunchError, JobFileError, UsageError, did_you_mean


def test_exit_codes():
    assert DistlaunchError("x").exit_code == JobFileError(["x"]).exit_code == 1
    assert UsageError("x").exit_code == 2


def test_lines():
    assert DistlaunchError("one").lines == ("one",)
    assert JobFileError(["one", "two"]).lines == ("one", "two")
    assert str(JobFileError(["one", "two"])) == "one; two"


def test_did_you_mean():
    assert did_you_mean("wrkers", ["chief", "workers"]) == "; did you mean 'workers'?"
    assert did_you_mean("spot", ["STANDARD", "SPOT"]) == "; did you mean 'SPOT'?"
    assert did_you_mean("zzz", ["chief", "workers"]) == ""
    assert did_you_mean("zzz", []) == ""
