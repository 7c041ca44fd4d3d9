"""What stands after ``--`` on a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_AFTER_DASHES = "distlaunch.after_dashes"


class WithWordsAfterDashes(click.Command):
    """A command that gets what stands after ``--``, untouched, as the parameter `words`."""

    allow_extra_args = True
    # So that a program's own options, should somebody forget the dashes, are not taken for ours.
    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(
                f"{rest[0]!r}: a program, or what the job's program is to get, stands after '--'",
                ctx,
            )
        ctx.params["words"] = tuple(args[at + 1 :])
        ctx.meta[_AFTER_DASHES] = "--" in args
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer our options, but none to the program behind the dashes."""
        return [] if ctx.meta[_AFTER_DASHES] else super().shell_complete(ctx, incomplete)


class WithNameAndWords(WithWordsAfterDashes):
    """The same for a command with an argument of its own, which may stand anywhere before."""

    allow_interspersed_args = True
