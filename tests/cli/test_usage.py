"""What a refused command line is answered with."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from distlaunch.cli import COMMANDS, distlaunch, main
from distlaunch.errors import DistlaunchError

TO_PROGRAM = "after '--': distlaunch"


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
        ("local --devices 65", "--devices: expected a whole number, 1 to 64, got 65 (see"),
    ],
)
def test_a_refused_word_is_answered_with_what_to_type(run, line, expected):
    done = run(*line.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert expected in done.err


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
