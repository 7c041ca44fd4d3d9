"""`distlaunch local` as its user meets it; how stubborn tasks are handled is in tests/local."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distlaunch.checks.project.fit_calls import FIT_ALONE
from distlaunch.cli import main
from distlaunch.local.runner import Outcome, Runner

JOB = """\
name: digits
module: prog
args: [--epochs, "5"]
env: {COLOUR: green, NCCL_DEBUG: INFO, TF_CPP_MIN_LOG_LEVEL: "0"}
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 2}
"""
REPORT = """\
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}))
"""
SUMMARISE = """\
import json, os, pathlib
if os.environ["CLUSTER_SPEC"].find('"type": "workerpool0"') > 0:
    folder = pathlib.Path(os.environ["AIP_MODEL_DIR"]).parent
    (folder / "checkpoints" / "1").mkdir(parents=True, exist_ok=True)
    content = {"tasks": ["chief", "worker:0"], "global_batch": 64, "model": "the model"}
    (folder / "summary.json").write_text(json.dumps(content))
"""


@pytest.fixture
def local(cli):
    """Run `distlaunch local` with the words of a command line."""

    def run(line: str, *words: str, **kwargs) -> subprocess.CompletedProcess[str]:
        return cli("local", *line.split(), *words, **kwargs)

    return run


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    (tmp_path / "report.py").write_text(REPORT)
    (tmp_path / "summarise.py").write_text(SUMMARISE)
    return tmp_path


def jobs(project: Path) -> list[Path]:
    return sorted((project / ".distlaunch/local").iterdir())


def printed_by(done: subprocess.CompletedProcess[str], task: str) -> dict:
    """Return what report.py printed as a task."""
    lines = [line for line in done.stdout.splitlines() if line.split("|")[0].strip() == task]
    return json.loads(lines[0].partition("| ")[2])


def test_without_a_job_file_tasks_and_program_are_needed(local):
    done = local("")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: no distlaunch.yaml here: 'distlaunch init' makes a project, or" in done.stderr
    done = local("-- true")
    message = "no distlaunch.yaml here: pass the number of tasks with --workers N"
    assert (done.returncode, done.stderr) == (2, f"distlaunch: error: {message}\n")


def test_a_job_file_of_a_parent_folder_is_named(project, monkeypatch, capfd):
    (project / "trainer/more").mkdir(parents=True)
    monkeypatch.chdir(project / "trainer/more")
    for words in (["local"], ["submit", "--dry-run"]):
        assert main(words) == 1
        assert "it is in ../..: run 'cd ../..' first\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("count", "problem"),
    [
        ("none", r"distlaunch.yaml:7:\d+: .*"),
        ("1000", "distlaunch.yaml: cluster: 1,001 tasks in all; expected no more than 1,000 .*"),
        (f"{10**18}", "distlaunch.yaml: cluster: 1,000,000,000,000,000,001 tasks in all; .*"),
    ],
)
def test_job_file_with_an_invalid_number_of_tasks(local, project, count, problem):
    (project / "distlaunch.yaml").write_text(JOB.replace("count: 2", f"count: {count}"))
    done = local("-- true")
    assert done.returncode == 1
    assert re.fullmatch(f"distlaunch: error: {problem}\n", done.stderr)


def test_more_open_files_than_are_allowed(tmp_path):
    line = f"{sys.executable} -m distlaunch -q local --workers 25 -- true"
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n 60; exec {line}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    message = "too many open files for so many tasks; allow more with 'ulimit -n' or start fewer"
    assert (done.returncode, done.stderr) == (1, f"distlaunch: error: {message}\n")


def test_program_without_a_project(local, tmp_path):
    (tmp_path / "report.py").write_text(REPORT)
    done = local("--workers 2 -- python report.py --workers 3")
    assert done.returncode == 0
    (folder,) = jobs(tmp_path)
    start, end, page = done.stderr.splitlines()
    assert re.fullmatch(
        r"distlaunch: 2 tasks: chief \+ 1 worker on this machine \(\d+ cores?, (no|\d+) GPUs?\) "
        rf"· job folder {re.escape(str(folder))}",
        start,
    )
    assert end == f"distlaunch: done; the tasks' output is in {folder}/task-logs"
    assert page == f"distlaunch: page: {folder.relative_to(tmp_path)}/run.html"
    content = printed_by(done, "worker:0")
    assert content["argv"] == ["--workers", "3"]
    assert content["cwd"] == str(tmp_path)
    assert content["env"]["AIP_MODEL_DIR"] == f"{folder}/model/"
    assert content["env"]["CLOUD_ML_JOB_ID"] == folder.name
    assert json.loads(content["env"]["TF_CONFIG"])["task"]["type"] == "worker"


PLAIN_FIT = """
import json, os, socket, sys, time
if False:
    import keras
    model.fit(data)
