"""What the events of a container engine say of how far it is, and of what has failed."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

from distlaunch.image.engine import problems
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.ui.events import Event

LAST_LINES = 20  # of a step that failed

_LONGEST_STEP = 100  # characters of an instruction
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)", re.DOTALL)
_BUILT = re.compile(r"Successfully built ([0-9a-f]+)")
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


class Steps:
    """Follows the events of a build.

    Parameters
    ----------
    see, progress
        Who is told of its steps, and who is shown what they write.

    Attributes
    ----------
    image
        The id of what was built, None as long as that is not known.
    """

    def __init__(self, see: Callable[[Event], None], progress: Callable[[str], None]) -> None:
        self.image: str | None = None
        self._see = see
        self._progress = progress
        self._layers = Layers("pulling", progress)
        self._step = ""
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def see(self, event: Mapping[str, Any]) -> None:
        if "error" in event or "errorDetail" in event:
            self._fail(event)
        elif "stream" in event:
            self._line(event["stream"])
        elif "aux" in event:
            self.image = event["aux"].get("ID") or self.image
        else:
            self._layers.see(event)

    def _line(self, text: str) -> None:
        step, built = _STEP.fullmatch(text.strip()), _BUILT.match(text)
        if step:
            self._last.clear()
            self._step = f"step {step[1]} of {step[2]}: {_shortened(step[3])}"
            self._see(Notice(self._step))
        elif built:
            self.image = self.image or built[1]
            self._progress("")
        elif not text.startswith((" --->", "Removing intermediate", "Successfully tagged")):
            lines = [line.rstrip() for line in plain(text).splitlines() if line.strip()]
            self._last.extend(lines)
            for line in lines:
                self._progress(line.strip())

    def _fail(self, event: Mapping[str, Any]) -> None:
        self._progress("")
        detail = event.get("errorDetail") or {}
        text = str(detail.get("message") or event.get("error"))
        if self._last:
            self._see(Notice("\n".join([f"{self._step} ended so:", *self._last]), "error"))
        raise problems.failed_build(text, self._step)


def plain(text: str) -> str:
    """Return what a program wrote without colours and movements of the cursor (ECMA-48, CSI)."""
    return _ESCAPES.sub("", text)


def _shortened(instruction: str) -> str:
    line = " ".join(instruction.split())
    return line if len(line) <= _LONGEST_STEP else f"{line[:_LONGEST_STEP]}…"
