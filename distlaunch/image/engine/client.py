"""A container engine, spoken to by docker-py.

It is asked by the smallest means: base images are pulled with the credentials of their own registry
alone, so that a broken helper for another one disturbs nothing, and a build gets what it copies and
no more. Errors come in its streams, not as exceptions; each event is looked at for them.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections import deque
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils.json_stream import json_stream
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from distlaunch.errors import ImageError
from distlaunch.image.engine import problems
from distlaunch.image.engine.connection import connected, proxies
from distlaunch.image.engine.progress import LAST_LINES, Layers, Steps, plain
from distlaunch.image.registry import refusals
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.credentials import Credentials
    from distlaunch.ui.events import Event

PLATFORM = "linux/amd64"
ARCHITECTURE = "amd64"

_FIRST_ANSWER = 20  # seconds
_SILENCE = 600  # seconds without an event of a push or a pull
_DIGEST = re.compile(r"digest: (sha256:[0-9a-f]{64})")
_FRAME = struct.Struct(">B3xL")
_LAYER_DIGITS = 12  # of a diff id, by which an engine tells of a layer
_LIFETIME = "14400"  # seconds that a container for pip is there at most, should nobody end it


@dataclass(frozen=True, slots=True)
class Pushed:
    """An image that was pushed.

    Parameters
    ----------
    digest
        ``sha256:…``, None where the engine does not tell it.
    layers
        How the engine calls the layers that it has sent.
    """

    digest: str | None
    layers: frozenset[str]

    def has_sent(self, diff_id: str) -> bool:
        """Whether a layer was sent, and not only found there."""
        return diff_id.removeprefix("sha256:")[:_LAYER_DIGITS] in self.layers


class Engine:
    """A container engine that answers; a context manager.

    Parameters
    ----------
    see
        Who is told what happens.
    progress
        Who is shown how far it is: a line that the next one replaces.
    patience
        Seconds that it is waited for at first.
    silence
        Seconds that a push or a pull may tell nothing.

    Raises
    ------
    NoEngineError
        If none answers.
    """

    def __init__(
        self,
        see: Callable[[Event], None],
        progress: Callable[[str], None] = lambda _: None,
        *,
        patience: float = _FIRST_ANSWER,
        silence: float = _SILENCE,
    ) -> None:
        self._see = see
        self._progress = progress
        self._client = connected(patience)
        self._client.timeout = silence

    def has(self, image: str) -> bool:
        """Whether it has an image for linux/amd64 of that name."""
        try:
            return bool(self._inspected(image)["Architecture"] == ARCHITECTURE)
        except ImageNotFound:
            return False

    def pull(self, reference: Reference, who: Credentials | None) -> None:
        """Get an image that it does not have.

        Raises
        ------
        ImageError
            If it cannot.
        """
        if self.has(str(reference)):
            return
        self._see(Notice(f"pulling {reference}"))
        layers = Layers("pulling", self._progress)
        with _told():
            try:
                events = self._client.pull(
                    reference.name,
                    reference.identifier,
                    stream=True,
                    decode=True,
                    platform=PLATFORM,
                    auth_config=_as_docker_says(who) or {},
                )
            except APIError as problem:
                raise _refused(_said(problem), reference, who, pushing=False) from None
            self._watch(events, layers, reference, who, pushing=False)

    def build(
        self,
        context: IO[bytes],
        dockerfile: str,
        *,
        tag: str | None = None,
    ) -> str:
        """Build an image for linux/amd64 and return its id.

        Base images that it does not have it gets as nobody in particular, see `pull`.

        Parameters
        ----------
        context
            A tar with all that is copied, and the Dockerfile.
        dockerfile
            The Dockerfile's path in the tar.
        tag
            What the image is called in the engine, once it is there.

        Raises
        ------
        ImageError
            If it cannot be built.
        """
        asked = {
            "t": tag or "",
            "dockerfile": dockerfile,
            "platform": PLATFORM,
            "rm": "true",
            "forcerm": "true",
            "buildargs": json.dumps(proxies()),
        }
        build = Steps(self._see, self._progress)
        with _told():
            # Not docker-py's own: that asks every credential helper, and fails if one is broken.
            headers = {"Content-Type": "application/x-tar"}
            response = self._post("build", params=asked, data=context, headers=headers)
            # Closing it kills the step that runs, on Ctrl-C for example.
            with contextlib.closing(response):
                if not response.ok:
                    raise problems.failed_build(_body(response), "")
                events: Iterator[Any] = json_stream(response.iter_content(None))
                for event in events:
                    build.see(event)
        if build.image is None:
            raise ImageError("the container engine does not say what it has built; update it")
        self.check(build.image)
        return build.image

    def check(self, image: str) -> None:
        """See that an image is for the machines that it will run on.

        Raises
        ------
        ImageError
            If it is for others: the classic builder takes the base that it has, whatever it is for.
        """
        found = self._inspected(image)
        system = f"{found['Os']}/{found['Architecture']}"
        if system != PLATFORM:
            raise ImageError(
                f"the image is for {system} and not for {PLATFORM}; "
                f"run 'docker pull --platform {PLATFORM}' for the image it begins with"
            )

    def push(self, reference: Reference, who: Credentials | None) -> Pushed:
        """Push an image by its tag.

        Raises
        ------
        ImageError
            If it cannot be pushed.
        """
        self._see(Notice(f"pushing {reference}"))
        layers = Layers("pushing", self._progress)
        with _told():
            events = self._client.push(
                reference.name,
                reference.tag,
                stream=True,
                decode=True,
                auth_config=_as_docker_says(who) or {},
            )
            digest = self._watch(events, layers, reference, who, pushing=True)
        return Pushed(digest, layers.sent)

    def run(self, image: str, command: tuple[str, ...], variables: Mapping[str, str]) -> str:
        """Run pip on top of an image, with variables that are no part of what it makes.

        They are given to the process alone (``docker exec``), so that neither the new image, nor
        its config and history, nor any cache has them.

        Parameters
        ----------
        image
            What to begin with.
        command
            What to run.
        variables
            What its process finds in its environment.

        Returns
        -------
        The id of the new image.

        Raises
        ------
        ImageError
            If the command fails.
        """
        with _told():
            container = self._client.create_container(
                image,
                entrypoint=["sleep", _LIFETIME],
                command=[],
                host_config=self._client.create_host_config(auto_remove=True),
                platform=PLATFORM,
            )["Id"]
            try:
                self._client.start(container)
                self._follow(container, command, variables)
                config = self._inspected(image)["Config"]
                made = str(self._client.commit(container, conf=config)["Id"])
            finally:
                with contextlib.suppress(APIError):
                    self._client.remove_container(container, force=True)
        self.check(made)
        return made

    def tag(self, image: str, reference: Reference) -> None:
        """Give an image a name in the engine."""
        with _told():
            self._client.tag(image, reference.name, reference.tag, force=True)

    def close(self) -> None:
        """Let go of the engine."""
        self._client.close()

    def _watch(
        self,
        events: Generator[dict[str, Any]],
        layers: Layers,
        reference: Reference,
        who: Credentials | None,
        *,
        pushing: bool,
    ) -> str | None:
        """Follow a push or a pull to its end, and return the digest that it tells, if any."""
        digest = None
        with contextlib.closing(events):
            for event in events:
                if "error" in event:
                    self._progress("")
                    raise _refused(str(event["error"]), reference, who, pushing=pushing)
                layers.see(event)
                digest = _digest(event) or digest
        self._progress("")
        return digest

    def _post(self, path: str, **kwargs: Any) -> Any:
        """Ask for something that may take as long as it likes, and tells of it as a stream."""
        url = f"{self._client.base_url}/v{self._client.api_version}/{path}"
        return self._client.post(url, stream=True, timeout=None, **kwargs)

    def _inspected(self, image: str) -> dict[str, Any]:
        found: dict[str, Any] = self._client.inspect_image(image)
        return found

    def _follow(
        self, container: str, command: tuple[str, ...], variables: Mapping[str, str]
    ) -> None:
        started = self._client.exec_create(container, list(command), environment=dict(variables))
        last: deque[str] = deque(maxlen=LAST_LINES)
        rest = ""
        # Not docker-py's own: that leaves its connection open for ever.
        response = self._post(f"exec/{started['Id']}/start", json={"Detach": False, "Tty": False})
        with contextlib.closing(response):
            for data in _frames(response.raw):
                *lines, rest = (rest + data.decode(errors="replace")).split("\n")
                for line in lines:
                    last.append(plain(line).rstrip())
                    self._progress(line.strip())
        self._progress("")
        code = self._client.exec_inspect(started["Id"])["ExitCode"]
        if code:
            self._see(Notice("\n".join(["pip ended so:", *last]), "error"))
            raise ImageError(
                f"pip failed with exit code {code} while it installed the requirements; "
                "its last lines stand above"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell what goes wrong on the way to the engine as every other problem is told."""
    try:
        yield
    except APIError as problem:
        raise ImageError(f"the container engine refuses: {_said(problem)}") from problem
    except (DockerException, RequestException, HTTPError, OSError) as problem:
        raise problems.lost_engine(problem) from problem


