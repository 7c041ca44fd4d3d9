"""The colours of states of jobs, runs and machines."""

from __future__ import annotations

from distlaunch.ui.console import CYAN, GREEN, RED, YELLOW, coloured

_COLOURS = {
    "SUCCEEDED": GREEN,
    **dict.fromkeys(("FAILED", "EXPIRED", "ERROR"), RED),
    **dict.fromkeys(("CANCELLED", "PARTIALLY_SUCCEEDED", "STOPPING", "UNKNOWN"), YELLOW),
}


def coloured_state(state: str) -> str:
    """Return a state in its colour, for what is drawn or logged; one that goes on is cyan."""
    return coloured(state, _COLOURS.get(state, CYAN))
