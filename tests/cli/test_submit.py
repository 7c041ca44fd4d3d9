from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import emulators
import pytest

from distlaunch.scaffold import plan

from ..engines.vertex.servers import in_turn, refused  # noqa: TID252 - tests are no package
from .cloud import LABEL, Cloud, write_project
from .terminal import run_on_terminal

JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
args: [--epochs=8]
env: {TOKEN: s3cret}
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 1}
"""
LEGACY = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: standard
  masterConfig: {imageUri: "${IMAGE_URI}"}
  workerType: large_model
  workerCount: '2'
  useChiefInTfConfig: true
  args: [--batch-size=8]
  scheduling: {priority: 5}
"""
# The chief's end is the job's, so it waits until the worker has spoken.
TRAINER = """\
import json, os, pathlib, sys, time
print("hello from", sys.argv[1:], flush=True)
spoken = pathlib.Path("spoken-in-" + os.environ["CLOUD_ML_JOB_ID"])
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
    spoken.touch()
else:
    folder = pathlib.Path(os.environ["AIP_MODEL_DIR"]).parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text('{"global_batch": 64}')
while not spoken.exists():
    time.sleep(0.05)
if "--write" in sys.argv:
    print(("x" * 99 + "\\n") * 5000, flush=True)
if "--sleep" in sys.argv:
    time.sleep(600)
if "--fail" in sys.argv:
    sys.exit(7)
"""
IMAGE = "--image=localhost:5000/digits:1"


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path, JOB_FILE, TRAINER)


@pytest.fixture
def cloud(project):
    """An emulator that runs the project's jobs."""
    with Cloud(project) as cloud:
        yield cloud


@pytest.fixture
def submit(run, project):
    """Run a command in the project, by default `submit`."""

    def run_here(*words, cloud=None, command="submit"):
        endpoint = ("--endpoint", cloud.url) if cloud else ()
        return run(command, *endpoint, *words, cwd=project)

    return run_here


def jobs_at(cloud):
    """Return the jobs at an emulator, the newest first."""
    return list(cloud.jobs("demo-project").list("customJobs"))


def args_of(job):
    """Return the args of each pool."""
    return [pool["containerSpec"]["args"] for pool in job["jobSpec"]["workerPoolSpecs"]]


def as_message(job):
    """Return what of a job is sent as Google's own message, the same for any launch."""
    from google.cloud.aiplatform_v1 import CustomJob

    sent = {name: job[name] for name in ("displayName", "jobSpec", "labels")}
    return CustomJob.from_json(json.dumps(sent).replace(job["labels"][LABEL], "LAUNCH"))


def test_a_dry_run_prints_what_is_then_sent_and_sends_nothing(project, submit, cloud):
    words = ("other", IMAGE, "--set", "labels.team=vision", "--", "word", "--epochs=3")
    dry_run = submit("--dry-run", *words, cloud=cloud)
    assert dry_run.code == 0, dry_run.err
    assert jobs_at(cloud) == []
    assert not (project / ".distlaunch/jobs").exists()
    done = submit("--detach", *words, cloud=cloud)
    assert done.code == 0, done.err
    [job] = jobs_at(cloud)
    assert done.out.strip() == job["labels"][LABEL]
    assert "TOKEN: the value is hidden here" in dry_run.err
    assert "'word' after '--' is passed to the job's program" in dry_run.err
    assert "s3cret" not in dry_run.out + dry_run.err
    request = json.loads(dry_run.out.replace("(hidden)", "s3cret"))
    assert as_message(request) == as_message(job)
    assert (request["displayName"], request["labels"]["team"]) == ("other", "vision")
    [chief, _] = request["jobSpec"]["workerPoolSpecs"]
    assert chief["containerSpec"]["args"] == ["--epochs=8", "word", "--epochs=3"]


@pytest.mark.parametrize("is_legacy", [False, True], ids=["distlaunch.yaml", "config.yaml"])
def test_the_program_gets_the_job_dir_of_the_command_line(is_legacy, project, submit, monkeypatch):
    old = JOB_FILE.replace("--epochs=8", "--job-dir=gs://demo-bucket/old")
    (project / "distlaunch.yaml").write_text(old)
    (project / "config.yaml").write_text(f"{LEGACY}  jobDir: gs://demo-bucket/old\n")
    monkeypatch.setenv("IMAGE_URI", "localhost:5000/digits:2")
    words = ["--config=config.yaml"] if is_legacy else [IMAGE]
    new = "gs://demo-bucket/new"
    done = submit(*words, "--dry-run", "--no-check", "--job-dir", f"{new}/")
    spec = json.loads(done.out)["jobSpec"]
    assert spec["baseOutputDirectory"] == {"outputUriPrefix": new}
    for pool in spec["workerPoolSpecs"]:
        args = " ".join(pool["containerSpec"]["args"]).replace("=gs", " gs")
        assert args.endswith(f"--job-dir {new}")
        assert "old" not in args


