"""`distlaunch status`, `logs`, `list`, `cancel` and `resubmit`."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from distlaunch import timestamps
from distlaunch.engines.vertex.jobs import state
from distlaunch.submit.records import Records

from ..engines.vertex.servers import in_turn, refused  # noqa: TID252 - tests are no package
from ..json_schemas import load_checked  # noqa: TID252 - tests are no package
from .cloud import LABEL, LOCATION, Cloud, new_record, number_of, objects

NAME = "projects/p/locations/us-central1/customJobs/1"

LINES = [f"line {number}" for number in range(3)]
# The chief's end is the job's, so it waits until the worker has printed its lines.
PROGRAM = """\
import os, pathlib, sys, time
is_chief = '"type": "workerpool0"' in os.environ["CLUSTER_SPEC"]
printed = pathlib.Path("printed-by-" + os.environ["CLOUD_ML_JOB_ID"])
while is_chief and not printed.exists():
    time.sleep(0.05)
print(*(f"line {number}" for number in range(3)), sep="\\n", flush=True)
printed.touch()
sys.exit({code} if is_chief else time.sleep(600))
"""
OK, FAILING = PROGRAM.replace("{code}", "0"), PROGRAM.replace("{code}", "7")
LONG = "import time; print('started', flush=True); time.sleep(600)"
ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b2J"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A cloud with three jobs that have ended in project p, the last one not of distlaunch."""
    with Cloud(tmp_path_factory.mktemp("cloud")) as cloud:
        launched = [
            cloud.launch(OK, "digits-1"),
            cloud.launch(FAILING, "digits-2"),
            cloud.launch(OK, name=ESCAPES),
        ]
        cloud.first, cloud.failed, cloud.foreign = map(cloud.wait, launched)
        yield cloud


@pytest.fixture
def running(cloud, tmp_path):
    """A running job in a project of the test."""
    project = f"p{abs(hash(tmp_path.name)) % 10**9}"
    job = cloud.launch(LONG, "digits-9", project=project)
    while state(job) != "RUNNING":
        time.sleep(0.05)
        job = cloud.jobs().get(job["name"])
    yield job, cloud.options(project)
    if not state(cloud.jobs().get(job["name"])).is_terminal:
        cloud.jobs().cancel(job["name"])


def facts(text: str) -> dict[str, str]:
    lines = (re.split("  +", line, maxsplit=1) for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, value in lines}


# status


def test_status_by_each_name_of_a_job(run, cloud):
    names = ("digits-1", number_of(cloud.first), cloud.first["name"])
    shown = [run("status", name, *cloud.options()).out for name in names]
    (text,) = {re.sub(r" \(\d+ \w+ ago\)", "", text) for text in shown} - {*shown}
    status = facts(text)
    assert [status[key] for key in ("job", "name", "state")] == ["digits-1", "digits", "SUCCEEDED"]
    assert status["waited"].endswith(" s")
    assert status["took"].endswith(" s")
    assert status["tasks"] == "chief 1 x n1-standard-4 + workers 1 x n1-standard-4"
    assert status["queued"].startswith("20")
    assert (status["endpoint"], "link" in status) == (cloud.address, False)
    newest = run("status", "digits", *cloud.options()).out  # of two with this name
    assert facts(newest)["job"] == "digits-2"


def test_status_as_json(run, cloud):
    done = run("status", "digits-2", "--json", *cloud.options())
    status = load_checked("show", done.out)
    assert (done.code, done.err) == (0, "")
    expected = {"id": "digits-2", "name": cloud.failed["name"], "state": "FAILED"}
    assert expected.items() <= status.items()
    assert "non-zero status of 7" in status["error"]
    assert status["waited"] + status["seconds"] > 0
    assert status["configuration"]["pools"][0]["machine"] == "n1-standard-4"
    assert (status["endpoint"], status["failure"]["task"]) == (cloud.address, "chief")


