"""`distlaunch tf-config`: TF_CONFIG for machines of one's own."""

from __future__ import annotations

import json
import shlex

import click

from distlaunch.cli import show


@click.command("tf-config", short_help="Print TF_CONFIG for machines of your own.")
@click.option(
    "--hosts",
    metavar="A:2222,B,C",
    required=True,
    help="The machines; the first is the chief. Port 2222 where none is given.",
)
@click.option("--shell", is_flag=True, help="Print lines for a shell to read.")
def command(hosts: str, shell: bool) -> None:
    """Print TF_CONFIG for each machine of your own cluster, one a line.

    Set the first line on the first machine, the second on the second, and start the same program
    on all of them.
    """
    from distlaunch.job.hosts import parse_hosts
    from distlaunch.job.replica import tf_config

    addresses = parse_hosts(hosts)
    for task, address in addresses.items():
        value = json.dumps(tf_config(addresses, task))
        if shell:
            show(f"# on {address} ({task})")
            show(f"export TF_CONFIG={shlex.quote(value)}")
        else:
            show(value)
