"""The Docker engine that the `docker` command would use, and builds by that command."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import docker
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry import errors
from distlaunch.image.registry.credentials import find_credentials
from distlaunch.image.registry.errors import causes_of
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import Self

    from distlaunch.image.context import ContextFile
    from distlaunch.image.registry.credentials import Credentials
    from distlaunch.ui.events import Event

PLATFORM = "linux/amd64"

_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
_START = "start Docker ('sudo systemctl start docker', or Docker Desktop), or set DOCKER_HOST"


_SILENCE = 600  # seconds without an event of a push or a pull
_LAST_LINES = 20  # of a step that failed
_LONGEST = 300  # characters of a message
_LAYER_DIGITS = 12  # of a diff id in the events of a push
_FINISHED = ("Pull complete", "Already exists", "Pushed", "Layer already exists", "Mounted from")
_BUILT_IN = (19, 22)  # major versions of the docker command with BuildKit in it, not in a plugin
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_STEP = re.compile(
    r"(?:#(?P<number>\d+) \[(?:[^\]]+ )?|Step )(?P<count>\d+/\d+)(?:\]| :) (?P<instruction>.*)"
)
_OUTPUT = re.compile(r"#(\d+) \d+\.\d+ (.*)")
_ERROR = re.compile(r"#(\d+) ERROR")
_EXIT_CODE = re.compile(r"(?:exit code:|non-zero code:) (\d+)")
_DENIED = ("denied", "unauthorized", "authentication required", "no basic auth", "forbidden")
_NO_SPACE = "no space left on device"
_DISK_FULL = "Docker's disk is full; free space with 'docker system prune'"


class NoDockerError(ImageError):
    """Docker is not installed, not running or cannot be reached."""


def connect_docker(timeout: int = 30) -> docker.DockerClient:
    """Connect to the engine of DOCKER_HOST, or else of Docker's current context.

    Parameters
    ----------
    timeout
        Seconds to wait for an answer, of this call and of those on the client.

    Raises
    ------
    NoDockerError
        If no engine answers, with the remedy.
    """
    address = "the address in DOCKER_HOST or Docker's context"
    try:
        address = _docker_address()
        _check_socket(address)
        return docker.from_env(timeout=timeout, use_ssh_client=True)
    except NoDockerError:
        raise
    except Exception as error:  # docker-py raises all kinds for broken files of its contexts
        raise NoDockerError(_connection_problem(error, address)) from error


def _docker_address() -> str:
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    name = os.environ.get("DOCKER_CONTEXT")
    if name and ContextAPI.get_context(name) is None:
        raise NoDockerError(
            f"DOCKER_CONTEXT: no Docker context named {name!r}; see 'docker context ls'"
        )
    return str(ContextAPI.kwargs_from_context().get("base_url", _DEFAULT_ADDRESS))


def _check_socket(address: str) -> None:
    """Connect once: docker-py leaves its socket open where nothing listens."""
    scheme, _, path = address.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)


def _connection_problem(error: Exception, address: str) -> str:
    causes = list(causes_of(error))
    if any(isinstance(cause, (FileNotFoundError, ConnectionRefusedError)) for cause in causes):
        return f"Docker is not running at {address}; {_START}"
    if any(isinstance(cause, PermissionError) for cause in causes):
        return (
            f"no permission to use Docker's socket {address}; "
            "run 'sudo usermod -aG docker $USER' and log in again"
        )
    if any("Timeout" in type(cause).__name__ for cause in causes):
        return f"Docker at {address} does not answer; restart it"
    reason = " ".join(str(causes[-1]).split()) or type(causes[-1]).__name__
    return (
        f"cannot connect to Docker at {address} ({reason}); check DOCKER_HOST, DOCKER_TLS_VERIFY "
        "and DOCKER_CERT_PATH"
    )


class Docker:
    """Docker, used for linux/amd64 images; a context manager.

    The base images of a build and pushes use the credentials of their own registry only, those of
    google-auth included.

    Parameters
    ----------
    show
        Called with a notice for each step.
    progress
        Called with a line that replaces the one before.

    Raises
    ------
    NoDockerError
        If Docker cannot be reached, or there is no `docker` command.
    """

    def __init__(
        self, show: Callable[[Event], None], progress: Callable[[str], None] = lambda _: None
    ) -> None:
        self._show = show
        self._progress = progress
        self._command, self.has_buildkit = _docker_command()
        # Left open: the types of docker-py are stricter than docker-py.
        self._api: Any = connect_docker().api
        self._api.timeout = _SILENCE

    def has_image(self, image: str) -> bool:
        """Return whether Docker has an image of this name for linux/amd64."""
        try:
            found = self._api.inspect_image(image)
        except ImageNotFound:
            return False
        return bool(f"{found['Os']}/{found['Architecture']}" == PLATFORM)

    def pull(self, images: Iterable[str]) -> None:
        """Pull the images that Docker does not have.

        Raises
        ------
        ImageError
            If an image cannot be pulled, with the remedy.
        """
        for image in images:
            if not self.has_image(image):
                reference = Reference.parse(image)
                self._show(Notice(f"pulling {reference}"))
                self._transfer("pull", reference, reference.identifier, platform=PLATFORM)

    def push(self, reference: Reference) -> PushedImage:
        """Push an image by its tag.

        Raises
        ------
        ImageError
            If it cannot be pushed, with the remedy.
        """
        self._show(Notice(f"pushing {reference}"))
        return self._transfer("push", reference, reference.tag)

    def build(
        self,
        dockerfile: str,
        folder: Path,
        files: Iterable[ContextFile],
        tag: Reference,
        secrets: Mapping[str, str | Path] | None = None,
    ) -> None:
        """Build an image, which has the tag only once the build has succeeded.

        Parameters
        ----------
        dockerfile
            The text.
        folder, files
            The context: files of this folder, and nothing else.
        secrets
            Texts or files by their ids, for ``RUN --mount=type=secret``; only with BuildKit.

        Raises
        ------
        ImageError
            If the build fails; the last lines of its output are shown before.
        """
        with tempfile.TemporaryDirectory(prefix="distlaunch-") as name:
            scratch = Path(name)
            (scratch / "Dockerfile").write_text(dockerfile, encoding="utf-8")
            # The files are already selected: no other ignore file applies.
            (scratch / "Dockerfile.dockerignore").touch()
            _copy_files(folder, files, scratch / "context")
            command = [self._command, "build", f"--platform={PLATFORM}", f"--tag={tag}"]
            command += [f"--file={scratch}/Dockerfile"]
            for key, secret in (secrets or {}).items():
                command.append(f"--secret=id={key},src={_secret_file(key, secret, scratch)}")
            self._run_build([*command, f"{scratch}/context"])
        if not self.has_image(str(tag)):
            raise ImageError(
                f"Docker has built {tag} for another platform than {PLATFORM}; run 'docker pull "
                f"--platform {PLATFORM}' for its base image and try again"
            )

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _run_build(self, command: list[str]) -> None:
        env = os.environ | {
            "DOCKER_BUILDKIT": "1" if self.has_buildkit else "0",
            "BUILDKIT_PROGRESS": "plain",
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        }
        env.pop("BUILDX_BUILDER", None)  # its images may not be in Docker
        output = _BuildOutput(self._show, self._progress)
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
        ) as process:
            try:
                for line in process.stdout or ():
                    output.show(line.rstrip())
            except BaseException:
                process.terminate()
                raise
        self._progress("")
        if process.returncode:
            raise output.error()

    def _transfer(
        self, action: Literal["push", "pull"], reference: Reference, tag: str | None, **options: str
    ) -> PushedImage:
        """Push or pull an image."""
        login = find_credentials(reference.host)
        progress = _TransferProgress(f"{action}ing", self._progress)
        digest = None
        try:
            events = getattr(self._api, action)(
                reference.name,
                tag,
                stream=True,
                decode=True,
                auth_config=_auth_config(login),
                **options,
            )
            with contextlib.closing(events):
                for event in events:
                    if "error" in event:
                        raise _transfer_error(str(event["error"]), reference, login, action)
                    progress.show(event)
                    digest = (event.get("aux") or {}).get("Digest") or digest
        except APIError as error:
            message = str(error.explanation or error)
            raise _transfer_error(message, reference, login, action) from None
        except (DockerException, RequestException, HTTPError, OSError) as error:
            reason = _one_line(str(list(causes_of(error))[-1]))
            raise ImageError(f"lost the connection to Docker ({reason}); try again") from error
        finally:
            self._progress("")
        return PushedImage(digest, frozenset(progress.sent))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class PushedImage:
    """An image that was pushed.

    Parameters
    ----------
    digest
        ``sha256:…``, None if the engine does not report it.
    sent
        The first digits of the diff ids of those layers that the registry did not have.
    """

    digest: str | None
    sent: frozenset[str]

    def has_sent(self, diff_id: str) -> bool:
        """Return whether a layer was sent."""
        return diff_id.removeprefix("sha256:")[:_LAYER_DIGITS] in self.sent


class _TransferProgress:
    """The layers of a push or a pull."""

    def __init__(self, verb: str, progress: Callable[[str], None]) -> None:
        self._verb = verb
        self._progress = progress
        self._bytes: dict[str, tuple[int, int]] = {}  # of a layer: done, total
        self._finished: set[str] = set()
        self.sent: set[str] = set()

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
            f"{self._verb}: {len(self._finished)} of {len(self._bytes)} layers, "
            f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        )


class _BuildOutput:
    """The output of `docker build`: its steps, and the last lines of each.

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
        step, output = _STEP.fullmatch(line), _OUTPUT.fullmatch(line)
        error = _ERROR.match(line)
        if step:
            self._begin(step["number"] or "", f"step {step['count']}: {step['instruction']}")
        elif error:
            self._failed = error[1]
        elif output:
            self._add(output[1], output[2])
        elif not line.startswith(("#", " --->", "Removing intermediate", "The command '")):
            self._add("", line)

    def _begin(self, number: str, step: str) -> None:
        if self._steps.get(number) != step:
            self._steps[number] = step
            self._lines[number] = deque(maxlen=_LAST_LINES)
            self._show(Notice(_one_line(step)))

    def _add(self, number: str, line: str) -> None:
        self._lines.setdefault(number, deque(maxlen=_LAST_LINES)).append(line)
        self._progress(line.strip())

    def error(self) -> ImageError:
        """Show the last lines of the step that failed, and return the error."""
        text = "\n".join(self._tail)
        if _NO_SPACE in text:
            return ImageError(_DISK_FULL)
        code = _EXIT_CODE.search(text)
        step = _one_line(self._steps.get(self._failed, ""))
        if not (code and step):
            reason = _one_line(self._tail[-1]) if self._tail else "docker printed nothing"
            return ImageError(f"docker build failed: {reason}")
        lines = self._lines[self._failed]
        self._show(Notice("\n".join([f"last lines of {step}:", *lines]), "error"))
        return ImageError(f"{step} failed with exit code {code[1]}; its last lines are above")