# Prints what the trainer does every minute, among lines of its own.
# A program's own field of that name is none of them.
FIGURES = """\
import json, os
own = json.dumps({"message": "epoch 1", "figures": {"a": 1}})
print(own, json.dumps({entry}), "epoch 2", sep="\\n", flush=True)
"""


def test_figures_are_shown_as_such(run, cloud, tmp_path, monkeypatch):
    """The chief's lines and figures; those of the worker come before its end or not at all."""
    golden = json.loads((Path(__file__).parents[1] / "golden/figures.json").read_text())
    program = FIGURES.replace("{entry}", repr(golden["entry"]))
    options = cloud.options("figures")
    job = cloud.wait(cloud.launch(program, "digits-4", [], project="figures"))
    (tmp_path / "distlaunch.prices.yaml").write_text(
        "currency: EUR\nus-central1: {STANDARD: {n1-standard-4: 36000}}\n"
    )
    shown = run("logs", "digits-4", "--task", "chief", *options)
    assert shown.out == "chief | epoch 1\nchief | epoch 2\n"
    assert shown.err == f"distlaunch: figures: {'; '.join(golden['text'])}\n"
    followed = run("logs", "digits-4", "--task", "chief", "--follow", *options)
    assert followed.err.endswith(f"{golden['text'][-1]}\n")  # an emulator costs nothing
    monkeypatch.setattr("distlaunch.submit.follow.is_loopback", lambda _: False)
    followed = run("logs", "digits-4", "--task", "chief", "--follow", *options)
    assert re.search(r"figures: .*12\.1 GiB; \d+\.\d\d EUR so far\n", followed.err)
    events = objects(run("logs", "digits-4", "--task", "chief", "--json", *options).out)
    assert [each["event"] for each in events] == ["line", "trained", "line"]
    assert golden["entry"]["figures"].items() <= events[1]["data"].items()
    for words in (["--grep", "figures"], ["--tail", "2"]):
        assert "figures" not in run("logs", "digits-4", *words, *options).err
    status = load_checked("show", run("status", "digits-4", "--json", *options).out)
    assert golden["entry"]["figures"].items() <= status["figures"]["chief"].items()
    assert status["cost"]["currency"] == "EUR"
    shown = facts(run("status", number_of(job), *options).out)
    assert shown["figures"] == "; ".join(golden["text"])
    assert shown["cost"] == "nothing: an emulator"


def test_a_broken_price_file_leaves_the_cost_out(run, cloud, tmp_path):
    (tmp_path / "distlaunch.prices.yaml").write_text("currency: [\n")
    done = run("status", "digits-1", *cloud.options())
    assert (done.code, "cost" in facts(done.out)) == (0, False)


def test_the_newest_record_is_the_default_and_its_endpoint_is_used_and_named(run, cloud, tmp_path):
    for number, job in ((1, cloud.first), (2, cloud.failed)):
        time_of_launch = f"2026-11-21T17:00:0{number}Z"
        cloud.record(tmp_path, f"digits-{number}", job, time=time_of_launch)
    newest = run("status")
    assert facts(newest.out)["job"] == "digits-2"
    notice = f"distlaunch: using endpoint {cloud.address}, where digits-2 was submitted\n"
    assert (newest.code, newest.err) == (0, notice)
    assert facts(run("status", "digits-1").out)["job"] == "digits-1"


def test_a_url_without_the_token_is_refused_with_the_remedy(run, cloud):
    done = run("list", *cloud.options(), "--endpoint", cloud.address)
    remedy = "use the whole URL that the emulator has printed"
    assert (done.code, done.out, remedy in done.err) == (1, "", True)
    assert "roles/" not in done.err


def test_project_and_region_come_from_the_job_file(run, cloud, tmp_path, no_credentials):
    words = ("status", "digits-1", "--endpoint", cloud.url)
    file = tmp_path / "distlaunch.yaml"
    file.write_text("project: p\nregion: us-central1\nbroken: [\n")
    assert run(*words).code == 1
    file.write_text("project: p\nregion: us-central1\nwrong: 1\n")
    assert facts(run(*words).out)["job"] == "digits-1"


