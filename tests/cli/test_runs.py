"""Local runs and jobs afterwards: listed, shown, compared, removed, downloaded."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from json_schemas import load_checked

from distlaunch import files
from distlaunch.engines.vertex.storage import list_files
from distlaunch.local.run_folder import RunFolder
from distlaunch.runs.display import whole
from distlaunch.runs.prune import remove_run
from distlaunch.runs.record import read_record
from distlaunch.runs.view import RunView, local_runs

from ..trainer_skeleton.runs.cloud_storage import CloudStorage  # noqa: TID252 - no package
from .cloud import Cloud
from .terminal import run_on_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Writes what the trainer's chief does.
TRAINER = """
import json, os, sys
from pathlib import Path
folder = Path(os.environ["AIP_MODEL_DIR"]).parent
loss = float(sys.argv[1])
epochs = [{"epoch": n, "step": n, "logs": {"loss": loss / n, "val_loss": loss}} for n in (1, 2)]
(folder / "model").mkdir(parents=True, exist_ok=True)
(folder / "model/model.keras").write_bytes(b"model" * 1000)
(folder / "summary.json").write_text(json.dumps({"epochs": epochs, "tasks": ["chief"], "steps": 2}))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "program.py").write_text(TRAINER)
    return folder


@pytest.fixture
def train(run, project):
    """Run the program on this machine; return the run's id."""

    def train_once(loss: float, code: int = 0, *options: str) -> str:
        program = (sys.executable, "program.py", str(loss), str(code))
        done = run("local", "--workers", "1", *options, "--", *program, cwd=project)
        assert done.code == code, done.err
        return re.search(r"\.distlaunch/local/([\d-]+)", done.err)[1]

    return train_once


def test_runs_are_listed_shown_compared_and_removed(run, project, train):
    first = train(0.5)
    (project / "program.py").write_text(TRAINER + "\n")
    second = train(0.25, 3)

    listed = run("list", "--local", cwd=project).out.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [[second, "FAILED"], [first, "SUCCEEDED"]]
    assert "loss 0.2500 val_loss 0.5000" in listed[2]
    rows = load_checked("list-local", run("list", "--local", "--json", cwd=project).out)
    assert [row["id"] for row in rows] == [second, first]
    assert rows[1]["metrics"] == {"loss": 0.25, "val_loss": 0.5}

    shown = run("show", first, cwd=project).out
    assert f"run         {first}\nstate       SUCCEEDED\ntasks       chief\n" in shown
    assert re.search(r"\n 0\.5 \|[*o].*\n", shown)
    assert "* loss  o val_loss" in shown
    assert "FAILED (exit code 3)" in run("show", cwd=project).out  # the newest
    view = load_checked("show", run("show", "--json", first, cwd=project).out)
    assert view["summary"]["steps"] == 2
    assert view["configuration"]["cluster"] == {"chief": 1}

    found = load_checked("diff", run("diff", "--json", first, second, cwd=project).out)
    values = {row["name"]: (row["a"], row["b"]) for row in found["differences"]}
    assert values["state"] == ("SUCCEEDED", "FAILED")
    assert values["metrics.val_loss"] == (0.5, 0.25)
    assert values["code.files"][0] != values["code.files"][1]
    assert "code.requirements" not in values
    assert re.search(
        r"\nmetrics.loss +0\.25 +0\.125\n", run("diff", first, second, cwd=project).out
    )
    done = run("diff", first, first, cwd=project)
    assert (done.out, done.err) == ("", f"distlaunch: {first} and {first} do not differ\n")

    refused = run("prune", "--keep", "1", cwd=project)
    assert refused.code == 2
    assert first in refused.out
    assert "pass --yes to remove them: there is no terminal" in refused.err
    assert run("prune", "--keep", "0", "--older-than", "1h", cwd=project).err == (
        "distlaunch: no runs to remove\n"
    )
    removed = run("prune", "--keep", "1", "--yes", "--json", cwd=project).out
    assert load_checked("prune", removed)["removed"] == [first]
    assert not (project / ".distlaunch/local" / first).exists()
    assert read_record(RunFolder(project / ".distlaunch/local" / second)).exit_code == 3


