"""A plan is carried out: what is missing is built and pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.events import Event
    from distlaunch.image.plan import BuiltImage, ImagePlan


def carry_out(
    plan: ImagePlan,
    see: Callable[[Event], None],
    *,
    push: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> BuiltImage:
    """Build what a plan says, and push it.

    Parameters
    ----------
    see
        Who is told what happens.
    push
        Whether to push; if not, the engine has the image afterwards, by its tag.
    progress
        Who is shown how far it is: a line that the next one replaces.

    Raises
    ------
    ImageError
        If something fails, with the remedy.
    """
    raise NotImplementedError