NO_ENDPOINT = ("--endpoint", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no jobs submitted from this directory; pass a job ID (see 'distlaunch list')"),
        (("digits-1", "--region", "r1"), "'gcloud config set project ID'"),
        (("digits-1", "--project", "p"), "'gcloud config set ai/region R'"),
        (("digits-1", *LOCATION), "run 'gcloud auth application-default login'"),
        (
            ("a/b", *NO_ENDPOINT),
            "'a/b' is not a job; expected projects/P/locations/R/customJobs/NUM",
        ),
        (("digits-1", *LOCATION, *NO_ENDPOINT), "start 'distlaunch emulator' there"),
    ],
)
@pytest.mark.usefixtures("no_credentials")
def test_a_missing_setting_is_an_error_with_its_remedy(run, words, expected):
    done = run("status", *words)
    assert (done.code, done.out, done.err.count("\n"), expected in done.err) == (1, "", 1, True)


def test_a_job_that_does_not_exist_is_an_error_with_a_similar_name(run, cloud, tmp_path):
    cloud.record(tmp_path, "digits-1", cloud.first)
    message = (
        "distlaunch: error: no job 'digit-1' in project p, region us-central1; did you mean "
        "'digits-1'?; see 'distlaunch list'\n"
    )
    assert run("status", "digit-1", *cloud.options()) == (1, "", message)
    assert "no job '12345' in project p" in run("status", "12345", *cloud.options()).err


def test_a_launch_that_was_interrupted_before_google_had_its_job(run, cloud, tmp_path):
    cloud.record(tmp_path, "digits-7", None)
    done = run("status")
    problem = "digits-7: the launch was interrupted before its job was created; run"
    assert (done.code, f"error: {problem} 'distlaunch submit' to fin" in done.err) == (1, True)


@pytest.fixture
def remote(serve, trusted, user, tmp_path):
    """A server with a trusted certificate, named by a record that came with the folder."""
    server = serve(in_turn(refused(404)), trusted)
    Records(tmp_path).write(new_record(endpoint=server.url, resource=NAME))
    return server


@pytest.mark.parametrize("words", ["status", "logs digits-1", f"cancel {NAME}", "resubmit"])
def test_no_credentials_go_to_an_endpoint_that_only_a_record_names(run, remote, words):
    assert run(*words.split()) == (
        1,
        "",
        f"distlaunch: error: digits-1: its record names the endpoint {remote.url}, and credentials "
        "are sent to a remote endpoint only if it is given on the command line; if you trust it, "
        f"pass --endpoint {remote.url}\n",
    )
    assert remote.requests == []


def test_an_endpoint_of_the_command_line_gets_credentials(run, remote):
    done = run("status", "--endpoint", remote.url)
    assert (done.code, "not found: No" in done.err) == (1, True)
    assert remote.requests[0].headers["authorization"] == "Bearer the-token"


# list


def test_jobs_of_distlaunch_are_listed_the_newest_first(run, cloud):
    done = run("list", *cloud.options())
    head, *rows = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert head.split() == ["JOB", "NAME", "STATE", "CREATED", "TOOK", "COST"]
    assert [row.split()[:3] for row in rows] == [
        ["digits-2", "digits", "FAILED"],
        ["digits-1", "digits", "SUCCEEDED"],
    ]
    assert head.index("STATE") == rows[0].index("FAILED")
    assert all(re.search(r"  \d+ (s|min) ago  .*  -$", row) for row in rows)
    done = run("list", "--all", "--limit", "2", *cloud.options())
    ids = [row.split()[0] for row in done.out.splitlines()[1:]]
    assert ids == [number_of(cloud.foreign), "digits-2"]
    jobs = json.loads(run("list", "--json", *cloud.options()).out)
    assert [job["id"] for job in jobs] == ["digits-2", "digits-1"]
    assert (jobs[0]["created"][:2], jobs[0]["cost"]["amount"] >= 0) == ("20", True)


