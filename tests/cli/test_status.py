from __future__ import annotations

import json

import pytest

from .cloud import PLACE

OK = "print('hello')"
BAD = "raise SystemExit(7)"


def test_a_job_of_each_name_that_it_has(cli, cloud):
    job = cloud.wait(cloud.launch("digits-1", OK))
    number = job["name"].rpartition("/")[2]
    shown = {
        cli("status", which, *cloud.options).stdout
        for which in ("digits-1", "digits", number, job["name"])
    }
    (text,) = shown
    facts = dict(line.split("  ", 1) for line in text.splitlines())
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    assert facts["job"] == "digits-1"
    assert (facts["name"], facts["state"]) == ("digits", "SUCCEEDED")
    assert facts["pending"].endswith(" s")
    assert facts["running"].endswith(" s")
    assert facts["chief"] == facts["workers"] == "1 x n1-standard-4"
    assert facts["created"].startswith("20")
    assert facts["endpoint"] == cloud.url
    assert "link" not in facts


def test_status_as_json(cli, cloud):
    job = cloud.wait(cloud.launch("digits-1", BAD))
    done = cli("status", "digits-1", "--json", *cloud.options)
    content = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert content["id"] == "digits-1"
    assert content["name"] == job["name"]
    assert content["state"] == "FAILED"
    assert "non-zero status of 7" in content["error"]
    assert set(content["seconds"]) == {"pending", "running"}
    assert (content["pools"][0]["machine"], content["endpoint"]) == ("n1-standard-4", cloud.url)


def test_a_job_name_cannot_send_escapes_to_the_terminal(cli, cloud):
    name = "\x1b]0;title\x07\x1b[2J\x9b2J"
    cloud.wait(cloud.launch("digits-1", OK, name=name))
    for words in (["status", "digits-1"], ["list"]):
        done = cli(*words, *cloud.options)
        assert r"\x1b]0;title\x07\x1b[2J\u009b2J" in done.stdout
        assert not set(done.stdout) & set("\x1b\x07\x9b")
    (job,) = json.loads(cli("list", "--json", *cloud.options).stdout)
    assert job["display_name"] == name


def test_the_newest_record_is_meant_where_none_is_named(cli, cloud):
    for number in (1, 2):
        job = cloud.wait(cloud.launch(f"digits-{number}", OK))
        cloud.record(job, f"digits-{number}", time=f"2026-11-21T17:00:0{number}Z")
    assert cli("status").stdout.splitlines()[0].split() == ["job", "digits-2"]
    assert cli("status", "digits-1").stdout.splitlines()[0].split() == ["job", "digits-1"]


def test_project_and_region_come_from_the_job_file(cli, cloud, tmp_path):
    cloud.wait(cloud.launch("digits-1", OK))
    (tmp_path / "distlaunch.yaml").write_text("project: p\nregion: us-central1\nbroken: [\n")
    done = cli("status", "digits-1", "--endpoint", cloud.url, env=BARE)
    assert done.returncode == 1
    (tmp_path / "distlaunch.yaml").write_text("project: p\nregion: us-central1\nwrong: 1\n")
    done = cli("status", "digits-1", env=BARE | {"DISTLAUNCH_ENDPOINT": cloud.url})
    assert done.stdout.splitlines()[0].split() == ["job", "digits-1"]


BARE = {"PATH": "/usr/bin:/bin", "CLOUDSDK_CONFIG": "/nowhere", "NO_GCE_CHECK": "true"}
NAMED = "pass a job ID (see 'distlaunch list')"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), f"no jobs submitted from this directory; {NAMED}"),
        (
            ("digits-1", "--region", "r1"),
            "project: no project set; set project: or --project ID, or run "
            "'gcloud config set project ID'",
        ),
        (
            ("digits-1", "--project", "p"),
            "region: no region set; set region: (e.g. us-central1) or --region R, or run "
            "'gcloud config set ai/region R'",
        ),
        (
            ("digits-1", *PLACE),
            "no credentials for Google Cloud; run 'gcloud auth application-default login'",
        ),
        (
            ("a/b", "--endpoint", "http://127.0.0.1:9"),
            "'a/b' is not a job; expected projects/P/locations/R/customJobs/NUMBER",
        ),
        (
            ("digits-1", *PLACE, "--endpoint", "http://127.0.0.1:9"),
            "cannot reach http://127.0.0.1:9 (connection refused); "
            "start 'distlaunch emulator' there",
        ),
    ],
)
def test_a_missing_setting_is_an_error_with_its_remedy(cli, words, expected):
    done = cli("status", *words, env=BARE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"distlaunch: error: {expected}\n"


def test_a_job_that_does_not_exist_is_an_error_with_a_similar_name(cli, cloud):
    cloud.record(cloud.launch("digits-1", OK), "digits-1")
    done = cli("status", "digit-1", *cloud.options)
    assert done.returncode == 1
    assert done.stderr == (
        "distlaunch: error: no job 'digit-1' in project p, region us-central1; did you mean "
        "'digits-1'?; see 'distlaunch list'\n"
    )
    done = cli("status", "12345", *cloud.options)
    assert "no job '12345' in project p" in done.stderr


def test_a_launch_that_was_cut_off_before_google_had_it(cli, cloud):
    cloud.record(None, "digits-1")
    done = cli("status")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "distlaunch: error: digits-1: the launch was interrupted before Google had its job; run "
        "'distlaunch submit' to finish it\n"
    )


def test_the_endpoint_of_the_submit_is_used_and_named(cli, cloud):
    job = cloud.wait(cloud.launch("digits-1", OK))
    cloud.record(job, "digits-1")
    done = cli("status")
    assert done.returncode == 0
    notice = f"distlaunch: using endpoint {cloud.url}, where digits-1 was submitted\n"
    assert done.stderr == notice