def _frames(stream: Any) -> Iterator[bytes]:
    """Give what a process writes; each piece stands behind the number of its stream and its size.

    Docker's Engine API, "Attach to a container", stream format.
    """
    while len(header := stream.read(_FRAME.size)) == _FRAME.size:
        _, size = _FRAME.unpack(header)
        yield stream.read(size)


def _said(problem: APIError) -> str:
    return problems.shortened(str(problem.explanation or problem))


def _body(response: Any) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return str(response.text)


def _as_docker_says(who: Credentials | None) -> dict[str, str] | None:
    if who is None:
        return None
    if who.identity_token:
        return {"identitytoken": who.identity_token}
    return {"username": who.username, "password": who.password}


def _refused(
    text: str, reference: Reference, who: Credentials | None, *, pushing: bool
) -> ImageError:
    """Return what to tell where a registry refuses the engine; it speaks as it does to us."""
    quoted = f" ({problems.shortened(text)})"
    if problems.is_denied(text):
        return ImageError(refusals.denied(reference, who, quoted, pushing=pushing))
    if pushing and problems.is_unknown(text):
        return ImageError(refusals.no_repository(reference, quoted))
    return problems.not_reached(text, reference, "push" if pushing else "pull")


def _digest(event: Mapping[str, Any]) -> str | None:
    """Return the digest that an event tells: dockerd in a field, podman in its text."""
    digest = (event.get("aux") or {}).get("Digest")
    found = _DIGEST.search(str(event.get("status", "")))
    return str(digest) if digest else (found[1] if found else None)
