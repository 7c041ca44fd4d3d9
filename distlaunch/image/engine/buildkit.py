"""The second builder: the `docker build` command, for Dockerfiles that only BuildKit understands.

docker-py speaks to the classic builder alone. Secrets that a Dockerfile mounts by the ids
`pip.conf` and `netrc` are this machine's; BuildKit puts them into no layer and no cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING

from distlaunch.errors import ImageError
from distlaunch.image.engine import problems
from distlaunch.image.engine.progress import plain
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.ui.events import Event

_LAST_LINES = 20
_BUILT_IN = (18, 23)  # major versions of docker's client with BuildKit in it, and not in a plugin
_LINE = re.compile(r"#\d+ (?:\d+\.\d+ )?(.*)")
_STEP = re.compile(r"#\d+ (\[(?!internal).*)")
_EXIT = re.compile(r"did not complete successfully: exit code: (\d+)|exit code: (\d+)")


def build(
    context: IO[bytes],
    dockerfile: str,
    tag: str,
    see: Callable[[Event], None],
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Build an image for linux/amd64; it is in the engine afterwards, by its tag.

    Parameters
    ----------
    context
        A tar with all that is copied, and the Dockerfile.
    dockerfile
        The Dockerfile's path in the tar.
    tag
        What the image is called in the engine.
    see, progress
        Who is told what happens, and how far it is.

    Raises
    ------
    ImageError
        If there is no `docker` command with BuildKit, or the build fails.
    """
    command = [_client(), "build", "--progress=plain", "--platform=linux/amd64"]
    command += [f"--tag={tag}", f"--file={dockerfile}", *_secrets(), "-"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"DOCKER_BUILDKIT": "1"},
    ) as process:
        try:
            _send(context, process)
            step, last = _follow(process, see, progress)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        see(Notice("\n".join([f"{step or 'the build'} ended so:", *last]), "error"))
        raise _failed(step, last)


def _send(context: IO[bytes], process: subprocess.Popen[bytes]) -> None:
    if process.stdin is None:
        return
    try:
        with process.stdin:
            shutil.copyfileobj(context, process.stdin)
    except BrokenPipeError:  # it says itself why it has ended
        pass


def _follow(
    process: subprocess.Popen[bytes],
    see: Callable[[Event], None],
    progress: Callable[[str], None],
) -> tuple[str, deque[str]]:
    """Show a build's lines; return its last step and what that wrote."""
    step, last = "", deque[str](maxlen=_LAST_LINES)
    for data in process.stdout or ():
        line = data.decode(errors="replace").rstrip()
        begun, told = _STEP.fullmatch(line), _LINE.fullmatch(line)
        if begun and begun[1] != step:
            step = begun[1]
            last.clear()
            see(Notice(step))
        elif line:
            last.append(plain(told[1] if told else line))
            progress(last[-1])
    progress("")
    return step, last


def _failed(step: str, last: deque[str]) -> ImageError:
    text = "\n".join(last)
    if "no space left on device" in text:
        return ImageError(problems.disk_is_full())
    found = _EXIT.search(text)
    if found and step:
        code = found[1] or found[2]
        return ImageError(f"{step} failed with exit code {code}; its last lines stand above")
    why = problems.shortened(last[-1] if last else "it said nothing")
    return ImageError(f"the image cannot be built: {why}")


def _client() -> str:
    """Return a `docker` command with BuildKit; the first on PATH may be one without."""
    for folder in os.get_exec_path():
        found = Path(folder, "docker")
        if os.access(found, os.X_OK) and _has_buildkit(str(found)):
            return str(found)
    raise ImageError(
        "the Dockerfile needs BuildKit (RUN --mount, a here-document or '# syntax'), and there is "
        "no docker command that has it; install docker-buildx"
    )


def _has_buildkit(docker: str) -> bool:
    if _output(docker, "buildx", "version").startswith("github.com/docker/buildx"):
        return True
    version = _output(docker, "version", "--format", "{{.Client.Version}}")
    major = re.match(r"\d+", version)
    return bool(major) and _BUILT_IN[0] < int(version.split(".")[0]) < _BUILT_IN[1]


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _secrets() -> Iterator[str]:
    """Give the options that let a Dockerfile mount this machine's own files as secrets."""
    from distlaunch.image.engine.pip_settings import pip_files

    for name, file in pip_files().items():
        yield f"--secret=id={name},src={file}"
