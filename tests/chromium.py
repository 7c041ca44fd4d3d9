"""Chromium without a window, driven by its DevTools protocol through a pipe.

It is Debian's package `chromium-headless-shell`, or what is on PATH. It is installed with
DISTLAUNCH_TEST_ENGINE=1, as Docker is for the tests of images.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
from base64 import b64decode
from typing import IO, TYPE_CHECKING, Any

import engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = "chromium-headless-shell"
PROGRAMS = (PACKAGE, "chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class NoChromiumError(Exception):
    """There is no Chromium on this machine."""


class Browser:
    """One tab. `problems` are exceptions, messages of its console, and requests of the page."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self.problems: list[str] = []
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}
        self._is_loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params, **self._session}
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while (answer := self._read()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path, width: int, *, is_dark: bool = False) -> None:
        """Open a file in a window of a width, and wait until its charts are drawn."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.problems, self._is_loaded = [], False
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not self._is_loaded:
            self._read()
        self.evaluate("new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        how = {"returnByValue": True, "awaitPromise": True}
        done = self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def screenshot(self) -> bytes:
        """Return the whole page as PNG."""
        clip = self.call("Page.getLayoutMetrics")["cssContentSize"] | {"scale": 1}
        how = {"clip": clip, "captureBeyondViewport": True}
        return b64decode(self.call("Page.captureScreenshot", **how)["data"])

    def _read(self) -> dict[str, Any]:
        """Return the next message, after taking note of an event."""
        data = bytearray()
        while (byte := self._reader.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            data += byte
        message = json.loads(data)
        method, params = message.get("method"), message.get("params", {})
        self._is_loaded = self._is_loaded or method == "Page.loadEventFired"
        is_request = method == "Network.requestWillBeSent"
        is_of_page = is_request and params["request"]["url"] != params["documentURL"]
        messages = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        if method in messages or is_of_page:
            self.problems.append(json.dumps(params))
        return message


@contextlib.contextmanager
def running(profile: Path, *, install: bool = False) -> Iterator[Browser]:
    """Start Chromium; what is missing is installed, as root, or NoChromiumError is raised."""
    program, problem = _find(), ""
    if program is None:
        with engine.installing():
            problem = engine.install_packages([PACKAGE], is_allowed=install)
        program = _find()
    if program is None:
        raise NoChromiumError(problem)
    (to_browser, commands), (answers, from_browser) = os.pipe(), os.pipe()
    # The protocol is on the descriptors 3 and 4.
    shell = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
    words = (program, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}")
    with (
        os.fdopen(commands, "wb") as writer,
        os.fdopen(answers, "rb") as reader,
        subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Browser(reader, writer)
        finally:
            process.kill()


def _find() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)
