"""The Docker engine that the `docker` command would use, and builds by that command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from distlaunch.docker_client import NoDockerError, connect_docker
from distlaunch.errors import ImageError, causes_of
from distlaunch.events import Event, Notice
from distlaunch.image.layers import scratch_folder
from distlaunch.image.reference import PLATFORM, Reference, is_google
from distlaunch.image.registry import errors
from distlaunch.image.registry.credentials import Credentials, find_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from distlaunch.image.context import ContextFile
    from distlaunch.image.dockerfile_parser import Dockerfile


_SILENCE = 600  # seconds without an event of a push or a pull
LAST_LINES = 40  # of a build that failed; BuildKit repeats those of the step
_LONGEST = 600  # characters of a message
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# With attestations, buildx makes an index in place of an image.
BUILD_ENV = {"BUILDKIT_PROGRESS": "plain", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
_STEP = re.compile(r"(?:#\d+ \[(?:[^\]]+ )?|Step )(\d+/\d+)(?:\]| :) (.*)")
_FAILED_STEP = re.compile(r"#\d+ (?=ERROR: )")  # of BuildKit, whose output has a time on each line
_OUTPUT = re.compile(r"#\d+ \d+\.\d+ (.*)")
_DENIED = ("denied", "unauthorized", "authentication required", "no basic auth", "forbidden")
_RATE = ("toomanyrequests", "rate limit", "quota exceeded")
# What fixes a failed push or pull, by parts of Docker's message; the first one counts.
_REMEDIES = {
    ("no space left on device",): "free space with 'docker system prune'",
    ("not found", "manifest unknown"): "check its name",
    (
        "http response to https client",
        "x509",
        "certificate",
    ): "add {host} to insecure-registries in "
    "Docker's daemon.json, or its certificate to /etc/docker/certs.d/{host}/ca.crt",
    _RATE: "run 'docker login {host}' for a higher limit, or try again later",
    ("",): "check Docker's network and proxy settings for {host}, then try again",
}


class Docker:
    """Docker as the builder of linux/amd64 images; a context manager.

    `show` is called with a notice for each step, `progress` with a line that replaces the one
    before. Base images and pushes use the credentials of their own registry only.
    """

    def __init__(self, show: Callable[[Event], None], progress: Callable[[str], None]) -> None:
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
                self._transfer("pull", reference, platform=PLATFORM)

    def push(self, reference: Reference) -> None:
        """Push an image by its tag."""
        self._show(Notice(f"pushing {reference}"))
        self._transfer("push", reference)

    def build(
        self,
        dockerfile: Dockerfile,
        folder: Path,
        files: Iterable[ContextFile],
        tag: Reference,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Build an image of files of a folder; it gets the tag only if the build succeeds.

        The secrets, texts by their ids, need BuildKit.
        """
        self.pull(dockerfile.bases)
        if (machine := self._api.version().get("Arch", "amd64")) != "amd64":  # such as on a Mac
            text = f"Docker emulates {PLATFORM} on {machine}, which takes longer"
            self._show(Notice(f"{text}; image.builder: cloud-build does not"))
        with scratch_folder() as scratch:
            _write_source(dockerfile, folder, files, scratch)
            # The command, because docker-py has no BuildKit.
            command = [self._command, *build_words(dockerfile, tag, f"{scratch}/")]
            for key, secret in secrets.items():
                file = scratch / f"secret-{key}"
                file.touch(mode=0o600)
                file.write_bytes(secret.encode())
                command.insert(2, f"--secret=id={key},src={file}")
            self._run_build(command)

    def _run_build(self, command: list[str]) -> None:
        env = os.environ | BUILD_ENV | {"DOCKER_BUILDKIT": "1" if self.has_buildkit else "0"}
        env.pop("BUILDX_BUILDER", None)  # its images may not be in Docker
        steps: set[str] = set()  # BuildKit prints a step again where its output continues
        tail: deque[str] = deque(["no output"], maxlen=LAST_LINES)

        def show(line: str) -> None:
            line = _ESCAPES.sub("", line)
            match = _STEP.fullmatch(line)
            if match and match[0] not in steps:
                steps.add(match[0])
                self._show(Notice(_one_line(f"step {match[1]}: {match[2]}")))
            elif line:
                self._progress(line)
            if line:
                tail.append(line)

        exit_code = run_command(command, show, env=env)
        self._progress("")
        if exit_code:
            self._show(Notice("\n".join(["last lines of docker build:", *tail]), "error"))
            reason = _one_line(failure_reason([*tail]))
            raise ImageError(f"docker build failed ({reason}); its last lines are above")

    def _transfer(
        self, action: Literal["push", "pull"], reference: Reference, **options: Any
    ) -> None:
        login = find_credentials(reference.host)
        auth = {"username": login.username, "password": login.password} if login else {}
        options |= {"auth_config": auth, "stream": True, "decode": True}
        transferred: dict[str, tuple[int, int]] = {}  # of a layer: bytes, and bytes in all
        problem = ""
        try:
            # Events are read to the end, also after an error: otherwise the connection stays open.
            for event in getattr(self._api, action)(
                reference.name, reference.identifier, **options
            ):
                # A denied push or a missing image is an event: docker-py raises nothing.
                problem = str(event.get("error", problem))
                detail = event.get("progressDetail") or {}
                if "total" in detail and event["status"] in ("Downloading", "Pushing"):
                    transferred[event["id"]] = (detail["current"], detail["total"])
                    done, total = map(sum, zip(*transferred.values(), strict=True))
                    self._progress(f"{action}ing: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")
        except APIError as error:
            problem = str(error.explanation or error)
        except (DockerException, RequestException, HTTPError, OSError) as error:
            reason = _one_line(str(list(causes_of(error))[-1]))
            raise ImageError(f"lost the connection to Docker ({reason}); try again") from error
        finally:
            self._progress("")
        if problem:
            raise _transfer_error(action, problem, reference, login)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()


