"""Where `distlaunch` and `python -m distlaunch` begin.

This file is kept readable for Pythons that are too old for everything it imports.
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
        _open_what_is_closed()
        return _run()
    except KeyboardInterrupt:  # while modules were imported
        sys.stderr.write("distlaunch: interrupted\n")
        return INTERRUPTED


def _open_what_is_closed() -> None:
    """Let the standard streams that the caller has closed lead nowhere, not to a file of ours."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115


def _run() -> int:
    running = tuple(sys.version_info[:2])
    if not OLDEST <= running <= NEWEST:
        sys.stderr.write(
            "distlaunch: error: needs Python 3.10 to 3.13, and this is Python {}.{} ({}); "
            "install it with one of those\n".format(running[0], running[1], sys.executable)
        )
        return 1
    from distlaunch.cli import main as run  # a newer syntax than this file's

    code = run()
    gc.freeze()  # memory goes back as a whole; looking for circles in it takes a tenth of a check
    return code


if __name__ == "__main__":
    sys.exit(main())
