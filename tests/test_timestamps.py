from __future__ import annotations

import time

from distlaunch import timestamps


def test_a_time_is_so_long_ago():
    ages = {2.2: "2 s ago", 119: "1 min ago", 7_300: "2 h ago", 190_000: "2 d ago", -60: "0 s ago"}
    now = time.time()
    assert {age: timestamps.ago(timestamps.format(now - age)) for age in ages} == ages
    assert timestamps.ago(None) == timestamps.ago("soon") == ""


def test_a_time_of_this_machines_zone(monkeypatch):
    monkeypatch.setenv("TZ", "XXX-5:30")
    time.tzset()
    try:
        assert timestamps.local_time("2026-11-21T20:00:00.123456Z") == "2026-11-22 01:30:00.123"
    finally:
        monkeypatch.undo()
        time.tzset()