@pytest.mark.usefixtures("no_credentials")
def test_a_name_that_is_no_run_is_reported_as_such(run, project):
    for words in (("show", "20261"), ("fetch", "20261"), ("diff", "20261", "20262")):
        done = run(*words, "--project=p", "--region=us-central1", cwd=project)
        assert done.code == 1
        assert "20261: not a local run here ('distlaunch list --local'), and jobs" in done.err
        assert "no credentials for Google Cloud" in done.err


def test_prune_prompts_on_a_terminal_and_show_has_its_chart_there(project, train):
    name = train(0.5)
    code, text = run_on_terminal("show", cwd=project)
    assert code == 0
    assert re.search(r"\r\n 0\.5 \|[*o].*\r\n", text)
    assert run_on_terminal("list", "--local", cwd=project)[1].count(name) == 1

    code, text = run_on_terminal("prune", "--keep=0", cwd=project, answer="n\n")
    assert code == 130
    assert text.index(name) < text.index("remove 1 run, ")
    assert (project / ".distlaunch/local" / name).exists()
    code, text = run_on_terminal("prune", "--keep=0", cwd=project, answer="y\n")
    assert code == 0
    assert "removed 1 run, " in text
    assert not (project / ".distlaunch/local" / name).exists()


def test_values_of_variables_are_not_recorded(project):
    (project / "distlaunch.yaml").write_text(
        "name: a\nmodule: b\nenv: {A_KEY: sesame}\ncluster: {chief: {machine: n1-standard-4}}\n"
    )
    forms = ("env.OTHER=sesame", "env={OTHER: sesame}")
    words = [word for form in forms for word in ("--set", form, f"--set={form}")]
    words = ["local", *words, "--", "true"]
    subprocess.run([sys.executable, "-m", "distlaunch", *words], cwd=project, check=True)
    [record] = project.glob(".distlaunch/local/*/run.json")
    assert "OTHER=(not recorded)" in record.read_text()
    assert "sesame" not in record.read_text()
    assert record.stat().st_mode & 0o777 == 0o600


def test_a_run_whose_launcher_was_killed_is_cancelled_and_one_that_runs_is_kept(run, project):
    program = ("sh", "-c", "touch started; exec sleep 600")
    launcher = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "local", "--workers", "1", "--", *program],
        cwd=project,
        stderr=subprocess.DEVNULL,
    )
    # A process that a launcher forks has its lock too until it runs its program.
    until = time.monotonic() + 60
    while not (project / "started").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    records = list(project.glob(".distlaunch/local/*/run.json"))
    assert read_record(RunFolder(records[0].parent)).state == "RUNNING"
    assert "no runs to remove" in run("prune", "--keep", "0", "--yes", cwd=project).err
    launcher.kill()
    launcher.wait()
    assert run("list", "--local", cwd=project).out.splitlines()[1].split()[1] == "CANCELLED"
    run("prune", "--keep", "0", "--yes", cwd=project)
    assert not records[0].parent.exists()


@pytest.mark.parametrize("link", ["run", ".distlaunch/local", ".distlaunch"])
def test_nothing_behind_a_symlink_is_removed(run, project, train, tmp_path, link):
    name = train(0.5)
    (project / ".distlaunch/local" / name / "link").symlink_to(project / "program.py")
    folder = project / (f".distlaunch/local/{name}" if link == "run" else link)
    outside = tmp_path / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)
    done = run("prune", "--keep", "0", "--yes", cwd=project)
    assert done.code == (0 if link == "run" else 1)
    assert ("no runs to remove" if link == "run" else f"{folder} is a symlink)") in done.err
    assert len(list(outside.rglob("run.json"))) == 1
    folder.unlink()
    outside.rename(folder)
    assert run("prune", "--keep", "0", "--yes", cwd=project).code == 0
    assert not (project / ".distlaunch/local" / name).exists()
    assert (project / "program.py").exists()


