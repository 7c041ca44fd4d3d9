"""Local runs and jobs afterwards: listed, shown, compared, removed, downloaded."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from json_schemas import load_checked

from distlaunch import files
from distlaunch.local.run_folder import RunFolder
from distlaunch.runs.display import job_listing, whole
from distlaunch.runs.prune import remove_run
from distlaunch.runs.record import read_record
from distlaunch.runs.view import RunView, local_runs

from .cloud import TRAINER
from .terminal import run_on_terminal


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
    assert re.search(r"\n 0\.5 \|[*o=].*\n", shown)
    assert "* loss  o val_loss  = several (log)\nbest val_loss 0.5000, epoch 1\n" in shown
    failed = run("show", cwd=project).out  # the newest
    log = project / ".distlaunch/local" / second / "task-logs/attempt-1/chief.log"
    assert "FAILED (exit code 3)" in failed
    assert "\nchief failed first\n" in failed
    assert f"\nfull log: {log}\n" in failed
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
        r"\nmetrics.loss +0\.25 +0\.125 +-50.0 %\n", run("diff", first, second, cwd=project).out
    )
    _, shown = run_on_terminal("show", first, cwd=project, columns=60)
    assert re.search(r"\n +\+-+\r?\n {5,}1 +epoch +2\r?\n", shown)  # the axis is one line
    _, narrow = run_on_terminal(
        "diff", first, second, cwd=project, columns=80, env={"NO_COLOR": ""}
    )
    assert "\x1b[32m-50.0 %\x1b[0m" in narrow
    assert "folder" not in narrow
    assert all(len(re.sub(r"\x1b\[\d*m", "", line)) <= 80 for line in narrow.splitlines())
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
    assert re.search(r"\r\n 0\.5 \|[*o=].*\r\n", text)
    _, listed = run_on_terminal("list", "--local", cwd=project, env={"NO_COLOR": ""})
    assert re.search(rf"\n{name}  \x1b\[32mSUCCEEDED\x1b\[0m  chief  \d+ \w+ ago  ", listed)

    code, text = run_on_terminal("prune", "--keep=0", cwd=project, answer="n\n")
    assert code == 130
    assert text.index(name) < text.index("remove 1 run, ") < text.index("nothing was done")
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
        assert run("show", name, "--html", cwd=project).code == 0


def test_a_job_is_shown_and_compared_with_a_run(run, cloud, project, job, train):
    name = train(0.25)
    shown = run("show", "digits-1", *cloud.options(), cwd=project).out
    assert "job         digits-1\nname        digits\nstate       SUCCEEDED\n" in shown
    assert "1 x n1-standard-4" in shown
    assert "* loss  o val_loss" in shown
    view = run("show", "digits-1", "--json", *cloud.options(), cwd=project).out
    assert load_checked("show", view)["kind"] == "job"
    diff = run("diff", name, "digits-1", *cloud.options(), cwd=project).out
    assert re.search(r"\nmetrics.val_loss +0\.25 +0\.5 +\+100.0 %\n", diff)
    for names in (("digits-1",), (name, "digits-1")):
        assert run("show", *names, "--html", *cloud.options(), cwd=project).code == 0
    assert "<dd>chief 1 x n1-standard-4" in (project / "digits-1.html").read_text()
    assert "<td>digits-1</td>" in (project / "runs.html").read_text()
    done = run("tensorboard", "digits-1", cwd=project)
    assert (done.code, "TensorBoard reads gs:// from Google only" in done.err) == (1, True)


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


def test_the_cost_of_a_job_that_has_ended_is_its_whole_cost():
    cost = {"amount": 0.001, "an_hour": 0.2, "currency": "USD", "sources": ["list"]}
    view = RunView("job", "1", "RUNNING", cost={**cost, "is_estimate": True})
    line = "cost   less than 0.01 USD so far at 0.2 USD an hour (list)"
    assert line in str(whole(view)[0])
    assert job_listing([view]).rows[1][-1] == "<0.01 USD"
    ended = replace(view, ended="2026-11-21T12:00:00Z", cost={**view.cost, "amount": 1.5})
    assert "cost   about 1.50 USD at 0.2 USD an hour (list)" in str(whole(ended)[0])


def test_a_run_writes_its_page_and_show_writes_those_of_several(run, project, train):
    first = train(0.5)
    page = project / ".distlaunch/local" / first / "run.html"
    assert f"<title>project · run {first}</title>" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    (project / "program.py").write_text("raise SystemExit('no such thing')\n")
    done = run("local", "--workers", "1", "--", sys.executable, "program.py", cwd=project)
    second = re.search(r"page: \.distlaunch/local/([\d-]+)/run\.html\n$", done.err)[1]
    view = load_checked("show", run("show", "--json", cwd=project).out)
    assert view["failure"]["lines"] == ["no such thing"]
    assert view["logs"]["chief"].endswith(f"{second}/task-logs/attempt-1/chief.log")
    assert "no such thing" in run("show", cwd=project).out

    page.unlink()
    assert run("show", first, "--html", cwd=project).out == f"{page.as_uri()}\n"
    assert page.is_file()
    both = project / "both & more.html"
    done = run("show", first, second, "--html", "--output", both.name, cwd=project)
    assert done.out == f"{both.as_uri()}\n"
    assert f'<a href=".distlaunch/local/{second}/run.html">{second}</a>' in both.read_text()
    assert run("show", first, second, "--html", cwd=project).out.endswith("/project/runs.html\n")

    for words, problem in (
        ((first, second), "several are shown as a page: add --html"),
        (("--output", "a.html"), "--output is the file of a page: add --html"),
        (("--html", "--json"), "--html and --json: choose one"),
    ):
        done = run("show", *words, cwd=project)
        assert (done.code, problem in done.err) == (2, True)
    done = run("show", "--html", "--output", "no/a.html", cwd=project)
    assert (done.code, "no/a.html: the page cannot be written (no such" in done.err) == (1, True)


def test_a_page_that_cannot_be_written_is_a_warning_of_local(run, project, monkeypatch):
    def fail(path, content, **how):
        if path.suffix == ".html":
            raise OSError(errno.ENOSPC, "")
        write(path, content, **how)

    write = files.atomic_write
    monkeypatch.setattr("distlaunch.files.atomic_write", fail)
    done = run("local", "--workers", "1", "--", "true", cwd=project)
    assert done.code == 0
    assert "run.html: the page cannot be written (no space left on device)\n" in done.err
