"""The output of commands, of Docker's pushes and pulls, and what is wrong in it."""

from __future__ import annotations

import re
import subprocess
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.errors import ImageError
from distlaunch.image.registry import errors
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.credentials import Credentials
    from distlaunch.ui.events import Event

Transfer = Literal["push", "pull"]

_LAST_LINES = 20  # of a step that failed
_LONGEST = 300  # characters of a message
_FINISHED = ("Pull complete", "Already exists", "Pushed", "Layer already exists", "Mounted from")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_STEP = re.compile(
    r"(?:#(?P<number>\d+) \[(?:[^\]]+ )?|Step )(?P<count>\d+/\d+)(?:\]| :) (?P<instruction>.*)"
)
_OUTPUT = re.compile(r"#(\d+) \d+\.\d+ (.*)")
_ERROR = re.compile(r"#(\d+) ERROR")
_EXIT_CODE = re.compile(r"(?:exit code:|non-zero code:) (\d+)")
_NO_OUTPUT = ("#", " --->", "Removing intermediate", "The command '")  # of a step
_DENIED = ("denied", "unauthorized", "authentication required", "no basic auth", "forbidden")
_NO_SPACE = "no space left on device"
_DISK_FULL = "Docker's disk is full; free space with 'docker system prune'"


def run_command(command: Sequence[str], show: Callable[[str], None], **options: Any) -> int:
    """Run a command, show each line of its output, and return its exit code.

    The options are those of `subprocess.Popen`. The command ends with an interruption.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **options,
    ) as process:
        try:
            for line in process.stdout or ():
                show(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    return process.returncode


class TransferProgress:
    """The layers of a push or a pull."""

    def __init__(self, action: Transfer, progress: Callable[[str], None]) -> None:
        self._action = action
        self._progress = progress
        self._bytes: dict[str, tuple[int, int]] = {}  # of a layer: done, total
        self._finished: set[str] = set()
        self.sent: set[str] = set()  # the layers that the registry did not have

    def show(self, event: Mapping[str, Any]) -> None:
        layer, status = event.get("id"), str(event.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return
        done, total = self._bytes.get(layer, (0, 0))
        if status in ("Downloading", "Pushing"):
            detail = event.get("progressDetail") or {}
            done, total = detail.get("current", 0), detail.get("total", total)
        if status.startswith(_FINISHED):
            done = total
            self._finished.add(layer)
        if status == "Pushed":
            self.sent.add(layer)
        self._bytes[layer] = (done, total)
        done, total = (sum(column) for column in zip(*self._bytes.values(), strict=True))
        self._progress(
            f"{self._action}ing: {len(self._finished)} of {len(self._bytes)} layers, "
            f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        )


class BuildOutput:
    """The steps of `docker build`, and the last lines of each.

    BuildKit begins its lines with the number of a step, the classic builder does not.
    """

    def __init__(self, show: Callable[[Event], None], progress: Callable[[str], None]) -> None:
        self._show = show
        self._progress = progress
        self._steps: dict[str, str] = {}
        self._lines: dict[str, deque[str]] = {}
        self._failed = ""  # the number of the step that failed
        self._tail: deque[str] = deque(maxlen=_LAST_LINES)

    def show(self, line: str) -> None:
        line = _ESCAPES.sub("", line)
        if not line or (self._failed and line.startswith((" ", "#", "-"))):
            return  # BuildKit repeats the output of the step that failed
        self._tail.append(line)
        step, output, error = _STEP.fullmatch(line), _OUTPUT.fullmatch(line), _ERROR.match(line)
        if step:
            self._begin(step["number"] or "", f"step {step['count']}: {step['instruction']}")
        elif error:
            self._failed = error[1]
        elif output:
            self._add(output[1], output[2])
        elif not line.startswith(_NO_OUTPUT):
            self._add("", line)

    def error(self) -> ImageError:
        """Show the last lines of the step that failed, and return the error."""
        text = "\n".join(self._tail)
        if _NO_SPACE in text:
            return ImageError(_DISK_FULL)
        code, step = _EXIT_CODE.search(text), self._steps.get(self._failed)
        if not (code and step):
            reason = one_line(self._tail[-1]) if self._tail else "no output"
            return ImageError(f"docker build failed: {reason}")
        lines = [f"last lines of {step}:", *self._lines[self._failed]]
        self._show(Notice("\n".join(lines), "error"))
        return ImageError(f"{step} failed with exit code {code[1]}; its last lines are above")

    def _begin(self, number: str, step: str) -> None:
        step = one_line(step)
        if self._steps.get(number) != step:
            self._steps[number] = step
            self._lines[number] = deque(maxlen=_LAST_LINES)
            self._show(Notice(step))

    def _add(self, number: str, line: str) -> None:
        self._lines.setdefault(number, deque(maxlen=_LAST_LINES)).append(line)
        self._progress(line.strip())


def transfer_error(
    action: Transfer, message: str, reference: Reference, login: Credentials | None
) -> ImageError:
    """Return the error and the remedy for what Docker reports of a registry."""
    lower, quoted, host = message.lower(), f" ({one_line(message)})", reference.host
    if any(word in lower for word in _DENIED):
        return ImageError(errors.denied(reference, login, quoted, pushing=action == "push"))
    is_unknown = "name unknown" in lower or ("repository" in lower and "not found" in lower)
    if action == "push" and is_unknown:
        return ImageError(errors.no_repository(reference, quoted))
    if _NO_SPACE in lower:
        return ImageError(_DISK_FULL)
    if "not found" in lower or "manifest unknown" in lower:
        return ImageError(f"image {reference} does not exist{quoted}; check its name")
    if "http response to https client" in lower:
        remedy = f"add {host} to insecure-registries in Docker's daemon.json"
    elif "x509" in lower or "certificate" in lower:
        remedy = f"put the registry's certificate into /etc/docker/certs.d/{host}/ca.crt"
    elif "toomanyrequests" in lower or "rate limit" in lower:
        remedy = f"run 'docker login {host}' for a higher limit, or try again later"
    else:
        remedy = f"check Docker's network and proxy settings for {host}, then try again"
    return ImageError(f"Docker cannot {action} {reference}{quoted}; {remedy}")


def one_line(text: str) -> str:
    """Return a text in one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