def test_the_price_of_an_unchecked_job_is_by_the_users_catalogue(project, submit):
    (project / "distlaunch.catalogue.yaml").write_text("machine: {}\n")
    done = submit(IMAGE, "--dry-run", "--no-check")
    assert done.code == 1
    assert "distlaunch.catalogue.yaml:1:1: machine: unknown key" in done.err


def test_a_dry_run_lists_the_images_files(project, submit):
    (project / "distlaunch.yaml").write_text(f"{JOB_FILE}image: {{include: [data]}}\n")
    (project / "data").mkdir()
    for number in range(60):
        (project / f"data/{number:02}.csv").touch()
    words = ("--dry-run", "--set=image.repository=localhost:1/digits", "--no-check")
    few, verbose = submit(*words), submit(*words, "--verbose")
    assert few.code == verbose.code == 0, few.err + verbose.err
    assert few.err.count(".csv\n") == 50
    assert "    and 11 more; --verbose lists them\n" in few.err
    assert verbose.err.count(".csv\n") == 60
    assert "more" not in verbose.err


def test_a_job_is_followed_to_its_end(project, submit):
    with Cloud(project, call_faults="503@storage#1") as cloud:
        done = submit(IMAGE, cloud=cloud)
        as_json = submit(IMAGE, "--json", cloud=cloud)
        notify = "echo $DISTLAUNCH_STATE $DISTLAUNCH_JOB $DISTLAUNCH_JOB_DIR > received"
        failing = submit(IMAGE, "--notify", notify, "--", "--fail", cloud=cloud)
        names = [job["name"] for job in jobs_at(cloud)]
    assert done.code == 0, done.err
    for line in ("chief    | hello from ['--epochs=8']", "worker:0 | hello from ['--epochs=8']"):
        assert f"{line}\n" in done.out
    assert "state SUCCEEDED (RUNNING took" in done.err
    assert done.out.endswith("global batch  64\n")  # read from the bucket
    assert re.search(r"next: distlaunch fetch (digits-\S+) · distlaunch show \1\n$", done.err)

    assert as_json.code == 0, as_json.err
    events = [json.loads(line) for line in as_json.out.splitlines()]
    assert [events[0][key] for key in ("event", "console")] == ["submitted", None]
    assert events[0]["job"].startswith("digits-")
    assert events[0]["name"] == names[1]
    lines = {(event["task"], event["text"]) for event in events if event["event"] == "line"}
    assert lines >= {(task, "hello from ['--epochs=8']") for task in ("chief", "worker:0")}
    states = [event["state"] for event in events if event["event"] == "state"]
    assert states[-1] == "SUCCEEDED"
    assert events[-1]["summary"] == {"global_batch": 64}

    assert failing.code == 3
    assert "state FAILED" in failing.err
    assert "non-zero status of 7" in failing.err
    assert re.search(r"next: distlaunch show (digits-\S+) · distlaunch resubmit \1\n", failing.err)
    state, job, folder = (project / "received").read_text().split()
    assert (state, folder) == ("FAILED", f"gs://demo-bucket/digits/{job}")


def test_a_summary_that_must_not_be_read_is_no_failure(project, submit):
    with Cloud(project, call_faults="denied@storage") as cloud:
        done = submit(IMAGE, cloud=cloud)
    assert done.code == 0, done.err
    assert "its summary cannot be read: the permission storage" in done.err
    assert "done; the job's folder is gs://demo-bucket/digits/" in done.err


@pytest.fixture
def start_submit(project):
    """Start `submit`; return the process and its emulator."""
    with emulators.serving(project) as here:

        def start(*words, **streams):
            process = subprocess.Popen(
                [sys.executable, "-m", "distlaunch", "submit", IMAGE, *words],
                cwd=project,
                env=here.environment,
                text=True,
                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
            )
            return process, here

        yield start


def assert_job_left(project, here, state):
    """Wait until the job has a state; what followed it has left no open launch."""
    assert here.wait(state)
    [record] = (project / ".distlaunch/jobs").glob("*.json")
    assert not json.loads(record.read_text())["is_open"]


@pytest.mark.parametrize(
    ("words", "state", "content"),
    [
        ([], "RUNNING", "reattach with"),
        (["--cancel-on-interrupt"], "CANCELLED", "cancelling the job"),
    ],
)
def test_ctrl_c_leaves_the_job_or_cancels_it(words, state, content, project, start_submit):
    process, here = start_submit(*words, "--", "--sleep")
    for line in process.stdout:
        if "hello from" in line:
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert content in stderr
    assert "Traceback" not in stderr
    assert_job_left(project, here, state)


