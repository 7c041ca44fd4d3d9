from __future__ import annotations

import json
import time

import pytest

from distlaunch.google.jobs import state

LONG = "import time; time.sleep(60)"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_job_is_cancelled_once(cli, cloud, flags):
    job = cloud.launch("digits-1", LONG)
    while state(cloud.jobs.get(job["name"])) != "RUNNING":
        time.sleep(0.05)
    done = cli("cancel", "digits-1", *flags, *cloud.options)
    assert (done.returncode, done.stderr) == (0, "")
    if flags:
        content = {"id": "digits-1", "name": job["name"], "cancelled": True}
        assert json.loads(done.stdout) == content
    else:
        expected = "cancelling digits-1; 'distlaunch status digits-1' shows when it has ended\n"
        assert done.stdout == expected
    assert state(cloud.wait(job)) == "CANCELLED"

    done = cli("cancel", "digits-1", *cloud.options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("distlaunch: error: digits-1: already finished (CANCELLED)\n")
