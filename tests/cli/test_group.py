"""The group of commands: what is imported, what is printed, which exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings

import click
import pytest
from click.testing import CliRunner

from distlaunch import __version__
from distlaunch.cli import COMMANDS, distlaunch, main
from distlaunch.errors import Diagnostic, DistlaunchError, JobFileError, UsageError
from distlaunch.submit.records import Records

from .cloud import new_record

NAME = "projects/p/locations/us-central1/customJobs/7"

# Modules of weight that nothing may import before it is needed.
HEAVY = """
    asyncio email google http importlib.metadata jinja2 multiprocessing numpy pydantic rich ssl
    subprocess tensorflow urllib.request yaml
"""


@pytest.fixture
def raising(monkeypatch):
    """Make `distlaunch init` raise an error of the test."""

    def replace(problem: BaseException) -> None:
        @click.command("init")
        def command() -> None:
            raise problem

        monkeypatch.setattr("distlaunch.cli.init.command", command)

    return replace


IMPORTS = """
import click, sys
known = set(sys.modules)
from distlaunch.__main__ import main
for command in sys.argv.pop().split(","):
    sys.argv[1:] = [*command.split(), "--help"]
    main()
    print(command, *set(sys.modules) - known, file=sys.stderr)
    known |= set(sys.modules)
"""


def test_help_imports_click_and_nothing_of_weight():
    words = [sys.executable, "-c", IMPORTS, ",".join(["", *COMMANDS])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    imported = [line.split(" ") for line in done.stderr.splitlines()]
    assert [command for command, *_ in imported] == ["", *COMMANDS]
    heavy = HEAVY.split()
    assert [
        (command, name) for command, *names in imported for name in names if name in heavy
    ] == []


def test_googles_warning_of_an_old_python_is_not_shown():
    module = "google.api_core._python_version_support"
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        main(["--version"])
        warnings.warn_explicit("upgrade", FutureWarning, "a.py", 1, module=module)
        warnings.warn_explicit("another", FutureWarning, "a.py", 1, module="a")
    assert [str(warning.message) for warning in shown] == ["another"]


def test_help_shows_every_command_and_each_example_on_a_line(run):
    assert run("--version").out == f"distlaunch {__version__}\n"
    done = run()
    assert (done.code, "Commands:" in done.err) == (2, True)
    lines = run("local", "--help").out.splitlines()
    assert "    distlaunch local --workers 3 -- --epochs 3" in lines
    assert not [line for line in lines if "\\b" in line or "\b" in line]
    help_text = run("--help").out
    for name, (_, line) in COMMANDS.items():
        assert f"  {name.ljust(max(map(len, COMMANDS)))}  {line}\n" in help_text
        context = click.Context(distlaunch)
        assert distlaunch.get_command(context, name).name == name


@pytest.mark.parametrize(
    ("problem", "code", "lines"),
    [
        (DistlaunchError("no way"), 1, "distlaunch: error: no way\n"),
        (UsageError("not so"), 2, "distlaunch: error: not so\n"),
        (
            JobFileError(problems=[Diagnostic("x", where="a:1:1"), Diagnostic("y", where="a:2:1")]),
            1,
            "distlaunch: error: a:1:1: x\ndistlaunch: error: a:2:1: y\n",
        ),
        (KeyboardInterrupt(), 130, "distlaunch: interrupted\n"),
        (
            ValueError("seven\nlines"),
            1,
            "distlaunch: error: unexpected error (ValueError: seven lines); "
            "run again with --debug for its traceback\n",
        ),
    ],
)
def test_errors_are_printed_without_traceback(raising, capsys, problem, code, lines):
    raising(problem)
    assert main(["init"]) == code
    assert capsys.readouterr().err.lstrip("\n") == lines


@pytest.mark.parametrize("words", [["init"], ["--debug", "init"]])
def test_an_error_text_cannot_send_escapes_to_the_terminal(raising, capsys, words):
    raising(DistlaunchError("refused: \x1b]0;title\x07\x1b[2J\x1b[31m"))
    assert main(words) == 1
    shown = capsys.readouterr().err
    line = r"distlaunch: error: refused: \x1b]0;title\x07\x1b[2J\x1b[31m"
    assert shown.splitlines()[-1] == line
    assert "\x1b" not in shown
    assert ("Traceback" in shown) == ("--debug" in words)


def test_a_closed_pipe_is_no_error(tmp_path):
    hosts = ",".join(f"host-{number}" for number in range(800))  # more than a pipe holds
    writer = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "tf-config", "--hosts", hosts],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    writer.stdout.readline()
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait(60) in (1, -signal.SIGPIPE)


def complete(words: str, last: int) -> list[str]:
    """Return what bash completes the last of some words to."""
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(last)}
    runner = CliRunner(env={"_DISTLAUNCH_COMPLETE": "bash_complete", **variables})
    done = runner.invoke(distlaunch, prog_name="distlaunch")
    assert done.exit_code == 0
    return done.output.split()


@pytest.mark.parametrize(
    ("words", "last", "expected"),
    [
        ("distlaunch ", 1, [f"plain,{name}" for name in COMMANDS]),
        ("distlaunch in", 1, ["plain,init"]),
        ("distlaunch init --st", 2, ["plain,--starter"]),
        ("distlaunch nothing --st", 2, []),
        ("distlaunch local --work", 2, ["plain,--workers"]),
        ("distlaunch local -- prog --work", 4, []),
    ],
)
def test_completion(words, last, expected):
    assert complete(words, last) == expected


def test_completion_of_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "distlaunch.yaml").write_text(
        "name: digits\ncluster:\n  chief: {machine: n1-standard-4}\n"
        "  workers: {machine: n1-standard-4, count: 2}\n"
    )
    (tmp_path / ".distlaunch/local/20261121-170000").mkdir(parents=True)
    pool = {"replicaCount": "1"}
    request = {"jobSpec": {"workerPoolSpecs": [pool, pool]}}
    record = new_record("digits-20261121-170000-abcd", request=request, resource=NAME)
    Records(tmp_path).write(record)
    for command in ("status", "logs", "cancel", "resubmit"):
        names = [f"plain,{record.launch_id}", "plain,digits"]
        assert complete(f"distlaunch {command} dig", 2) == names
    tasks = ["plain,chief", "plain,worker:0", "plain,vertex"]
    assert complete("distlaunch logs --task ", 3) == tasks
    assert complete("distlaunch local --kill w", 3) == ["plain,worker:0@", "plain,worker:1@"]
    assert complete("distlaunch local --resume 2026", 3) == ["plain,20261121-170000"]
    overrides = ["plain,cluster.workers.count="]
    assert complete("distlaunch submit --set cluster.workers.c", 3) == overrides
    workers = ["plain,worker:0", "plain,worker:1"]
    assert complete("distlaunch tf-config --hosts a,b,c --task w", 5) == workers
    assert complete("distlaunch init --starter dig", 3) == ["plain,digits"]
