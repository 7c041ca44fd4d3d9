"""`distlaunch tf-config`: TF_CONFIG for your own machines, and for tasks of Slurm."""

from __future__ import annotations

import json
import os
import shlex
from importlib import import_module
from typing import Any

import click

from distlaunch.cli import completion
from distlaunch.cli.settings import show
from distlaunch.errors import DistlaunchError, UsageError

_MOST_LISTED = 12
# Evaluated by a shell, the lines of several machines must not set TF_CONFIG to the last one's.
_BEFORE = "if false; then"
_AFTER = """\
else echo 'TF_CONFIG is not set: choose the machine with --task, e.g. --task chief' >&2; false
fi"""


@click.command("tf-config")
@click.option(
    "--hosts",
    metavar="A:2222,B,C",
    help="The machines; the first is the chief. Port 2222 where none is given.",
)
@click.option("--slurm", "is_on_slurm", is_flag=True, help="In a task of srun: its variables.")
@click.option(
    "--task",
    "name",
    metavar="TASK",
    shell_complete=completion.host_tasks,
    help="Only the machine of this task: chief or worker:N (default: all).",
)
@click.option(
    "--rank",
    metavar="N",
    type=click.IntRange(min=0),
    help="Only the machine at this place of --hosts, counted from 0.",
)
@click.option("--shell", is_flag=True, help="Print lines that set it in a shell.")
def command(
    hosts: str | None, *, is_on_slurm: bool, name: str | None, rank: int | None, shell: bool
) -> None:
    """Print TF_CONFIG for each machine of your own cluster, one a line.

    Set the first line on the first machine, the second on the second, and start the same program
    on all of them. On the second machine, for example:

    \b
      eval "$(distlaunch tf-config --hosts a,b,c --task worker:0 --shell)"

    In a script that srun, SkyPilot or dstack starts on each machine:

    \b
      eval "$(distlaunch tf-config --slurm --shell)"
      eval "$(distlaunch tf-config --hosts "$SKYPILOT_NODE_IPS" --rank "$SKYPILOT_NODE_RANK" --shell)"
      eval "$(distlaunch tf-config --hosts "$DSTACK_NODES_IPS" --rank "$DSTACK_NODE_RANK" --shell)"
    """  # noqa: D301, E501 - click wants the character that this is an escape for
    if is_on_slurm == (hosts is not None):
        raise UsageError("give either --hosts or --slurm")
    if hosts is not None:
        _show_hosts(hosts, name, rank, shell=shell)
    elif name or rank is not None:
        raise UsageError("--slurm: Slurm sets the task; remove --task and --rank")
    else:
        _show_slurm_task(shell=shell)


def _show_hosts(hosts: str, name: str | None, rank: int | None, *, shell: bool) -> None:
    """Print TF_CONFIG for the machines of --hosts, or for one of them."""
    from distlaunch.job.tf_config import parse_hosts, tf_config

    addresses = parse_hosts(hosts)
    tasks = [task for task in addresses if name in (None, str(task))]
    if rank is not None:
        if name or rank >= len(addresses):
            reason = "--task is another choice" if name else f"there are {len(addresses)} hosts"
            raise UsageError(f"--rank {rank}: {reason}")
        tasks = [[*addresses][rank]]
    if not tasks:
        known = [str(task) for task in addresses]
        listed = known if len(known) <= _MOST_LISTED else [*known[:2], "…", known[-1]]
        raise UsageError(
            f"--task {name}: no such task in this cluster; there are: {', '.join(listed)}"
        )
    is_guarded = shell and len(tasks) > 1
    if is_guarded:
        show(_BEFORE)
    for task in tasks:
        value = json.dumps(tf_config(addresses, task))
        if is_guarded:
            show(f"# on {addresses[task]} ({task})")
        show(f"export TF_CONFIG={shlex.quote(value)}" if shell else value)
    if is_guarded:
        show(_AFTER)


def _show_slurm_task(*, shell: bool) -> None:
    """Print the variables of this task of srun, as the trainer package sets them."""
    slurm: Any = import_module("distlaunch_trainer.slurm.environment")
    try:
        variables = slurm.environment(os.environ)
    except slurm.ClusterError as problem:
        raise DistlaunchError(f"--slurm: {problem}") from None
    if shell:
        show("\n".join(slurm.export_lines(variables)))
    elif "TF_CONFIG" in variables:
        show(variables["TF_CONFIG"])
