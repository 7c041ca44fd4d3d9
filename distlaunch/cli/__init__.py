"""The command line: a group whose commands are imported when they are used.

Each command is a module of this package with a click command named ``command``; it gets the global
options as `Settings` in ``ctx.obj`` and returns its exit code (None for 0).
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
from click.exceptions import Exit, NoArgsIsHelpError, NoSuchCommand

from distlaunch import __version__
from distlaunch.errors import DistlaunchError, OutputError, output_error
from distlaunch.exit_codes import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.ui.console import Console
    from distlaunch.ui.events import Level

# The module of each command and its line in `distlaunch --help`, known without importing it.
COMMANDS = {
    "init": ("distlaunch.cli.init", "Start a project: a trainer, a job file and data."),
    "local": ("distlaunch.cli.local", "Run the job's cluster on this machine."),
    "check": ("distlaunch.cli.check", "Tell every problem of the job, and its price."),
    "submit": ("distlaunch.cli.submit", "Build, push, submit to Vertex AI and follow the job."),
    "status": ("distlaunch.cli.status", "Say how a job stands."),
    "logs": ("distlaunch.cli.logs", "Show what a job's tasks wrote."),
    "list": ("distlaunch.cli.list", "List the jobs of a project and region."),
    "cancel": ("distlaunch.cli.cancel", "Cancel a job."),
    "resubmit": ("distlaunch.cli.resubmit", "Submit a job again as it was."),
    "render": ("distlaunch.cli.render", "Write Dockerfile, .dockerignore and config.yaml."),
    "build": ("distlaunch.cli.build", "Build and push the job's image."),
    "emulator": ("distlaunch.cli.emulator", "Run a local Vertex AI job service."),
    "tf-config": ("distlaunch.cli.tf_config", "Print TF_CONFIG for machines of your own."),
}

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class Settings:
    """The options that stand before the command."""

    debug: bool = False
    quiet: bool = False
    log_level: str = "info"

    def console(self) -> Console:
        """Return the console that shows as much as they ask for."""
        from distlaunch.ui.console import Console

        return Console(cast("Level", "error" if self.quiet else self.log_level))


class LazyGroup(click.Group):
    """A group that imports a command's module only to run the command or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*COMMANDS]  # here `list` is the command of that name, once it is imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        return cast("click.Command", import_module(module).command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_known = args[0] in COMMANDS or args[0].startswith("-")
        if not is_known and not ctx.resilient_parsing:
            raise NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what goes wrong becomes a line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, Exit, BrokenPipeError, OutputError):
            raise
        except Exception as problem:  # noqa: BLE001
            if ctx.params["debug"]:
                _show_traceback(problem)
            return _tell(problem)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option("--quiet", "-q", is_flag=True, help="No messages but errors.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="The least important message to show.",
)
@click.version_option(__version__, prog_name="distlaunch", message="%(prog)s %(version)s")
@click.pass_context
def distlaunch(ctx: click.Context, debug: bool, quiet: bool, log_level: str) -> None:
    """Multi-worker TensorFlow training, proved on this machine first."""
    ctx.obj = Settings(debug=debug, quiet=quiet, log_level=log_level)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments
        The words after ``distlaunch``; by default those of this process.
    """
    lost: BrokenPipeError | OutputError | None = None
    # Google's clients warn on each Python that is near its end of life, amid a command's output.
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module=r"google\.api_core\._python_version_support"
    )
    try:
        code = _run(arguments)
    except OutputError as problem:
        lost = problem
    except OSError as problem:  # of printing the help, say: the group tells those of a command
        lost = output_error(problem)
    lost = _unwritten(sys.stdout) or lost
    if lost:
        code = _tell(lost) if isinstance(lost, OutputError) else 1
    _unwritten(sys.stderr)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = distlaunch.main(arguments, prog_name="distlaunch", standalone_mode=False)
    except NoArgsIsHelpError as problem:
        with suppress(OSError):  # nobody is there to be told
            problem.show()
        return problem.exit_code
    except click.UsageError as problem:
        where = problem.ctx.command_path if problem.ctx else "distlaunch"
        _say(f"{_as_ours(problem.format_message())} (see '{where} --help')")
        return problem.exit_code
    except click.ClickException as problem:
        _say(_as_ours(problem.format_message()))
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt):
        _print_error("distlaunch: interrupted")
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


@contextmanager
def without_gc() -> Iterator[None]:
    """Have Python look for no rubbish: a quick command leaves little, and looking takes a tenth."""
    import gc

    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def show(line: str) -> None:
    """Print a line of what was asked for.

    Raises
    ------
    BrokenPipeError
        If nobody reads it any more.
    OutputError
        If it cannot be written.
    """
    from distlaunch.ui.console import visible

    try:
        click.echo(visible(line))
    except OSError as problem:
        raise output_error(problem) from None


def _tell(problem: Exception) -> int:
    """Print what went wrong and return the exit code for it."""
    if isinstance(problem, DistlaunchError):
        for line in problem.lines:
            _say(line)
        return problem.exit_code
    if isinstance(problem, FileNotFoundError) and not _is_here():
        _say("the folder you are in was deleted; change into one that is there")
        return 1
    kind, text = type(problem).__name__, " ".join(str(problem).split())
    _say(f"unexpected error ({kind}: {text}); run again with --debug to see where it comes from")
    return 1


def _is_here() -> bool:
    """Whether the folder that this process is in is still there."""
    import os

    try:
        os.getcwd()  # noqa: PTH109 - without pathlib, which nothing else here needs
    except FileNotFoundError:
        return False
    return True


def _say(line: str) -> None:
    _print_error(f"distlaunch: error: {line}")


def _print_error(line: str) -> None:
    from distlaunch.ui.console import visible

    with suppress(OSError):  # nobody is there to be told
        click.echo(visible(line), err=True)


def _show_traceback(problem: Exception) -> None:
    import traceback

    _print_error("".join(traceback.format_exception(problem)).rstrip("\n"))


def _as_ours(message: str) -> str:
    """Write a message of click's as ours are written: one line, no capital at the start."""
    line = " ".join(message.split())
    return line[:1].lower() + line[1:].removesuffix(".")


def _unwritten(stream: TextIO) -> BrokenPipeError | OutputError | None:
    """Return why a stream cannot take what was printed; it leads nowhere from then on.

    Otherwise Python would try once more when it ends, and complain.
    """
    try:
        stream.flush()
    except OSError as problem:
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return output_error(problem)
    return None
