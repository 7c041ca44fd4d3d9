"""`distlaunch tf-config`: TF_CONFIG for your own machines."""

from __future__ import annotations

import json
import shlex

import click

from distlaunch.cli import completion, show

_MOST_LISTED = 12


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
@click.option("--shell", is_flag=True, help="Print a line that sets it in a shell; needs --task.")
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
    if shell and len(tasks) > 1:
        raise UsageError("--shell needs the task of one machine, e.g. --task chief")
    for task in tasks:
        value = json.dumps(tf_config(addresses, task))
        show(f"export TF_CONFIG={shlex.quote(value)}" if shell else value)