if sys.argv[1:] == ["listen"]:
    config = json.loads(os.environ["TF_CONFIG"])
    host, port = config["cluster"]["chief"][0].split(":")
    if config["task"]["type"] == "chief":
        server = socket.create_server((host, int(port)))
    time.sleep(0.5)
"""


def test_tasks_that_train_apart_are_warned_of(local, tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN_FIT)
    remedy = "'script: plain.py' in distlaunch.yaml trains one model on all tasks"
    suggested = f"plain.py:5: {FIT_ALONE}; {remedy}"
    apart = f"2 tasks ran apart, each with a model of its own; {remedy}"
    for words, expected in {"": [True, True], " listen": [True, False]}.items():
        done = local(f"--workers 2 -- python plain.py{words}")
        assert done.returncode == 0, done.stderr
        assert [suggested in done.stderr, apart in done.stderr] == expected
    assert "warning" not in local("--workers 1 -- python plain.py").stderr


def test_program_in_a_project_has_its_cluster_and_variables(local, project):
    shell = {"CUDA_VISIBLE_DEVICES": "4,5,6,7", "DISTLAUNCH_EXPECTED_GPUS": "3"}
    done = local("--job-dir other -- python report.py --job-dir out", env=os.environ | shell)
    assert done.returncode == 0
    assert "chief + 2 workers on this machine" in done.stderr
    assert "4 GPUs for 3 training tasks: GPUs per task: 1, unused: 1" in done.stderr
    variables = {"COLOUR": "green", "NCCL_DEBUG": "INFO", "TF_CPP_MIN_LOG_LEVEL": "0"}
    variables |= {"AIP_MODEL_DIR": f"{project}/out/model/", "DISTLAUNCH_EXPECTED_GPUS": "1"}
    for task in ("chief", "worker:0", "worker:1"):
        shown = printed_by(done, task)
        assert shown["argv"] == ["--job-dir", "out"]
        assert variables.items() <= shown["env"].items()
    assert printed_by(done, "worker:0")["env"]["CUDA_VISIBLE_DEVICES"] == "5"
    assert (project / "out/task-logs/attempt-1/chief.log").is_file()


def test_tensorflow_without_cuda_gets_no_gpu_unless_one_is_chosen(project, monkeypatch, capfd):
    devices = project / "devices"
    (devices / "0000:00:04.0").mkdir(parents=True)
    monkeypatch.setattr("distlaunch.local.host_resources._NVIDIA_GPUS", devices)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(project)
    assert main(["local", "--workers", "1", "--", "python", "report.py"]) == 0
    out, err = capfd.readouterr()
    assert '"DISTLAUNCH_EXPECTED_GPUS": "0"' in out
    assert (
        "1 GPU: GPUs are not used, as tensorflow-cpu is installed; remove it with pip unin" in err
    )
    assert "run pip install 'tensorflow[and-cuda]>=2.21,<2.22'" in err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert main(["local", "--workers", "1", "--", "python", "report.py"]) == 0
    assert '"DISTLAUNCH_EXPECTED_GPUS": "1"' in capfd.readouterr().out


def test_a_container_gets_the_credentials_that_all_commands_find(project, monkeypatch, tmp_path):
    specs = []
    file = tmp_path / "gcloud/application_default_credentials.json"
    file.parent.mkdir()
    file.write_text("{}")
    monkeypatch.chdir(project)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(file.parent))
    monkeypatch.setattr("distlaunch.image.plan_image", lambda *_, **__: None)
    monkeypatch.setattr("distlaunch.image.execute_plan", lambda *_, **__: "image")
    monkeypatch.setattr(Runner, "run", lambda self: specs.append(self._spec) or Outcome(0))
    assert main(["local", "--docker", "--workers=1"]) == 0
    assert specs[0].program.credentials == str(file)


def test_python_is_the_launchers_own(local, tmp_path):
    show = "import sys; print(sys.executable)"
    done = local("--workers 1 -- python -c", show, env=os.environ | {"PATH": "/usr/bin:/bin"})
    assert done.stdout == f"chief | {Path(sys.executable).parent / 'python'}\n"


def test_a_job_and_its_resumption_show_the_summary_of_their_run(local, project):
    done = local("--workers 2 -- python summarise.py")
    summary = "tasks         chief + 1 worker\nglobal batch  64\nmodel         the model\n"
    assert (done.returncode, done.stdout) == (0, summary)
    assert done.stderr.endswith("next: distlaunch show\n")
    (folder,) = jobs(project)
    done = local("--workers 1 --resume -- python report.py")
    assert printed_by(done, "chief")["env"]["AIP_MODEL_DIR"] == f"{folder}/model/"
    assert "global batch" not in done.stdout
    assert f"done; the tasks' output is in {folder}/task-logs\n" in done.stderr
    assert jobs(project) == [folder]
    assert (folder / "task-logs/attempt-2/chief.log").is_file()


def test_ctrl_c_names_the_command_that_resumes_the_run(project):
    fails_once = (
        "import pathlib\nif not pathlib.Path('failed').exists():\n    open('failed', 'x')\n"
    )
    (project / "train.py").write_text(
        f"{fails_once}    raise SystemExit(3)\n{SUMMARISE}import time\ntime.sleep(60)\n"
    )
    words = "local --workers 1 --restarts 1 -- python train.py --epochs=3"
    with subprocess.Popen(
        [sys.executable, "-m", "distlaunch", *words.split()],
        cwd=project,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        until = time.monotonic() + 60
        while not [*project.glob(".distlaunch/local/*/summary.json")]:
            assert time.monotonic() < until
            time.sleep(0.05)
        launcher.send_signal(signal.SIGINT)
        _, err = launcher.communicate()
    assert launcher.returncode == 130
    again = "distlaunch local --resume --workers 1 --restarts 1 -- python train.py --epochs=3"
    assert err.endswith(f"distlaunch: resume with: {again}\n")
    [record] = project.glob(".distlaunch/local/*/run.json")
    assert json.loads(record.read_text())["failure"] is None  # that of the first attempt is over


def test_two_runs_at_once_in_one_job_folder(local, project):
    (project / "again.py").write_text(
        "import subprocess, sys\n"
        "words = '-m distlaunch local --workers 1 --job-dir out -- true'.split()\n"
        "print(subprocess.run([sys.executable, *words], stderr=subprocess.PIPE).stderr)\n"
    )
    done = local("--workers 1 --job-dir out -- python again.py")
    assert done.returncode == 0
    assert "error: out: another 'distlaunch local' runs in this folder; wait for" in done.stdout
    assert local("--workers 1 --job-dir out -- true").returncode == 0


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_failing_task_gives_its_code_and_no_summary(cli, project, quiet):
    (project / "fail.py").write_text(SUMMARISE + "print('last words')\nraise SystemExit(7)\n")
    done = cli(*quiet, "local", "--workers", "1", "--", "python", "fail.py")
    assert (done.returncode, done.stdout) == (7, "chief | last words\n")
    assert "distlaunch: error: chief failed with exit code 7 after " in done.stderr
    assert "    last words\n" in done.stderr
    assert ("job folder" in done.stderr) != bool(quiet)


def test_events_as_json(local, project):
    done = local("--json -- python summarise.py")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    tasks = {event["task"] for event in events if event["event"] == "task"}
    assert tasks == {"chief", "worker:0", "worker:1"}
    assert events[-1]["event"] == "summary"
    assert events[-1]["summary"]["global_batch"] == 64
    assert "job folder" in done.stderr