def _docker_command() -> tuple[str, bool]:
    """Return the `docker` command and whether it has BuildKit; one that has it is preferred."""
    paths = [Path(folder, "docker") for folder in os.get_exec_path()]
    commands = [str(path) for path in paths if os.access(path, os.X_OK)]
    for command in commands:
        if _has_buildkit(command):
            return command, True
    if not commands:
        raise NoDockerError(f"no docker command on PATH; install Docker and {_START}")
    return commands[0], False


def _has_buildkit(command: str) -> bool:
    if _output(command, "buildx", "version").startswith("github.com/docker/buildx"):
        return True
    version = _output(command, "version", "--format", "{{.Client.Version}}")
    major = re.match(r"\d+", version)
    return major is not None and _BUILT_IN[0] <= int(major[0]) <= _BUILT_IN[1]


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _copy_files(folder: Path, files: Iterable[ContextFile], target: Path) -> None:
    """Copy a build's files, without the times at which they were changed."""
    target.mkdir()
    for file in files:
        path = target / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.target is not None:
            path.symlink_to(file.target)
            continue
        try:
            shutil.copyfile(folder / file.path, path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ImageError(f"{file.path}: cannot be read ({reason})") from error
        path.chmod(file.mode)
        os.utime(path, (0, 0))


def _secret_file(name: str, secret: str | Path, folder: Path) -> Path:
    if isinstance(secret, Path):
        return secret
    path = folder / f"secret-{name}"
    path.touch(mode=0o600)
    path.write_text(secret, encoding="utf-8")
    return path


def _auth_config(login: Credentials | None) -> dict[str, str]:
    if login is None:
        return {}
    if login.identity_token:
        return {"identitytoken": login.identity_token}
    return {"username": login.username, "password": login.password}


def _transfer_error(
    message: str, reference: Reference, login: Credentials | None, action: Literal["push", "pull"]
) -> ImageError:
    """Return the error and its remedy for what an engine reports of a registry."""
    lower, quoted = message.lower(), f" ({_one_line(message)})"
    if any(word in lower for word in _DENIED):
        return ImageError(errors.denied(reference, login, quoted, pushing=action == "push"))
    is_unknown = "name unknown" in lower or ("repository" in lower and "not found" in lower)
    if action == "push" and is_unknown:
        return ImageError(errors.no_repository(reference, quoted))
    if _NO_SPACE in lower:
        return ImageError(_DISK_FULL)
    if "not found" in lower or "manifest unknown" in lower:
        return ImageError(f"image {reference} does not exist{quoted}; check its name")
    host = reference.host
    if "http response to https client" in lower:
        remedy = f"add {host} to insecure-registries in Docker's daemon.json"
    elif "x509" in lower or "certificate" in lower:
        remedy = f"put the registry's certificate into /etc/docker/certs.d/{host}/ca.crt"
    elif "toomanyrequests" in lower or "rate limit" in lower:
        remedy = f"run 'docker login {host}' for a higher limit, or try again later"
    else:
        remedy = f"check Docker's network and proxy settings for {host}, then try again"
    return ImageError(f"Docker cannot {action} {reference}{quoted}; {remedy}")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
