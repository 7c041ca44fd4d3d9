"""Runs distlaunch's commands where the network is denied.

    python tests/checks/denied.py < commands.json

It reads a list of `{"folder": …, "words": […]}` and prints what each command said, and the modules
that are imported when all are done. Whoever asks for an address or for a connection is refused by
one of Python's audit hooks, which nothing can take away.
"""

from __future__ import annotations

import json
import sys

DENIED = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


def deny(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse what leads to a network."""
    if event in DENIED:
        raise AssertionError(f"{event} {arguments}")


sys.addaudithook(deny)

from corpus.running import run  # noqa: E402 - the hook comes first

results = [run(each["words"], each["folder"]) for each in json.load(sys.stdin)]
json.dump({"said": results, "modules": sorted(sys.modules)}, sys.stdout)
