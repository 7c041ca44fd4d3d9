"""The Docker engine that the `docker` command would use, and builds by that command."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import docker
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from distlaunch.errors import ImageError, os_reason
from distlaunch.image.command_output import (
    BuildOutput,
    TransferProgress,
    one_line,
    run_command,
    transfer_error,
)
from distlaunch.image.reference import Reference
from distlaunch.image.registry.credentials import find_credentials
from distlaunch.image.registry.errors import causes_of
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import Self

    from distlaunch.image.command_output import Transfer
    from distlaunch.image.context import ContextFile
    from distlaunch.image.registry.credentials import Credentials
    from distlaunch.ui.events import Event

PLATFORM = "linux/amd64"

_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
_START = "start Docker ('sudo systemctl start docker', or Docker Desktop), or set DOCKER_HOST"
_SILENCE = 600  # seconds without an event of a push or a pull
_LAYER_DIGITS = 12  # of a diff id in the events of a push
_BUILT_IN = range(19, 23)  # major versions of the docker command with BuildKit and without a plugin


class NoDockerError(ImageError):
    """Docker is not installed, not running or cannot be reached."""


def connect_docker(timeout: int = 30) -> docker.DockerClient:
    """Connect to Docker at DOCKER_HOST, or else in Docker's current context.

    The timeout, in seconds, is for each response, also to later calls on the client.

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
    reason = one_line(str(causes[-1])) or type(causes[-1]).__name__
    return (
        f"cannot connect to Docker at {address} ({reason}); check DOCKER_HOST, DOCKER_TLS_VERIFY "
        "and DOCKER_CERT_PATH"
    )


class Docker:
    """Docker as the builder of linux/amd64 images; a context manager.

    `show` is called with a notice for each step, `progress` with a line that replaces the one
    before. Base images and pushes use the credentials of their own registry only.
    """

    def __init__(
        self, show: Callable[[Event], None], progress: Callable[[str], None] = lambda _: None
    ) -> None:
        self._show = show
        self._progress = progress
        self._command, self.has_buildkit = _docker_command()
        self._api: Any = connect_docker().api  # with fewer types than its methods take
        self._api.timeout = _SILENCE

    def has_image(self, image: str) -> bool:
        """Return whether Docker has an image of this name for linux/amd64."""
        try:
            details = self._api.inspect_image(image)
        except NotFound:
            return False
        return bool(f"{details['Os']}/{details['Architecture']}" == PLATFORM)

    def pull(self, images: Iterable[str]) -> None:
        """Pull the images that Docker does not have."""
        for image in images:
            if not self.has_image(image):
                reference = Reference.parse(image)
                self._show(Notice(f"pulling {reference}"))
                self._transfer("pull", reference, reference.identifier, platform=PLATFORM)

    def push(self, reference: Reference) -> tuple[str | None, set[str]]:
        """Push an image by its tag; return its digest and the sent layers, see `is_sent`."""
        self._show(Notice(f"pushing {reference}"))
        return self._transfer("push", reference, reference.tag)

    def build(
        self,
        dockerfile: str,
        folder: Path,
        files: Iterable[ContextFile],
        tag: Reference,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Build an image of files of a folder; it gets the tag only if the build succeeds.

        The secrets, texts by their ids, need BuildKit.
        """
        with tempfile.TemporaryDirectory(prefix="distlaunch-") as name:
            scratch = Path(name)
            (scratch / "Dockerfile").write_text(dockerfile, encoding="utf-8")
            # The files are already selected: no other ignore file applies.
            (scratch / "Dockerfile.dockerignore").touch()
            _copy_files(folder, files, scratch / "context")
            command = [self._command, "build", f"--platform={PLATFORM}", f"--tag={tag}"]
            command += [f"--file={scratch}/Dockerfile"]
            for key, secret in secrets.items():
                file = scratch / f"secret-{key}"
                file.touch(mode=0o600)
                file.write_text(secret, encoding="utf-8")
                command.append(f"--secret=id={key},src={file}")
            self._run_build([*command, f"{scratch}/context"])
        if not self.has_image(str(tag)):
            raise ImageError(
                f"Docker has built {tag} for another platform than {PLATFORM}; run 'docker pull "
                f"--platform {PLATFORM}' for its base image and try again"
            )

    def _run_build(self, command: list[str]) -> None:
        env = os.environ | {
            "DOCKER_BUILDKIT": "1" if self.has_buildkit else "0",
            "BUILDKIT_PROGRESS": "plain",
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        }
        env.pop("BUILDX_BUILDER", None)  # its images may not be in Docker
        output = BuildOutput(self._show, self._progress)
        exit_code = run_command(command, output.show, env=env)
        self._progress("")
        if exit_code:
            raise output.error()

    def _transfer(
        self, action: Transfer, reference: Reference, tag: str | None, **options: Any
    ) -> tuple[str | None, set[str]]:
        login = find_credentials(reference.host)
        progress = TransferProgress(action, self._progress)
        digest = None
        try:
            transfer = getattr(self._api, action)
            options = {"auth_config": _auth_config(login), **options}
            events = transfer(reference.name, tag, stream=True, decode=True, **options)
            with contextlib.closing(events):
                for event in events:
                    if "error" in event:
                        raise transfer_error(action, str(event["error"]), reference, login)
                    progress.show(event)
                    digest = (event.get("aux") or {}).get("Digest") or digest
        except APIError as error:
            message = str(error.explanation or error)
            raise transfer_error(action, message, reference, login) from None
        except (DockerException, RequestException, HTTPError, OSError) as error:
            reason = one_line(str(list(causes_of(error))[-1]))
            raise ImageError(f"lost the connection to Docker ({reason}); try again") from error
        finally:
            self._progress("")
        return digest, progress.sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()


def is_sent(diff_id: str, sent: set[str]) -> bool:
    """Return whether a layer is among those that `Docker.push` has sent."""
    return diff_id.removeprefix("sha256:")[:_LAYER_DIGITS] in sent


def _docker_command() -> tuple[str, bool]:
    """Return the `docker` command and whether it has BuildKit; one that has it is preferred."""
    paths = [Path(folder, "docker") for folder in os.get_exec_path()]
    commands = [str(path) for path in paths if os.access(path, os.X_OK)]
    for command in commands:
        if _has_buildkit(command):
            return command, True
    if not commands:
        raise NoDockerError("no docker command on PATH; install Docker")
    return commands[0], False


def _has_buildkit(command: str) -> bool:
    if _output(command, "buildx", "version").startswith("github.com/docker/buildx"):
        return True
    version = _output(command, "version", "--format", "{{.Client.Version}}")
    major = re.match(r"\d+", version)
    return major is not None and int(major[0]) in _BUILT_IN


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
            raise ImageError(f"{file.path}: cannot be read ({os_reason(error)})") from error
        path.chmod(file.mode)
        os.utime(path, (0, 0))


def _auth_config(login: Credentials | None) -> dict[str, str]:
    if login is None:
        return {}
    if login.identity_token:
        return {"identitytoken": login.identity_token}
    return {"username": login.username, "password": login.password}