@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT])
def test_ctrl_c_leaves_the_job_though_the_reader_takes_nothing(project, start_submit, stderr):
    process, here = start_submit("--", "--write", "--sleep", stderr=stderr)
    emulators.wait_until_full(process.stdout)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.communicate()
    assert_job_left(project, here, "RUNNING")


def test_an_identical_submit_and_a_resubmit_create_the_same_job_again(project, submit, cloud):
    for _ in range(2):
        assert submit(IMAGE, "--detach", cloud=cloud).code == 0
    again = submit("--detach", command="resubmit", cloud=cloud)
    assert again.code == 0, again.err
    jobs = jobs_at(cloud)
    assert len({job["labels"][LABEL] for job in jobs}) == 3
    assert as_message(jobs[0]) == as_message(jobs[1]) == as_message(jobs[2])
    container = jobs[0]["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    assert container["env"] == [{"name": "TOKEN", "value": "s3cret"}]
    for record in (project / ".distlaunch/jobs").glob("*.json"):
        assert "s3cret" not in record.read_text()


def test_a_script_is_checked_submitted_and_resubmitted_like_a_module(project, submit, cloud):
    plan(project, "own-script").write(project, overwrite=True)
    settings = ("--set=project=demo-project", "--set=bucket=gs://demo-bucket")
    in_registry = ("--set=image.repository=localhost:1/digits", *settings)
    checked = submit("--offline", *in_registry, command="check")
    assert checked.code == 0, checked.out
    assert submit(*in_registry, "--offline", "--set=script=tran.py", command="check").code == 1
    dry_run = submit("--dry-run", "--no-check", *in_registry, "--", "--epochs=2")
    assert dry_run.code == 0, dry_run.err
    assert args_of(json.loads(dry_run.out)) == [["--epochs=8", "--epochs=2"]] * 2
    rendered = submit(*settings, command="render")
    assert rendered.code == 0, rendered.err
    entrypoint = '"-m", "distlaunch_trainer.fit", "train.py"]'
    assert entrypoint in (project / "Dockerfile").read_text()
    done = submit(IMAGE, "--detach", *settings, cloud=cloud)
    assert done.code == 0, done.err
    again = submit("--detach", "--", "--epochs=3", command="resubmit", cloud=cloud)
    assert again.code == 0, again.err
    assert [args_of(job)[1] for job in jobs_at(cloud)] == [
        ["--epochs=8", "--epochs=3"],
        ["--epochs=8"],
    ]


def test_an_old_config_file_runs_as_it_is(project, submit, cloud, monkeypatch):
    (project / "config.yaml").write_text(LEGACY)
    missing = submit("--config=config.yaml", "--detach", cloud=cloud)
    assert missing.code == 1
    assert "config.yaml:4:28" in missing.err
    assert "IMAGE_URI" in missing.err
    monkeypatch.setenv("IMAGE_URI", "localhost:5000/digits:2")
    done = submit("--config=config.yaml", "--detach", "--", "--epochs=5", cloud=cloud)
    assert done.code == 0, done.err
    assert "priority" in done.err
    [job] = jobs_at(cloud)
    [chief, workers] = job["jobSpec"]["workerPoolSpecs"]
    assert chief["machineSpec"]["machineType"] == "n1-standard-4"
    assert workers["machineSpec"]["machineType"] == "n1-highmem-8"
    assert int(workers["replicaCount"]) == 2
    for pool in (chief, workers):
        assert pool["containerSpec"]["imageUri"] == "localhost:5000/digits:2"
        assert pool["containerSpec"]["args"] == ["--batch-size=8", "--epochs=5"]


def test_status_names_a_refused_launch(project, submit):
    with Cloud(project, call_faults="denied@create#1") as cloud:
        assert submit(IMAGE, "--detach", cloud=cloud).code == 1
        nothing = submit(command="status", cloud=cloud)
        assert "no jobs submitted from this directory" in nothing.err
        refused = submit("digits", command="status", cloud=cloud)
        assert "the job was refused" in refused.err


@pytest.mark.usefixtures("user")
def test_a_submit_asks_for_nothing_and_shows_the_price(project, serve, trusted, no_credentials):
    server = serve(in_turn(refused(403, "PERMISSION_DENIED", "No.")), trusted)
    code, shown = run_on_terminal(
        *("submit", IMAGE, "--no-check", "--endpoint", server.url),
        cwd=project,
        env={"CLOUDSDK_CONFIG": str(no_credentials)},
    )
    assert code == 1
    assert "price      about 0.437 USD an hour (chief 0.218, workers 0.218)" in shown
    assert [request.method for request in server.requests] == ["POST"]


@pytest.mark.usefixtures("no_credentials")
def test_a_job_that_cannot_be_submitted_is_not_called_ready(run, project):
    done = run("submit", IMAGE, cwd=project)
    assert done.code == 1
    assert "no credentials for Google Cloud" in done.err.splitlines()[-1]
    assert "ready" not in done.err