def test_a_job_name_cannot_send_escapes_to_the_terminal(run, cloud):
    for words in (["status", number_of(cloud.foreign)], ["list", "--all"]):
        done = run(*words, *cloud.options())
        assert r"\x1b]0;title\x07\x1b[2J\u009b2J" in done.out
        assert not set(done.out) & set("\x1b\x07\x9b")
    [foreign, *_] = json.loads(run("list", "--all", "--json", *cloud.options()).out)
    assert foreign["display_name"] == ESCAPES


def test_nothing_to_list(run, cloud):
    notice = "no jobs in project empty, region us-central1 submitted by distlaunch (--all lists oth"
    done = run("list", *cloud.options("empty"))
    assert (done.code, done.out, notice in done.err) == (0, "", True)
    assert run("list", "--json", *cloud.options("empty")).out == "[]\n"


# logs


def test_all_lines_of_a_job_and_those_of_one_task(run, cloud):
    words = ("logs", "digits-1", *cloud.options())
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    for task in ("chief   ", "worker:0"):
        shown = [line for line in lines if line.startswith(task)]
        assert shown == [f"{task} | {text}" for text in LINES]
    assert "vertex   | Job completed successfully." in lines
    done = run(*words, "--task", "worker:0")
    assert done.out == "".join(f"worker:0 | {text}\n" for text in LINES)
    message = "--task worker:1: no such task in this job; there are: chief, worker:0, vertex"
    assert run(*words, "--task", "worker:1") == (2, "", f"distlaunch: error: {message}\n")


def test_lines_as_json(run, cloud):
    done = run("logs", "digits-1", "--task", "chief", "--json", *cloud.options())
    lines = objects(done.out)
    values = [[line[key] for key in ("event", "task", "severity", "text")] for line in lines]
    assert values == [["line", "chief", "INFO", text] for text in LINES]
    assert all(line["time"].endswith("Z") for line in lines)


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_lines_with_their_times(run, cloud, follow):
    words = ("--task", "chief", "--timestamps", *follow, *cloud.options())
    lines = run("logs", "digits-1", *words).out.splitlines()
    today = timestamps.local_time(cloud.first["createTime"])[:8]  # to the month
    assert [re.sub(rf"chief \| {today}\d\d \S+\.\d{{3}} ", "", line) for line in lines] == LINES


def test_a_part_of_the_log(run, cloud):
    words = ("logs", "digits-1", "--task", "chief", *cloud.options())
    assert run(*words, "--tail", "1").out == "chief | line 2\n"
    assert run(*words, "--grep", "[02]$").out == "chief | line 0\nchief | line 2\n"
    assert run(*words, "--since", "1h").out.count("line") == 3
    assert run(*words, "--since", "2999-01-01T00:00").out == ""
    for wrong in ("--since=soon", "--grep=(", "--tail=-1"):
        done = run(*words, wrong)
        assert (done.code, done.err.count("\n")) == (2, 1)


# cancel


@pytest.mark.parametrize("is_json", [False, True])
def test_a_running_job_is_noted_and_cancelled_once(run, cloud, running, is_json):
    job, options = running
    assert "the job is RUNNING; use --follow to continue\n" in run("logs", "digits-9", *options).err
    done = run("cancel", "digits-9", *["--json"] * is_json, *options)
    expected = json.dumps({"id": "digits-9", "name": job["name"], "cancelled": True})
    if not is_json:
        expected = "cancelling digits-9; 'distlaunch status digits-9' shows when it has ended"
    assert done == (0, f"{expected}\n", "")
    assert state(cloud.wait(job)) == "CANCELLED"
    message = "distlaunch: error: digits-9: already finished (CANCELLED)\n"
    assert run("cancel", "digits-9", *options) == (1, "", message)


