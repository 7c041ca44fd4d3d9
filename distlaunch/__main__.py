"""Where `distlaunch` and `python -m distlaunch` begin.

This file is kept readable for Pythons that are too old for everything it imports.
"""

import sys

OLDEST = (3, 10)
NEWEST = (3, 13)


def main() -> int:
    """Run the command line and return its exit code."""
    running = tuple(sys.version_info[:2])
    if not OLDEST <= running <= NEWEST:
        sys.stderr.write(
            "distlaunch: error: needs Python 3.10 to 3.13, and this is Python {}.{} ({}); "
            "install it with one of those\n".format(running[0], running[1], sys.executable)
        )
        return 1
    from distlaunch.cli import main as run  # a newer syntax than this file's

    return run()


if __name__ == "__main__":
    sys.exit(main())
