"""`distlaunch docs`: open the documentation, also without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from distlaunch.cli import completion

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings


# Options of the trainer are topics.
@click.command("docs", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[TOPIC]", nargs=-1, shell_complete=completion.documented_topics)
@click.option("--print", "only_print", is_flag=True, help="Print the address, and open nothing.")
@click.pass_obj
def command(settings: Settings, /, *, words: tuple[str, ...], only_print: bool) -> None:
    """Open the documentation in a browser, and print its address.

    TOPIC is a page, a code of 'distlaunch check', a command, an option of the trainer or a key of
    the job file. The installed documentation needs no network; an installation without it opens
    the pages online.

    \b
      distlaunch docs
      distlaunch docs machine-unknown
      distlaunch docs --print exit codes
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.documentation import find_page

    address = find_page(words)
    settings.console().result(address)
    if not only_print:
        import webbrowser

        webbrowser.open(address)
