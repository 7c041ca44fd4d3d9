"""`distlaunch shell`: the page or the command of a shell in a task, or why there is none."""

from __future__ import annotations

import json

import pytest
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from distlaunch.engines.api import JobState
from distlaunch.engines.slurm.commands import QueuedJob
from distlaunch.job.model import STOP_IF

from ..fake_google import FakeGoogle  # noqa: TID252 - tests are no package
from ..json_schemas import load_checked  # noqa: TID252 - tests are no package

NAME = "projects/123/locations/us-central1/customJobs/7"
TUNED = NAME.replace("customJobs", "hyperparameterTuningJobs")
NODES = ("workerpool1-10", "workerpool1-2", "workerpool0-0")
POOLS = [{"replicaCount": "1"}, {"replicaCount": "11"}]
MESSAGES = {
    NAME: types.CustomJob.pb(),
    TUNED: types.HyperparameterTuningJob.pb(),
}


def uris(of: str = "") -> dict[str, str]:
    return {node: f"https://{of}{node}.aiplatform-training.googleusercontent.com" for node in NODES}


def job_of(state: str = "RUNNING", **more) -> dict:
    spec = {"workerPoolSpecs": POOLS, "enableWebAccess": True}
    job = {"name": NAME, "state": f"JOB_STATE_{state}", "displayName": "digits", "jobSpec": spec}
    labels = {"labels": {"distlaunch-launch": "digits-1"}}
    return job | labels | more


@pytest.fixture
def google(monkeypatch, tmp_path):
    """Answer for one job, which has to be a message of Google's."""
    fake = FakeGoogle()
    fake.install(monkeypatch, tmp_path)

    def answer(job: dict) -> FakeGoogle:
        json_format.ParseDict(job, MESSAGES[job["name"]]())
        fake.answers = {"Jobs/7": job}
        return fake

    return answer


def place(job: dict) -> tuple[str, ...]:
    return (job["name"], "--project=demo-project", "--region=us-central1")


def test_each_task_has_a_page_and_status_lists_them(run, google):
    job = job_of(webAccessUris=uris())
    google(job)
    for words, node in (((), "0-0"), (("--task=worker:10",), "1-10")):
        expected = f"https://workerpool{node}.aiplatform-training.googleusercontent.com\n"
        assert run("shell", *place(job), *words) == (0, expected, "")
    status = load_checked("show", run("status", *place(job), "--json").out)
    assert [*status["web_access"]] == ["chief", "worker:2", "worker:10"]
    assert status["web_access"]["worker:2"] == uris()["workerpool1-2"]
    assert f"worker:2  {uris()['workerpool1-2']}\n" in run("status", *place(job)).out


def test_the_trials_of_a_tuning_job_have_pages_while_they_run(run, google):
    trials = [
        {"id": "1", "state": "SUCCEEDED", "webAccessUris": uris("1-")},
        {"id": "2", "state": "ACTIVE", "webAccessUris": uris("2-")},
        {"id": "3", "state": "ACTIVE", "webAccessUris": uris("3-")},
        {"id": "4", "state": "REQUESTED"},
    ]
    spec = job_of()["jobSpec"]
    job = {"name": TUNED, "state": "JOB_STATE_RUNNING", "maxTrialCount": 4, "trialJobSpec": spec}
    google(job | {"trials": trials})
    for task, start in (("chief", "2-"), ("trial:3/worker:2", "3-workerpool1-2")):
        assert run("shell", *place(job), "--task", task).out.startswith(f"https://{start}")
    done = run("shell", *place(job), "--task", "trial:4/chief")
    assert "no shell in trial:4/chief; there are: trial:2/chief, trial:3/chief, tr" in done.err


@pytest.mark.parametrize(
    ("job", "words", "end"),
    [
        (job_of("PENDING"), "", (1, "digits-1: its tasks have not started: the job is PENDING")),
        (job_of("FAILED", webAccessUris=uris()), "", (1, "its tasks have ended: the job is FAI")),
        (job_of(), "", (1, "digits-1: no shells yet; try again in a minute")),
        (job_of(), "--task=worker:11", (2, "--task worker:11: no such task in this job")),
        (job_of(), "--task=vertex", (2, "--task vertex: no such task in this job")),
        (
            job_of(jobSpec={"workerPoolSpecs": POOLS}),
            "",
            (1, "'distlaunch resubmit digits-1 --set web_access=true'"),
        ),
    ],
)
def test_why_there_is_none(run, google, job, words, end):
    code, message = end
    google(job)
    done = run("shell", *place(job), *words.split())
    assert (done.code, done.out, message in done.err) == (code, "", True), done.err


