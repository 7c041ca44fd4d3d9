from __future__ import annotations

from distlaunch.errors import did_you_mean


def test_did_you_mean():
    assert did_you_mean("wrkers", ["chief", "workers"]) == "; did you mean 'workers'?"
    assert did_you_mean("spot", ["STANDARD", "SPOT"]) == "; did you mean 'SPOT'?"
    assert did_you_mean("zzz", ["chief", "workers"]) == ""
    assert did_you_mean("zzz", []) == ""
