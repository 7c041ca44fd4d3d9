"""A command or a web hook that is called at the end of a run or job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from distlaunch import platforms
from distlaunch.background import BackgroundTask
from distlaunch.errors import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    STOPPED_CODES,
    DistlaunchError,
    os_reason,
)
from distlaunch.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.events import Level

TIMEOUT = 30  # seconds for the command or the request


@dataclass(slots=True)
class Ending:
    """How a run or job ended."""

    job: str
    job_dir: str = ""
    code: int = EXIT_ERROR
    cancels: bool = True  # whether Ctrl-C cancels the job; otherwise it keeps running

    def fields(self, seconds: float) -> dict[str, str | int]:
        """Return what a notification contains; `seconds` is how long the command ran."""
        interrupted = "CANCELLED" if self.cancels else "RUNNING"
        code_state = {0: "SUCCEEDED", **dict.fromkeys(STOPPED_CODES, interrupted)}
        return {
            "job": self.job,
            "state": code_state.get(self.code, "FAILED"),
            "exit_code": self.code,
            "duration": round(seconds),
            "job_dir": self.job_dir,
        }


@contextmanager
def notify_at_end(
    target: str | None, ending: Ending, log: Callable[[str, Level], object]
) -> Iterator[Ending]:
    """Notify `target` when the block ends, also by an error or by Ctrl-C.

    `target` is a shell command or an http(s) URL; None for no notification. The block sets the exit
    code of the `ending`. `log` is called with a text and a level if the notification fails.
    """
    start = time.monotonic()
    try:
        yield ending
    except KeyboardInterrupt:
        ending.code = EXIT_INTERRUPTED
        raise
    except DistlaunchError as error:
        ending.code = error.exit_code
        raise
    finally:
        if target:
            problem = _notify(target, ending.fields(time.monotonic() - start))
            if problem:
                log(f"--notify: {problem}", "warning")


def _notify(target: str, fields: dict[str, str | int]) -> str | None:
    """Send a notification and return what went wrong, without the secrets of a URL."""
    text = f"{fields['job']}: {fields['state']} after {duration(int(fields['duration']))}"
    if target.lower().startswith(("http://", "https://")):
        try:
            return BackgroundTask(lambda: _post(target, {"text": text, **fields})).result(TIMEOUT)
        except TimeoutError:  # that of the socket is one of each read
            return f"{urlsplit(target).hostname}: no answer within {TIMEOUT} s"
    variables = {f"DISTLAUNCH_{key.upper()}": str(value) for key, value in fields.items()}
    try:
        process = subprocess.Popen(
            target if sys.platform == "win32" else ["/bin/sh", "-c", target],
            stdin=subprocess.PIPE,
            encoding="utf-8",
            shell=sys.platform == "win32",
            env={**os.environ, **variables},
            stdout=2,  # stdout may be read as JSON
            start_new_session=True,
        )
    except OSError as error:
        return f"the command failed: {os_reason(error)}"
    try:
        process.communicate(f"{text}\n", timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"the command did not end within {TIMEOUT} s"
    finally:
        if process.poll() is None:
            platforms.kill_tree(process)
            process.communicate()
    code = process.returncode
    return f"the command failed with exit code {code}" if code else None


class _NoRedirects(HTTPRedirectHandler):
    """Makes a redirect an error: it would be followed without what was posted."""

    def redirect_request(self, *_: object) -> None:
        """Follow nothing."""


def _post(url: str, content: dict[str, str | int]) -> str | None:
    """POST JSON and return what went wrong."""
    try:
        host = urlsplit(url).hostname
        headers = {"Content-Type": "application/json"}
        request = Request(url, json.dumps(content).encode(), headers)  # noqa: S310 - http(s) only
        with build_opener(_NoRedirects).open(request, timeout=TIMEOUT):
            return None
    except HTTPError as error:
        return f"HTTP {error.code} from {host}"
    except URLError as error:
        reason = error.reason
        return f"{host}: {os_reason(reason) if isinstance(reason, OSError) else reason}"
    except OSError as error:
        return f"{host}: {os_reason(error)}"
    except (HTTPException, ValueError):
        return "the URL is not valid, or its server's answer"