# resubmit


def resubmitted(run, cloud, job, *words):
    """Resubmit a job and return the new one."""
    done = run("resubmit", job["name"], *cloud.options("again"), "--detach", *words)
    assert done.code == 0, done.err
    return cloud.jobs("again").find("customJobs", done.out.strip())


def folders(job):
    """Return the output directory, and the args of each pool."""
    spec = job["jobSpec"]
    args = [pool["containerSpec"].get("args") for pool in spec["workerPoolSpecs"]]
    return spec.get("baseOutputDirectory", {}).get("outputUriPrefix"), args


@pytest.mark.parametrize(
    ("launch_id", "job_dir", "expected"),
    [
        ("digits-1", "gs://bucket/digits/digits-1", "gs://bucket/digits/{id}"),
        ("digits-1", "gs://bucket/fixed", "gs://bucket/fixed/{id}"),
        ("", "gs://bucket/my-run", "gs://bucket/my-run/{id}"),
        ("", "gs://bucket/", "gs://bucket/{id}"),
    ],
    ids=["of submit", "with --job-dir", "foreign", "a whole bucket"],
)
def test_two_jobs_never_write_to_one_folder(launch_id, job_dir, expected, run, cloud):
    def args(folder):
        return ["--data=gs://bucket/fixed", f"--job-dir={folder}"], ["--job-dir", folder, "--x"]

    first = cloud.launch("", launch_id, *args(job_dir), project="again", job_dir=job_dir)
    second = resubmitted(run, cloud, first)
    third = resubmitted(run, cloud, second)
    for job in (second, third):
        folder = expected.format(id=job["labels"][LABEL])
        assert folders(job) == (folder, [*args(folder)])


@pytest.mark.parametrize("arg", ["--epochs=5", "--job-dir=gs://bucket/fixed"])
def test_a_job_that_names_no_folder_is_resubmitted_with_a_warning(arg, run, cloud):
    first = cloud.launch("", "", [arg], project="again")
    done = run("resubmit", first["name"], *cloud.options("again"), "--detach")
    warning = "warning: this job names no output directory"
    assert (done.code, warning in done.err) == (0, "job-dir" not in arg)


def test_fields_are_overridden_and_arguments_appended(run, cloud):
    words = ["--a=${HOME}"]
    first = cloud.launch("", "", words, words, project="again", job_dir="gs://bucket/fixed")
    fields = ("cluster.workers.count=3", "labels.team=vision", "name=other")
    overrides = [f"--set={field}" for field in fields]
    job = resubmitted(run, cloud, first, *overrides, "--", "--b", "2")
    assert job["displayName"] == "other"
    assert job["labels"][LABEL].startswith("other-2")
    pools = job["jobSpec"]["workerPoolSpecs"]
    assert [int(pool["replicaCount"]) for pool in pools] == [1, 3]
    for pool in pools:
        assert pool["containerSpec"]["args"] == ["--a=${HOME}", "--b", "2"]
        assert pool["containerSpec"]["command"] == ["python", "-c", ""]
    assert job["labels"]["team"] == "vision"
    assert folders(job)[0] == f"gs://bucket/fixed/{job['labels'][LABEL]}"
    refused = run("resubmit", first["name"], *cloud.options("again"), "--set", "cluster.x=1")
    assert (refused.code, "--set cluster.x" in refused.err) == (1, True)


@pytest.mark.usefixtures("no_credentials")
def test_an_unknown_job_is_named_also_without_credentials(run, tmp_path):
    (tmp_path / "distlaunch.yaml").write_text("project: demo-project\nregion: us-central1\n")
    done = run("status", "digist", cwd=tmp_path)
    assert done.code == 1
    unknown = "no job 'digist' was submitted from this directory, and no other was searched: "
    assert unknown in done.err
