from __future__ import annotations

import json

from ..google.servers import Reply  # noqa: TID252 - tests are no package
from .cloud import PLACE

OK = "print('hello')"


def test_ours_are_listed_the_newest_first(cli, cloud):
    for number in (1, 2, 3):
        cloud.wait(cloud.launch(f"digits-{number}", OK))
    other = cloud.wait(cloud.launch("", OK, name="other", label=False))
    number = other["name"].rpartition("/")[2]

    done = cli("list", *cloud.options)
    head, *rows = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert head.split() == ["JOB", "NAME", "STATE", "CREATED", "TOOK"]
    assert [row.split()[:3] for row in rows] == [
        [f"digits-{n}", "digits", "SUCCEEDED"] for n in (3, 2, 1)
    ]
    assert head.index("STATE") == rows[0].index("SUCCEEDED")

    done = cli("list", "--all", "--limit", "2", *cloud.options)
    assert [row.split()[0] for row in done.stdout.splitlines()[1:]] == [number, "digits-3"]

    content = json.loads(cli("list", "--json", *cloud.options).stdout)
    assert [job["id"] for job in content] == ["digits-3", "digits-2", "digits-1"]


def test_one_invalid_job_is_skipped_with_a_warning(cli, serve):
    name = "projects/1/locations/us-central1/customJobs"
    listed = [{"name": f"{name}/1"}, {"name": f"{name}/2", "labels": 5}, {"name": f"{name}/3"}]
    server = serve(lambda request: Reply(body={request.path.rpartition("/")[2]: listed[:3]}))
    done = cli("list", "--endpoint", server.url, *PLACE)
    assert done.returncode == 0
    assert [row.split()[0] for row in done.stdout.splitlines()[1:]] == ["3", "3", "1", "1"]
    assert done.stderr.splitlines() == [
        f"distlaunch: warning: {server.url}: invalid response: {kind}[1].labels: "
        "expected an object, got 5; this job is skipped"
        for kind in ("customJobs", "hyperparameterTuningJobs")
    ]


def test_nothing_to_list(cli, cloud):
    cloud.launch("", OK, name="other", label=False)
    done = cli("list", *cloud.options)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "distlaunch: no jobs in project p, region us-central1 "
        "submitted by distlaunch (--all lists others)\n"
    )
    assert cli("list", "--json", *cloud.options).stdout == "[]\n"
