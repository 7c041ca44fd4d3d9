"""CPU time of `distlaunch --help` against a bare click program's: `python benchmarks/help.py`.

The two alternate, so that a busy machine is busy for both; the medians and their ratio are printed,
and a ratio above the limit is exit code 1.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import sys
import tempfile
from pathlib import Path

import distlaunch

LIMIT = 1.5

BARE = """\
import click


@click.command()
@click.option("--count", default=1, help="How often.")
@click.argument("name")
def hello(count, name):
    '''Say hello.'''
    for _ in range(count):
        click.echo(f"hello {name}")


if __name__ == "__main__":
    hello()
"""


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    parser = argparse.ArgumentParser(description="CPU time of help against a bare click program's")
    parser.add_argument("--rounds", type=int, default=25, help="measurements of each (25)")
    rounds = parser.parse_args().rounds
    compileall.compile_dir(Path(distlaunch.__file__).parent, quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE)
        commands = {
            "bare click program": [sys.executable, str(bare), "--help"],
            "distlaunch --help": [sys.executable, "-m", "distlaunch", "--help"],
            "distlaunch local --help": [sys.executable, "-m", "distlaunch", "local", "--help"],
        }
        medians = measured(commands, rounds)
    base = medians["bare click program"]
    for name, seconds in medians.items():
        print(f"{name:24} {seconds * 1000:6.1f} ms CPU   {seconds / base:.2f} x")
    worst = max(medians.values()) / base
    print(f"worst ratio {worst:.2f}, limit {LIMIT}")
    return 0 if worst <= LIMIT else 1


def measured(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of each command, run in turn; the first round warms up.

    It counts if it is the only one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            seconds[name].append(cpu_seconds(command))
    return {name: statistics.median(values[1:] or values) for name, values in seconds.items()}


def cpu_seconds(command: list[str]) -> float:
    """Return user and system time of one run of a command."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(command[0], command, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
