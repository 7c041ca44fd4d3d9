"""The entry point of `distlaunch` and `python -m distlaunch`.

This file's syntax works on Pythons that are too old for everything that it imports.
"""

import gc
import os
import sys

OLDEST = (3, 10)
NEWEST = (3, 13)
INTERRUPTED = 130


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        _open_closed_streams()
        return _run()
    except KeyboardInterrupt:  # while modules are imported
        sys.stderr.write("distlaunch: interrupted\n")
        return INTERRUPTED


def _open_closed_streams() -> None:
    """Open standard streams that the caller has closed, so that no file gets their descriptor."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115


def _run() -> int:
    problem = _unsupported()
    if problem:
        sys.stderr.write("distlaunch: error: {}\n".format(problem))
        return 1
    from distlaunch.cli import main as run  # a newer syntax than this file's

    code = run()
    gc.freeze()  # frees memory as a whole; collecting cycles takes a tenth of a check
    return code


def _unsupported() -> str:
    """Return why this Python cannot run distlaunch, or nothing."""
    running = tuple(sys.version_info[:2])
    if not OLDEST <= running <= NEWEST:
        return "needs Python 3.10 to 3.13, and this is Python {}.{} ({}); use one of those".format(
            running[0], running[1], sys.executable
        )
    return ""


if __name__ == "__main__":
    sys.exit(main())
