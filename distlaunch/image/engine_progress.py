"""How far an engine is with the layers of an image, as one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MEGA = 1_000_000
_ENDS = ("Pull complete", "Already exists", "Pushed", "Layer already exists", "Mounted from")


class Layers:
    """Follows the events of a pull or a push.

    Parameters
    ----------
    doing
        What is done with them, as ``pulling``.
    progress
        Who is shown the line.
    """

    def __init__(self, doing: str, progress: Callable[[str], None]) -> None:
        self._doing = doing
        self._progress = progress
        self._sizes: dict[str, tuple[int, int]] = {}  # by layer: bytes so far, bytes in all
        self._done: set[str] = set()
        self._sent: set[str] = set()

    @property
    def sent(self) -> frozenset[str]:
        """The layers that were not there before."""
        return frozenset(self._sent)

    def see(self, event: Mapping[str, Any]) -> None:
        """Show the line after an event; an event of no layer changes nothing."""
        layer, status = event.get("id"), str(event.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return
        detail = event.get("progressDetail") or {}
        before = self._sizes.get(layer, (0, 0))
        if status.startswith(_ENDS):
            self._done.add(layer)
            self._sent |= {layer} if status == "Pushed" else set()
            self._sizes[layer] = (before[1], before[1])
        elif status in ("Downloading", "Pushing"):
            self._sizes[layer] = (detail.get("current", 0), detail.get("total", before[1]))
        else:
            self._sizes.setdefault(layer, before)
        self._progress(self._line())

    def _line(self) -> str:
        current, total = (sum(column) for column in zip(*self._sizes.values(), strict=True))
        counted = f"{self._doing}: {len(self._done)} of {len(self._sizes)} layers"
        return f"{counted}, {current / _MEGA:,.0f} of {total / _MEGA:,.0f} MB" if total else counted
