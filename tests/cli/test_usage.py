"""What a refused command line is answered with."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from distlaunch.cli import COMMANDS, distlaunch, main
from distlaunch.errors import DistlaunchError

JOB_FILE = """\
name: digits
module: trainer
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 1}
tuning: {metric: loss, goal: minimize, trials: 2, parameters: {rate: {values: [a, b]}}}
"""
TO_PROGRAM = "after '--': distlaunch"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(JOB_FILE)
    (tmp_path / "trainer.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("local --epochs 3", f"{TO_PROGRAM} local -- --epochs 3 (see"),
        ("local --epoch 3", f"{TO_PROGRAM} local -- --epochs 3 (see"),
        ("local --workers 2 --epochs 3", f"{TO_PROGRAM} local --workers 2 -- --epochs 3 (see"),
        ("local --batch-size=32 -- --seed 1", f"{TO_PROGRAM} local -- --batch-size=32 --seed 1"),
        ("local --no-resume", f"{TO_PROGRAM} local -- --no-resume (see"),
        ("local --foo 3", f"put the program's --foo {TO_PROGRAM} local -- --foo 3 (see"),
        ("submit digits --epochs 3", f"{TO_PROGRAM} submit digits -- --epochs 3 (see"),
        ("tune --local --epochs 3", f"{TO_PROGRAM} tune --local -- --epochs 3 (see"),
        ("local train.py 3", f"{TO_PROGRAM} local -- train.py 3 (see"),
        ("local --workers 2 true", f"{TO_PROGRAM} local --workers 2 -- true (see"),
        ("submit digits more", f"{TO_PROGRAM} submit digits -- more (see"),
        ("local --worker 2", "no such option '--worker'. Did you mean '--workers'? (see"),
        ("local --compare 1,2", "no such option '--compare'; use 'distlaunch compare' (see"),
        ("local --batch-sizes 8", "no such option '--batch-sizes'; use 'distlaunch compare' (see"),
        ("submit --workers 3", "use --set cluster.workers.count=N, the number of workers beside"),
        ("submit --spot", "use --set scheduling.strategy=SPOT (see"),
        ("submit --timeout 3h", "use --set scheduling.timeout=VALUE (see"),
        ("submit --service-account a@b", "use --set service_account=VALUE (see"),
        ("submit --args=--epochs=3", "put the program's arguments after '--' (see"),
        ("submit --yes", "no such option '--yes'; there is no prompt to confirm (see"),
        ("init --queit", "no such option '--queit' (see 'distlaunch init --help')"),
        ("local --workers two", "--workers: expected a whole number, 1 or more, got 'two' (see"),
        ("local --workers 0", "--workers: expected a whole number, 1 or more, got 0 (see"),
        ("logs --tail", "option '--tail' requires an argument (see 'distlaunch logs --help')"),
        ("local --devices 65", "--devices: expected a whole number, 1 to 64, got 65 (see"),
        ("inti", "no such command 'inti'. Did you mean 'init'? (see 'distlaunch --help')"),
        ("init --forse", "'--forse'. Did you mean '--force'? (see 'distlaunch init --help')"),
        ("tf-config", "give either --hosts or --slurm"),
        (
            "local --kill worker:2@step=4",
            "no such task in this cluster; there are: chief, worker:0",
        ),
        ("local --workers 1001", "--workers 1001: expected no more than 1,000 tasks on one m"),
        ("local -- --restarts=1", "--restarts after '--' is passed to the program; put it before"),
        ("local --resume a --job-dir b -- true", "--resume a and --job-dir b are two folders; "),
        ("submit -- --detach", "--detach after '--' is passed to the program"),
        ("submit --job-dir here", "--job-dir here: expected gs://BUCKET/FOLDER"),
        ("submit --detach --notify true", "--notify needs a job that is followed: leave out"),
        ("submit --verbose", "--verbose lists the image's files with --dry-run; add that"),
        ("submit --endpoint http://a.com", "--endpoint http://a.com: expected https"),
        ("tune --local --region=r", "--region is for tuning jobs; remove it, or --local"),
        ("tune --local ..", "'..': expected the name of a folder for the search, without '/'"),
        ("tune --local /tmp/x", "'/tmp/x': expected the name of a folder"),
        ("tune --local --attach", "--attach is for tuning jobs; remove it, or --local"),
        ("tune --workers=2", "--workers is for --local; add that, or --set cluster.workers.c"),
        ("tune --local -- --job-dir=x", "--job-dir after '--': each trial has a job folder of its"),
        ("tune --attach --trials=9", "--attach"),
        ("tune --attach --set=name=other", "--attach"),
        ("tune --attach --dry-run", "--attach"),
        ("tune --attach -- a", "--attach"),
        ("compare", "one variant is nothing to compare: give two numbers of workers or more"),
        ("compare 1", "one variant is nothing to compare: give two numbers of workers or more"),
        ("compare 1,two", "1,two: 'two' is no number of workers (1 to"),
        ("compare 1,01", "1,01: each number once"),
        ("compare 1,2 --workers 2", "no such option '--workers'; use --set cluster.workers.count="),
        ("compare --batch-sizes 8,x", "--batch-sizes 8,x: 'x' is not a number of rows"),
        ("compare --batch-sizes 1,8", "--batch-sizes 1,8: 1 row for 2 workers: each needs one"),
        ("compare fit,trainer", "'fit' is no number of workers (1 to"),
        ("tf-config --hosts a,b,a:2222", "--hosts: duplicate host a:2222; each task needs its own"),
        (
            "tf-config --hosts a,,b",
            "--hosts: '' is not a host with a port from 1 to 65535, such",
        ),
        ("tf-config --hosts a:65536", "--hosts: 'a:65536' is not a host"),
        ("tf-config --hosts ::1", "--hosts: '::1' is not a host"),
        ("tf-config --hosts [::x]:1", "--hosts: '[::x]:1' is not a host"),
        ("emulator --faults no-star:x", "'no-star:x': no such fault; did you mean 'no-start'? ("),
        ("emulator --port=0 --project-dir=a --run-with=process", "--project-dir a: no such folder"),
        ("compare 1,2 -- --job-dir x", "--job-dir after '--': each run has a"),
    ],
)
def test_a_refused_word_is_answered_with_what_to_type(run, project, line, expected):
    done = run(*line.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("distlaunch: error: ")
    assert expected in done.err
    assert not (project / ".distlaunch").exists()


@pytest.mark.parametrize("setting", ["--set=env.A=k3y", '--set env={"A":"k3y"}', "--set env.A=k3y"])
def test_the_line_to_type_has_no_values_of_variables(run, setting):
    done = run("local", *setting.split(), "--epochs", 3)
    assert "-- --epochs 3" in done.err
    assert "k3y" not in done.err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("run", "local"), ("train", "local"), ("start", "local"), ("stop", "cancel")),
        *(("ps", "list"), ("download", "fetch"), ("help", "--help"), ("jobs", "list")),
        *(("submitt", "submit"), ("resubmitt", "resubmit"), ("statsu", "status")),
    ],
)
def test_another_name_of_a_command_is_answered_with_the_command(run, name, meant):
    done = run(name)
    expected = f"no such command {name!r}. Did you mean {meant!r}? (see 'distlaunch --help')"
    assert done == (2, "", f"distlaunch: error: {expected}\n")


@pytest.mark.parametrize("name", ["prunes", "runs", "remit", "concel", "submarine", "clean", "rm"])
def test_what_deletes_or_submits_is_suggested_for_a_typing_error_only(run, name):
    is_typing_error = name in ("prunes", "concel")
    suggested = [each for each in ("prune", "cancel", "submit") if f"{each!r}?" in run(name).err]
    assert bool(suggested) == is_typing_error


def test_no_hidden_option_is_suggested(run):
    names = ("--yes", "--ye", "--debu", "--quiets", "--log-leve")
    for command in COMMANDS:
        for name in names:
            shown = run(command, name).err
            suggestion = shown.partition("Did you mean ")[2].partition("?")[0].strip("'")
            assert not suggestion or f"{suggestion}" in run(command, "--help").out, shown


@pytest.mark.parametrize("words", [["--debug", "init"], ["init", "--debug"]])
def test_debug_is_taken_before_and_after_the_command(monkeypatch, capsys, words):
    def fail(*_: object) -> None:
        raise DistlaunchError("no way")

    monkeypatch.setattr("distlaunch.scaffold.plan", fail)
    assert main(words) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--quiet", "-q"])
def test_quiet_is_taken_after_the_command(run, option):
    done = run("check", "--offline", option, "--image", "python:3.12-slim")
    assert (done.code, done.out) == (1, "")
    quiet = run("init", "new", "--quiet")
    assert quiet == (0, "", "")
    assert "--quiet" not in CliRunner().invoke(distlaunch, ["init", "--help"]).output


def test_the_trainers_debug_is_passed_on_after_the_dashes(run, tmp_path):
    run("init", "digits", cwd=tmp_path)
    done = run("submit", "--dry-run", "--", "--debug", cwd=tmp_path / "digits")
    assert "is passed to the program" not in done.err
