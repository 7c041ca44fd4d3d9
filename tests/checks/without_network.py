"""Runs distlaunch commands without a network.

    python tests/checks/without_network.py < commands.json

It reads a list of `{"folder": …, "words": […]}` and prints the results, and the modules that are
imported at the end. An audit hook refuses addresses and connections; it cannot be removed.
"""

from __future__ import annotations

import json
import sys

REFUSED = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in REFUSED:
        raise AssertionError(f"{event} {arguments}")


sys.addaudithook(refuse)

from corpus.running import run  # noqa: E402 - after the hook

results = [run(each["words"], each["folder"]) for each in json.load(sys.stdin)]
json.dump({"results": results, "modules": sorted(sys.modules)}, sys.stdout)