def run_command(command: Sequence[str], show: Callable[[str], None], **options: Any) -> int:
    """Run a command, show each line of its output, and return its exit code.

    The options are those of `subprocess.Popen`. The command ends with an interruption.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
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


def failure_reason(lines: Sequence[str]) -> str:
    """Return pip's last error in the output of pip or of a build's failed step, else its end."""
    failed = [match[0] for line in lines if (match := _FAILED_STEP.match(line))]
    steps = [index for index, line in enumerate(lines) if line.startswith("Step ")]
    output = list(lines[max(steps, default=0) :])
    end = output[-2:] if output and output[-1].startswith("The command ") else output[-1:]
    if failed:
        step = [line for line in lines if line.startswith(failed[0])]
        output = [match[1] for line in step if (match := _OUTPUT.fullmatch(line))]
        end = [*output[-1:], lines[-1]]
    errors = [line.removeprefix("ERROR: ") for line in output if line.startswith("ERROR: ")]
    return errors[-1] if errors else "; ".join(end) or "no output"


def _transfer_error(
    action: str, message: str, reference: Reference, login: Credentials | None
) -> ImageError:
    """Return the error and the remedy for what Docker reports of a registry."""
    lower, quoted = message.lower(), f" ({_one_line(message)})"
    if is_google(reference.host) and any(word in lower for word in _RATE):
        return ImageError(problems=[errors.quota_exceeded(reference, quoted)])
    if any(word in lower for word in _DENIED) or errors.has_remedy(reference, message):
        is_push, reason = action == "push", _one_line(message)
        return ImageError(problems=[errors.denied(reference, login, reason, pushing=is_push)])
    is_unknown = "name unknown" in lower or ("repository" in lower and "not found" in lower)
    if action == "push" and is_unknown:
        return ImageError(problems=[errors.no_repository(reference, quoted)])
    remedy = next(text for parts, text in _REMEDIES.items() if any(part in lower for part in parts))
    return ImageError(
        f"Docker cannot {action} {reference}{quoted}; {remedy.format(host=reference.host)}"
    )


def _one_line(text: str) -> str:
    """Return a text in one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _docker_command() -> tuple[str, bool]:
    """Return the `docker` command and whether it has BuildKit; one that has it is preferred."""
    found = (shutil.which("docker", path=folder) for folder in os.get_exec_path())
    commands = [command for command in found if command and Path(command).is_absolute()]
    for command in commands:
        if _has_buildkit(command):
            return command, True
    if not commands:
        raise NoDockerError("no docker command on PATH; install Docker")
    return commands[0], False


def _has_buildkit(command: str) -> bool:
    """Return whether `docker build` has an option of BuildKit, by itself or by a plugin."""
    done = subprocess.run(
        [command, "build", "--help"],
        env=os.environ | {"DOCKER_BUILDKIT": "1"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return "--secret" in done.stdout


def build_words(dockerfile: Dockerfile, tag: Reference, source: str = "") -> list[str]:
    """Return docker's arguments to build a folder with `Dockerfile` and `context`."""
    arguments = dockerfile.build_args.items()
    return [
        *("build", f"--platform={PLATFORM}", f"--tag={tag}", f"--file={source}Dockerfile"),
        *(f"--build-arg={name}={value}" for name, value in arguments),
        f"{source}context",
    ]


def _write_source(
    dockerfile: Dockerfile, folder: Path, files: Iterable[ContextFile], source: Path
) -> None:
    """Write a Dockerfile and its context into an empty folder."""
    (source / "Dockerfile").write_bytes(dockerfile.text.encode())
    # The files are already selected: no other ignore file applies.
    (source / "Dockerfile.dockerignore").touch()
    _copy_files(folder, files, source / "context")


def _copy_files(folder: Path, files: Iterable[ContextFile], target: Path) -> None:
    """Copy a build's files and folders, without the times at which they were changed."""
    target.mkdir()
    modes = {target: 0o755}
    for file in files:
        path = target / file.path
        for above in path.parents[: file.path.count("/")]:
            modes.setdefault(above, 0o755)
        (path if file.is_folder else path.parent).mkdir(parents=True, exist_ok=True)
        if file.target is not None:
            path.symlink_to(file.target)
            continue
        if file.content is not None:
            path.write_bytes(file.content)
        elif not file.is_folder:
            shutil.copyfile(folder / file.path, path)
        modes[path] = file.mode
    for path, mode in modes.items():
        path.chmod(mode)
        os.utime(path, (0, 0))