def test_a_run_that_is_resumed_while_prune_prompts_is_kept(project, train):
    name = train(0.5)
    [run] = local_runs(project)
    path = project / ".distlaunch/local" / name
    with files.lock(RunFolder(path).lock_file, wait=False):
        assert not remove_run(project, run)
    record = path / "run.json"
    record.write_text(record.read_text().replace(str(run.ended), "2026-11-26T00:00:00Z"))
    assert not remove_run(project, run)
    assert record.exists()


def test_without_locks_a_run_may_still_run(project, train, monkeypatch):
    train(0.5)
    [record] = project.glob(".distlaunch/local/*/run.json")
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"state": "RUNNING", "ended": None}))
    assert read_record(RunFolder(record.parent)).state == "CANCELLED"

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert read_record(RunFolder(record.parent)).state == "RUNNING"


def test_a_record_cannot_name_another_folder(run, project, train, tmp_path):
    name = train(0.5)
    outside = tmp_path / "outside"
    outside.mkdir()
    record = project / ".distlaunch/local" / name / "run.json"
    record.write_text(record.read_text().replace(f'"id": "{name}"', '"id": "../../../outside"'))
    assert name in run("list", "--local", cwd=project).out
    run("prune", "--keep", "0", "--yes", cwd=project)
    assert outside.exists()
    assert not record.parent.exists()


def test_a_project_that_was_moved_has_its_runs(run, project, train):
    name = train(0.5)
    moved = project.rename(project.with_name("moved with spaces"))
    assert "loss 0.2500" in run("list", "--local", cwd=moved).out
    assert "* loss  o val_loss" in run("show", name, cwd=moved).out
    assert run("fetch", name, cwd=moved).out.endswith("1 file, 5 kB new\n")


DAMAGE = {
    "started": 5,
    "id": None,
    "cluster": {"chief": "x"},
    "job_dir": 5,
    "versions": [1],
    "job": [1],
}


def test_a_damaged_record_is_reported_and_its_run_is_kept(run, project, train):
    good, name = train(0.5), train(0.5)
    record = project / ".distlaunch/local" / name / "run.json"
    content = json.loads(record.read_text())
    damaged = [json.dumps(content | {key: value}) for key, value in DAMAGE.items()]
    for text in ("{", "[]", *damaged):
        record.write_text(text)
        listed = run("list", "--local", cwd=project).out
        assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
            [good, "SUCCEEDED"],
            [name, "UNKNOWN"],
        ]
        assert "state  UNKNOWN (run.json cannot be read)" in run("show", name, cwd=project).out
        assert run("diff", good, name, cwd=project).code == 0
        assert load_checked("show", run("show", name, "--json", cwd=project).out)["state"]
    assert run("fetch", name, cwd=project).err.endswith("has no job folder\n")
    done = run("prune", "--keep=0", "--yes", cwd=project)
    assert f"{name}: run.json cannot be read; remove {record.parent} yourself" in done.err
    assert record.parent.exists()
    assert not (project / ".distlaunch/local" / good).exists()