def test_a_resubmitted_job_has_web_access(run, google):
    container = {"imageUri": "us-docker.pkg.dev/demo-project/a/b@sha256:0"}
    machine = {"machineType": "n1-standard-4"}
    pool = {"machineSpec": machine, "replicaCount": "1", "containerSpec": container}
    job = job_of("FAILED", jobSpec={"workerPoolSpecs": [pool], "enableWebAccess": False})
    fake = google(job)
    done = run("resubmit", *place(job), "--detach", "--set", "web_access=true")
    assert done.code == 0, done.err
    [created] = fake.jobs["customJobs"]
    assert created["jobSpec"]["enableWebAccess"] is True


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("stop_if={gpu_below: 20%, for: 2h}", {"gpu_below": 0.2, "for": 7200}),
        ("stop_if=null", None),
        ("labels.a=b", {"gpu_below": 0.1, "for": 3600}),
    ],
)
def test_a_resubmitted_job_has_the_stop_if_of_an_override(run, google, override, value):
    limit = {"name": STOP_IF, "value": json.dumps({"gpu_below": 0.1, "for": 3600})}
    container = {"imageUri": "a/b@sha256:0", "env": [limit, {"name": "A", "value": "b"}]}
    machine = {"machineType": "n1-standard-4"}
    pool = {"machineSpec": machine, "replicaCount": "1", "containerSpec": container}
    fake = google(job_of("FAILED", jobSpec={"workerPoolSpecs": [pool, pool]}))
    done = run("resubmit", *place(job_of()), "--detach", "--set", override)
    assert done.code == 0, done.err
    [created] = fake.jobs["customJobs"]
    for pool in created["jobSpec"]["workerPoolSpecs"]:
        env = {each["name"]: each["value"] for each in pool["containerSpec"]["env"]}
        assert env.pop("A") == "b"
        assert {name: json.loads(text) for name, text in env.items()} == (
            {STOP_IF: value} if value else {}
        )


def test_the_emulator_has_no_shells(run, cloud):
    job = cloud.launch("import time; time.sleep(60)", "digits-9")
    while "RUNNING" not in cloud.jobs().get(job["name"])["state"]:
        pass
    done = run("shell", "digits-9", "--task", "worker:0", *cloud.options())
    assert (done.code, "the emulator has no web access" in done.err) == (1, True), done.err


SRUN = "srun --jobid=41 --overlap --nodes=1 --ntasks=1 --nodelist=node7 --pty bash"


@pytest.fixture
def on_slurm(tmp_path, monkeypatch):
    """A running job of a chief and a worker, whose nodes are known."""
    file = "name: digits\nengine: slurm\nmodule: program\nslurm: {folder: JOBS}\n"
    text = f"{file}cluster: {{chief: {{}}, workers: {{count: 1}}}}\n".replace("JOBS", str(tmp_path))
    (tmp_path / "distlaunch.yaml").write_text(text)
    launch = tmp_path / "digits" / "digits-1"
    attempt = launch / "task-logs" / "attempt-1"
    attempt.mkdir(parents=True)
    (launch / "job").symlink_to("41")
    (launch / "batch.sh").touch()
    cluster = {"chief": {}, "workers": {"count": 1}}
    job = {"name": "digits", "engine": "slurm", "cluster": cluster}
    (launch / "launch.json").write_text(json.dumps({"job": job, "job_dir": str(launch)}))
    (attempt / "worker-0.node").write_text("node7")
    queued = QueuedJob("41", "RUNNING", "", None, "2026-11-21T17:00:00Z", None, "digits-1")
    assert queued.state is JobState.RUNNING
    monkeypatch.setattr("distlaunch.engines.slurm.commands.read_queue", lambda: [queued])


def test_on_slurm_it_is_a_step_on_the_node_of_the_task(run, on_slurm):
    assert run("shell", "digits-1", "--task=worker:0") == (0, f"{SRUN}\n", "")
    assert "chief has not started yet; try again" in run("shell", "digits-1").err


def test_on_a_terminal_the_page_and_the_step_are_opened(
    run, google, on_slurm, tmp_path, monkeypatch
):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("subprocess.call", lambda words: opened.append(" ".join(words)) or 7)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("BROWSER", "firefox")
    job = job_of(webAccessUris=uris())
    google(job)
    page = uris()["workerpool0-0"]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for words, shown in (((), [page]), (("--print",), [])):
        opened.clear()
        done = run("shell", *place(job), *words, cwd=folder)
        assert (done, opened) == ((0, f"{page}\n", ""), shown)
    assert run("shell", "digits-1", "--task=worker:0") == (7, "", "")
    assert opened == [SRUN]
    assert run("shell", "digits-1", "--task=worker:0", "--print").out == f"{SRUN}\n"
    monkeypatch.delenv("BROWSER")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run("shell", *place(job), cwd=folder) == (0, f"{page}\n", "")
    assert opened == [SRUN]
