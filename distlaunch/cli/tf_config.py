"""`distlaunch tf-config`: TF_CONFIG for your own machines."""

from __future__ import annotations

import json
import shlex

import click

from distlaunch.cli import completion
from distlaunch.cli.settings import show

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
    required=True,
    help="The machines; the first is the chief. Port 2222 where none is given.",
)
@click.option(
    "--task",
    "name",
    metavar="TASK",
    shell_complete=completion.host_tasks,
    help="Only the machine of this task: chief or worker:N (default: all).",
)
@click.option("--shell", is_flag=True, help="Print lines that set it in a shell.")
def command(hosts: str, name: str | None, shell: bool) -> None:
    """Print TF_CONFIG for each machine of your own cluster, one a line.

    Set the first line on the first machine, the second on the second, and start the same program
    on all of them. On the second machine, for example:

    \b
      eval "$(distlaunch tf-config --hosts a,b,c --task worker:0 --shell)"
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.errors import UsageError
    from distlaunch.job.tf_config import parse_hosts, tf_config

    addresses = parse_hosts(hosts)
    tasks = [task for task in addresses if name in (None, str(task))]
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
