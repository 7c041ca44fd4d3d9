"""The command line: a group whose commands are imported when they are used.

A command gets the global options as `Settings` in ``ctx.obj`` and returns its exit code (None
for 0).
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
from click.exceptions import Exit, NoArgsIsHelpError, NoSuchCommand

from distlaunch import __version__, platforms
from distlaunch.cli.settings import Declined, Settings
from distlaunch.documentation import SITE
from distlaunch.errors import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    DistlaunchError,
    OutputError,
    output_error,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# The module and the name of each click command, and its line in `distlaunch --help`.
COMMANDS = {
    "init": ("init:command", "Create a project: a trainer, a job file and data."),
    "local": ("local:command", "Run the job's cluster on this machine."),
    "compare": ("compare:command", "Measure whether more tasks pay, on this machine."),
    "check": ("check:command", "Check the job and estimate its cost."),
    "setup": ("setup:setup", "Create what jobs need in Google Cloud."),
    "teardown": ("setup:teardown", "Remove what setup created."),
    "submit": ("submit:command", "Build, push, submit to Vertex AI and follow the job."),
    "forecast": ("forecast:command", "Predict hours and money of clusters."),
    "tune": ("tune:command", "Search for the best options, here or on Vertex AI."),
    "status": ("jobs:status", "Show a job's status."),
    "logs": ("jobs:logs", "Show the log of a job's tasks."),
    "shell": ("shell:command", "Open a shell in a task of a running job."),
    "list": ("jobs:list_jobs", "List the jobs of a project and region, or local runs."),
    "show": ("runs:show_run", "Show one run or job whole."),
    "diff": ("runs:diff", "Show what differs between two runs or jobs."),
    "tensorboard": ("runs:tensorboard", "Open TensorBoard on runs and jobs."),
    "fetch": ("runs:fetch", "Download a job's model, checkpoints or logs."),
    "prune": ("runs:prune", "Remove old local runs."),
    "cancel": ("jobs:cancel", "Cancel a job."),
    "resubmit": ("jobs:resubmit", "Submit a job again."),
    "machines": ("machines:command", "Keep machines up between jobs: warm starts."),
    "render": ("render:command", "Write Dockerfile, .dockerignore and config.yaml."),
    "build": ("build:command", "Build and push the job's image."),
    "emulator": ("emulator:command", "Run a local Vertex AI job service."),
    "eject": ("init:eject", "Copy the trainer package into the project."),
    "tf-config": ("tf_config:command", "Print TF_CONFIG for your own machines."),
    "docs": ("docs:command", "Open the documentation."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only to run the command or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return cast("click.Command", getattr(import_module(f"distlaunch.cli.{module}"), name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_known = args[0] in COMMANDS or args[0].startswith("-")
        if not is_known and not ctx.resilient_parsing:
            raise NoSuchCommand(args[0], ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes a line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, Exit, BrokenPipeError, OutputError):
            raise
        except Exception as error:  # noqa: BLE001
            if ctx.params["debug"]:
                _show_traceback(error)
            return _report_error(error)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"\b\nDocumentation: {SITE}\nOffline:       distlaunch docs [TOPIC]",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="Print no messages but errors; results and the tasks' lines are printed.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The lowest level of messages to print.",
)
@click.version_option(__version__, prog_name="distlaunch", message="%(prog)s %(version)s")
@click.pass_context
def distlaunch(ctx: click.Context, debug: bool, quiet: bool, log_level: str) -> None:
    """Multi-worker TensorFlow training, tried on this machine first."""
    ctx.obj = Settings(debug=debug, quiet=quiet, log_level=log_level)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of this process, and return its exit code."""
    failure: BrokenPipeError | OutputError | None = None
    platforms.prepare_process()
    # Google's clients warn on each Python that is near its end of life, amid a command's output.
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module=r"google\.api_core\._python_version_support"
    )
    try:
        code = _run(arguments)
    except OutputError as error:
        failure = error
    except OSError as error:  # such as of printing the help
        failure = output_error(error)
    failure = _flush(sys.stdout) or failure
    if failure:
        code = _report_error(failure) if isinstance(failure, OutputError) else EXIT_ERROR
    _flush(sys.stderr)
    return code


def main_of_stdin() -> None:
    """Run the command line on stdin; end with the process whose id is the first argument."""
    from distlaunch.local import processes

    processes.die_with(int(sys.argv.pop(1)))
    sys.argv[1:] = json.load(sys.stdin)
    sys.exit(main())


def _run(arguments: Sequence[str] | None) -> int:
    words = _globals_first(sys.argv[1:] if arguments is None else arguments)
    try:
        code = distlaunch.main(words, prog_name="distlaunch", standalone_mode=False)
    except NoArgsIsHelpError as error:
        with suppress(OSError):  # stderr is closed
            error.show()
        return error.exit_code
    except click.UsageError as error:
        from distlaunch.cli import usage

        named = [word for word in words if word in COMMANDS][:1]
        command = error.ctx.command_path if error.ctx else " ".join(["distlaunch", *named])
        _print_error(f"{_normalise(usage.explain(error, COMMANDS))} (see '{command} --help')")
        return error.exit_code
    except click.ClickException as error:
        _print_error(_normalise(error.format_message()))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as end:
        _print(
            "distlaunch: " + ("nothing was done" if isinstance(end, Declined) else "interrupted")
        )
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _globals_first(words: Sequence[str]) -> list[str]:
    """Return a command line with --debug and --quiet, wherever before ``--``, at its start."""
    dashes = words.index("--") if "--" in words else len(words)
    moved = [word for word in words[:dashes] if word in ("--debug", "--quiet", "-q")]
    return [*moved, *(word for word in words[:dashes] if word not in moved), *words[dashes:]]


def _report_error(error: Exception) -> int:
    """Print an error and return its exit code."""
    if isinstance(error, DistlaunchError):
        for line in error.lines:
            _print_error(line)
        if error.hint:
            _print(f"distlaunch: {error.hint}")
        return error.exit_code
    kind, text = type(error).__name__, " ".join(str(error).split())
    _print_error(f"unexpected error ({kind}: {text}); run again with --debug for its traceback")
    return EXIT_ERROR


def _print_error(line: str) -> None:
    _print(f"distlaunch: error: {line}")


def _print(line: str) -> None:
    from distlaunch.ui.console import fitted, visible

    with suppress(OSError):  # stderr is closed
        click.echo(fitted(visible(line), 2), err=True)


def _show_traceback(error: Exception) -> None:
    import traceback

    _print("".join(traceback.format_exception(error)).rstrip("\n"))


def _normalise(message: str) -> str:
    """Return a message of click's as one line that starts in lower case."""
    line = " ".join(message.split())
    return line[:1].lower() + line[1:].removesuffix(".")


def _flush(stream: TextIO) -> BrokenPipeError | OutputError | None:
    """Flush a stream; if that fails, redirect it to nowhere and return the error.

    Otherwise Python would try again when it exits, and complain.
    """
    try:
        stream.flush()
    except OSError as error:
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return output_error(error)
    return None