def test_only_the_program_is_hashed(project, train):
    """Nothing else in the folder is read, however large it is."""
    for name in ("other.py", "venv/lib/module.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("1")
    first = train(0.5)
    (project / "venv/lib/module.py").write_text("2")
    second = train(0.5)
    runs = project / ".distlaunch/local"
    codes = {read_record(RunFolder(runs / name)).code for name in (first, second)}
    assert len(codes) == 1
    assert codes != {""}


def test_a_damaged_summary_is_shown_as_far_as_it_can_be(run, project, train):
    name = train(0.5)
    summary = project / ".distlaunch/local" / name / "summary.json"
    for text in ('{"epochs": 3}', '{"epochs": [4, {"epoch": "x", "logs": 5}]}', '{"timing": "x"}'):
        summary.write_text(text)
        assert run("show", name, cwd=project).code == 0
        assert run("list", "--local", cwd=project).code == 0
        assert run("diff", name, name, cwd=project).code == 0


@pytest.fixture
def cloud(tmp_path, project):
    with Cloud(project, storage=tmp_path / "buckets") as emulator:
        yield emulator


@pytest.fixture
def job(cloud, project):
    """A job that wrote a model to its folder in a bucket."""
    created = cloud.launch(TRAINER, "digits-1", ["0.5", "0"], job_dir="gs://bucket/digits-1")
    job = cloud.wait(created)
    assert job["state"] == "JOB_STATE_SUCCEEDED", job
    cloud.record(project, "digits-1", job)
    return job


def test_a_job_is_shown_and_compared_with_a_run(run, cloud, project, job, train):
    name = train(0.25)
    shown = run("show", "digits-1", *cloud.options(), cwd=project).out
    assert "job         digits-1\nname        digits\nstate       SUCCEEDED\n" in shown
    assert "1 x n1-standard-4" in shown
    assert "* loss  o val_loss" in shown
    view = run("show", "digits-1", "--json", *cloud.options(), cwd=project).out
    assert load_checked("show", view)["kind"] == "job"
    diff = run("diff", name, "digits-1", *cloud.options(), cwd=project).out
    assert re.search(r"\nmetrics.val_loss +0\.25 +0\.5\n", diff)


def test_files_of_a_job_are_downloaded_resumed_and_verified(run, cloud, project, job):
    options = ("digits-1", *cloud.options())
    done = run("fetch", *options, cwd=project)
    model = project / "fetched/digits-1/model/model.keras"
    assert model.read_bytes() == b"model" * 1000
    assert done.out == "fetched/digits-1/model: 1 file, 5 kB new\n"
    # The endpoint is that of the job's record.
    again = load_checked("fetch", run("fetch", "--json", "digits-1", cwd=project).out)
    assert (again["files"], again["new_bytes"]) == (1, 0)

    run("fetch", "--part", "all", "--output", "whole", *options, cwd=project)
    assert (project / "whole/summary.json").is_file()
    # An interrupted download: half of the file is there.
    [blob_part] = (project / "whole").rglob("model.keras")
    generation = _generation(cloud, "digits-1/model/model.keras")
    blob_part.with_name(f"model.keras.{generation}.part").write_bytes(b"model" * 400)
    blob_part.unlink()
    resumed = load_checked(
        "fetch",
        run("fetch", "--json", "--part", "all", "--output", "whole", *options, cwd=project).out,
    )
    assert resumed["new_bytes"] == 3000
    assert blob_part.read_bytes() == b"model" * 1000
    # A download that was damaged is not kept.
    blob_part.with_name(f"model.keras.{generation}.part").write_bytes(b"XXXXX" * 1000)
    blob_part.unlink()
    damaged = run("fetch", "--part", "all", "--output", "whole", *options, cwd=project)
    assert damaged.code == 1
    assert "the checksum is wrong; try again" in damaged.err
    assert run("fetch", "--part", "logs", *options, cwd=project).err == (
        "distlaunch: error: gs://bucket/digits-1/logs: no files are there\n"
    )


def test_a_download_shows_a_bar_and_ctrl_c_does_not_wait_for_it(run, tmp_path):
    content = bytes(5_000_000)
    (tmp_path / "buckets/bucket/digits/model").mkdir(parents=True)
    (tmp_path / "buckets/bucket/digits/model/model.keras").write_bytes(content)
    leader, follower = pty.openpty()
    with Cloud(tmp_path, storage=tmp_path / "buckets", call_faults="hang@storage#4") as cloud:
        job = cloud.wait(cloud.launch("", "digits-1", [], job_dir="gs://bucket/digits"))
        [blob] = list_files(cloud.jobs().session, "gs://bucket/digits/model")
        part = tmp_path / f"copy/model.keras.{blob.generation}.part"
        part.parent.mkdir()
        part.write_bytes(content[:2_000_000])
        words = ("fetch", job["name"], "--output", "copy", *cloud.options())
        with subprocess.Popen(
            [sys.executable, "-m", "distlaunch", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=follower,
            env=os.environ | {"TERM": "xterm"},
        ) as fetch:
            os.close(follower)
            shown = ""
            while "] 40 %  2 MB of 5 MB, 0 of 1 file" not in shown:
                shown += os.read(leader, 4096).decode()
            fetch.send_signal(signal.SIGINT)
            assert fetch.wait(10) == 130
        os.close(leader)
        done = run(*words, "--json", cwd=tmp_path)
    assert json.loads(done.out)["new_bytes"] == 3_000_000
    assert (tmp_path / "copy/model.keras").read_bytes() == content


def _generation(cloud, name):
    url = f"{cloud.url}/storage/v1/b/bucket/o/{name.replace('/', '%2F')}"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
        return json.load(answer)["generation"]


def test_a_local_run_is_copied(run, project, train):
    name = train(0.5)
    done = run("fetch", name, "--output", "copy", cwd=project)
    assert (project / "copy/model.keras").read_bytes() == b"model" * 1000
    assert done.out == "copy: 1 file, 5 kB new\n"
    assert run("fetch", name, "--output", "copy", cwd=project).out == "copy: 1 file, 0 B new\n"
    assert run("fetch", name, "--output", ".", cwd=project).out == ".: 1 file, 5 kB new\n"
    (project / "copy/model.keras").write_bytes(b"other")
    assert "5 kB new" in run("fetch", name, "--output", "copy", cwd=project).out


@pytest.mark.parametrize("link", ["fetched", "fetched/RUN", "fetched/RUN/model/model.keras"])
def test_nothing_is_fetched_through_a_symlink(run, project, train, tmp_path, link):
    name = train(0.5)
    path = project / link.replace("RUN", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    outside = tmp_path / "outside"
    outside.write_text("precious") if path.suffix else outside.mkdir()
    path.symlink_to(outside)
    done = run("fetch", name, cwd=project)
    assert done.code == 1
    assert f"{path.relative_to(project)} is a symlink" in done.err
    assert outside.read_text() == "precious" if path.suffix else not list(outside.iterdir())


def test_no_file_behind_a_symlink_is_copied_from_a_run(run, project, train, tmp_path):
    name = train(0.5)
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").write_text("precious")
    model = project / ".distlaunch/local" / name / "model"
    shutil.rmtree(model)
    model.symlink_to(tmp_path / "private")
    done = run("fetch", name, cwd=project)
    assert done.code == 1
    assert "model is a symlink" in done.err
    (project / "fetched").rename(project / "before")
    (project / "fetched").symlink_to(tmp_path / "private")
    done = run("fetch", name, "--output", "fetched/x", cwd=project)
    assert "fetched is a symlink; remove it, or pass another --output DIR" in done.err
    assert [each.name for each in (tmp_path / "private").iterdir()] == ["key"]


def test_what_lies_in_a_project_does_not_stop_a_run(project, train):
    (project / "requirements-dev.txt").symlink_to("/dev/zero")
    os.mkfifo(project / "requirements-test.txt")
    name = train(0.5)
    summary = project / ".distlaunch/local" / name / "summary.json"
    summary.write_text('{"epochs": [], "x": ' + "[" * 500 + "]" * 500 + "}")
    assert local_runs(project)[0].summary is None
    record = summary.with_name("run.json")
    content = json.loads(record.read_text())
    for started in ("", "0", "1900-01-01"):
        record.write_text(json.dumps(content | {"started": started}))
        assert local_runs(project)[0].state == "UNKNOWN"


def test_two_downloads_into_one_folder(run, project, train):
    name = train(0.5)
    (project / "copy").mkdir()
    with files.lock(project / "copy", wait=False):
        done = run("fetch", name, "--output", "copy", cwd=project)
    assert done.code == 1
    assert "another 'distlaunch fetch' writes into this folder" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("job_dir", ["local", "gs"])
def test_tensorboard_shows_two_runs_side_by_side(project, train, tmp_path, job_dir):
    names = [train(0.5), train(0.25)]
    for module in ("werkzeug", "tensorboard"):  # as a clone may have them
        (project / f"{module}.py").write_text("raise SystemExit('imported from the project')")
    for number, name in enumerate(names):
        write_scalar(project / ".distlaunch/local" / name / "logs/train", number + 1.5)
    with CloudStorage(tmp_path) as storage:
        if job_dir == "gs":
            for name in names:
                move_to_bucket(project / ".distlaunch/local" / name, storage)
        with run_tensorboard(project, names, storage.environment) as url:
            runs = fetch_list(f"{url}/data/runs", len(names))
            assert set(runs) == {f"{name}/train" for name in names}
            # TensorBoard gives runs of the same time in any order.
            query = f"tag=a&run={names[1]}/train"
            [point] = fetch_list(f"{url}/data/plugin/scalars/scalars?{query}", 1)
            assert point[1:] == [1, 2.5]
    assert any("/train/events" in request for request in storage.requests) == (job_dir == "gs")


def test_a_port_of_another_server_is_reported_before_tensorboard_starts(run, project, train):
    train(0.5)
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        done = run("tensorboard", "--port", port, cwd=project)
    assert done.code == 1
    assert f"port {port} cannot be used (address already in use); choose another" in done.err


def move_to_bucket(folder: Path, storage: CloudStorage) -> None:
    """Move the logs of a run to a bucket, as if it had trained with --job-dir gs://."""
    for path in (folder / "logs").rglob("events*"):
        storage.put(f"jobs/{folder.name}/{path.relative_to(folder)}", path.read_bytes())
    shutil.rmtree(folder / "logs")
    record = json.loads((folder / "run.json").read_text())
    record["job_dir"] = f"gs://jobs/{folder.name}"
    (folder / "run.json").write_text(json.dumps(record))


@contextmanager
def run_tensorboard(project: Path, names: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Run `distlaunch tensorboard`, and yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("tensorboard", *names, "--port", str(port))
    server = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", *words],
        cwd=project,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def fetch_list(url, length):
    """Return the list that a server answers, once it has a length."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(OSError), opener.open(url, timeout=10) as answer:
            values = json.load(answer)
            if len(values) == length:
                return values
        time.sleep(0.2)
    pytest.fail(f"{url}: no answer of {length}")


def write_scalar(folder: Path, value: float) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    writer.add_event(
        Event(step=1, summary=Summary(value=[Summary.Value(tag="a", simple_value=value)]))
    )
    writer.close()


def test_a_job_at_the_emulator_has_no_tensorboard(run, cloud, project, job):
    done = run("tensorboard", "digits-1", cwd=project)
    assert done.code == 1
    assert "TensorBoard reads gs:// from Google only" in done.err


def test_the_cost_of_a_job_that_has_ended_is_its_whole_cost():
    cost = {"amount": 0.001, "an_hour": 0.2, "currency": "USD", "sources": ["list"]}
    view = RunView("job", "1", "RUNNING", cost={**cost, "is_estimate": True})
    line = "cost   less than 0.01 USD so far at 0.2 USD an hour (list)"
    assert line in whole(view)
    ended = replace(view, ended="2026-11-21T12:00:00Z", cost={**view.cost, "amount": 1.5})
    assert "cost   about 1.50 USD at 0.2 USD an hour (list)" in whole(ended)
