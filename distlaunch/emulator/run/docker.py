"""Replicas as containers of a Docker engine."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.run import leftovers
from distlaunch.emulator.run.running import START_ERROR, CannotRun, Ended
from distlaunch.emulator.run.surroundings import environment, package_command
from distlaunch.errors import DistlaunchError
from distlaunch.local.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import docker

    from distlaunch.emulator.run.running import Replica, Severity, Work, Write

PORT = 2222

_PLATFORM = "linux/amd64"
_VERSION = "1.41"  # of the engine's API: enough for what is asked here
_PACKAGE_PARENT = str(Path(__file__).parents[3])
_METRICS = "/var/hypertune"
_TRIES = 5
_networking = threading.Lock()
_BUCKET = re.compile(r"(?:gs://|/gcs/)([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])")


class DockerMachines:
    """Runs replicas as containers, those of one job in a network of its own.

    A container finds the emulator's buckets under ``/gcs``, and its job folder there too:
    TensorFlow's own ``gs://`` cannot be led to a server that listens on loopback only, which no
    container's network reaches. There are no limits on memory and processors, and no GPUs.

    Should the emulator be killed, a guard removes its containers; should that be killed too, the
    next emulator does.

    Parameters
    ----------
    storage
        The folder of the emulator's buckets, one folder a bucket.

    Raises
    ------
    DistlaunchError
        If there is no engine.
    """

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._client = _connected()
        self._owner = leftovers.Owner()
        leftovers.remove_of_the_dead(self._client)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-c", leftovers.BOOT, _PACKAGE_PARENT, self._owner.name],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def site(self, work: Work, is_wanted: Callable[[], bool]) -> DockerSite:
        started = [replica for replica in work.replicas if replica.is_started]
        for image in dict.fromkeys(replica.image for replica in started):
            _pull(self._client, image, is_wanted)
        return DockerSite(work, self._client, self._storage, self._owner.name)

    def close(self) -> None:
        leftovers.remove_of(self._client, self._owner.name)
        self._guard.communicate(leftovers.DONE)
        self._owner.close()
        self._client.close()


class DockerSite:
    """One job's network, mounts and containers."""

    def __init__(self, work: Work, client: docker.DockerClient, storage: Path, owner: str) -> None:
        self._work = work
        self._client = client
        self._labels = {leftovers.LABEL: owner, "distlaunch-job": work.job_id}
        self._scratch = Path(tempfile.mkdtemp(prefix="distlaunch-emulator-"))
        self._scratch.chmod(0o777)  # the container's user may be anybody
        mark = secrets.token_hex(5)
        self._hosts = {
            replica.task: "cmle-training-{}-{}-{}".format(
                replica.name.partition("-")[0], mark, replica.task.index
            )
            for replica in work.replicas
        }
        self._buckets = _buckets(work, storage)
        self._network = _network(client, f"distlaunch-{mark}", self._labels)
        # As on Vertex AI the names lead to their replicas whether these have started or not.
        self._ips = dict(zip(self._hosts.values(), _addresses(self._network), strict=False))
        self._lock = threading.Lock()
        self._containers: list[Container] = []

    def start(self, replica: Replica, write: Write, ended: Callable[[Ended], None]) -> Container:
        name = self._hosts[replica.task]
        with self._lock:
            for before in [each for each in self._containers if each.name == name]:
                before.remove()
                self._containers.remove(before)
            started = Container(name, write, ended)
            self._containers.append(started)
        started.start(self._client, self._settings(replica))
        return started

    def measurements(self) -> str:
        try:
            return (self._scratch / "output.metrics").read_text("utf-8", "replace")
        except OSError:
            return ""

    def close(self) -> None:
        for each in self._containers:
            each.remove()
        self._hand_over()
        with _suppressed():
            self._network.remove()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _settings(self, replica: Replica) -> dict[str, Any]:
        """Return what the engine is told to make of a replica."""
        from docker.types import EndpointConfig

        command = replica.command
        if replica.module is not None:
            files = [_in_gcs(package) for package in replica.packages]
            command = package_command(replica.module, files, "/tmp/packages")  # noqa: S108
        binds = {str(path): f"/gcs/{path.name}" for path in self._buckets}
        if replica is self._work.replicas[0]:
            binds[str(self._scratch)] = _METRICS
        host, network = self._hosts[replica.task], str(self._network.name)
        return {
            "image": replica.image,
            "hostname": host,
            # What is not given is the image's own; with an entrypoint the image's CMD is not used.
            "entrypoint": list(command) or None,
            "command": list(replica.args) or None,
            "environment": self._environment(replica),
            "network": network,
            "networking_config": {network: EndpointConfig(_VERSION, ipv4_address=self._ips[host])},
            "extra_hosts": self._ips,
            "volumes": {path: {"bind": place, "mode": "rw"} for path, place in binds.items()},
            "labels": self._labels,
        }

    def _environment(self, replica: Replica) -> dict[str, str]:
        addresses = {task: f"{host}:{PORT}" for task, host in self._hosts.items()}
        job_dir = self._work.job_dir
        theirs = environment(
            self._work,
            replica.task,
            addresses,
            job_dir=job_dir and _in_gcs(job_dir),
            metric_file=f"{_METRICS}/output.metrics",
        )
        return {**theirs, **replica.env}

    def _hand_over(self) -> None:
        """Give the user what containers wrote as root."""
        user = os.getuid()
        if user == 0 or not self._buckets:
            return
        places = {str(path): f"/gcs/{path.name}" for path in self._buckets}
        with contextlib.suppress(Exception):  # an image without chown: the files can still be read
            self._client.containers.run(
                self._work.replicas[0].image,
                entrypoint=["chown", "-R", f"{user}:{os.getgid()}", *places.values()],
                command=[],
                user="0",
                network_mode="none",
                volumes={path: {"bind": place, "mode": "rw"} for path, place in places.items()},
                labels=self._labels,
                remove=True,
            )


class Container:
    """One replica's container."""

    def __init__(self, name: str, write: Write, ended: Callable[[Ended], None]) -> None:
        self.name = name
        self._write = write
        self._ended = ended
        self._container: Any = None
        self._timer: threading.Timer | None = None

    def start(self, client: docker.DockerClient, settings: Mapping[str, Any]) -> None:
        """Make and start it; why it cannot be is told as its own last words."""
        import docker.errors

        frames = None
        try:
            self._container = client.containers.create(name=self.name, **settings)
            frames = client.api.attach(self._container.id, stream=True, demux=True)
            self._container.start()
        except docker.errors.APIError as problem:
            _close(frames)
            self._write("ERROR", str(problem.explanation or problem))
            self._ended(Ended(START_ERROR))
            return
        threading.Thread(target=self._read, args=(frames,), daemon=True).start()

    def stop(self, grace: float) -> None:
        if not grace:
            self._signal("SIGKILL")
            return
        self._signal("SIGTERM")
        self._timer = threading.Timer(grace, self._signal, ["SIGKILL"])
        self._timer.daemon = True
        self._timer.start()

    def remove(self) -> None:
        """Kill it if it runs, and remove it."""
        if self._timer:
            self._timer.cancel()
        if self._container:
            with _suppressed():
                self._container.remove(force=True, v=True)

    def _signal(self, name: str) -> None:
        if self._container:
            with _suppressed():
                self._container.kill(name)

    def _read(self, frames: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        severities: tuple[Severity, Severity] = ("INFO", "ERROR")
        streams = [(Lines(), severity) for severity in severities]
        with contextlib.suppress(OSError):  # the engine ended
            for frame in frames:
                for data, (lines, severity) in zip(frame, streams, strict=True):
                    if data:
                        self._tell(lines.feed(data), severity)
        _close(frames)
        for lines, severity in streams:
            self._tell(lines.close(), severity)
        self._ended(self._how_it_ended())

    def _tell(self, lines: bytes, severity: Severity) -> None:
        for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
            self._write(severity, line)

    def _how_it_ended(self) -> Ended:
        with _suppressed():
            code = self._container.wait(timeout=None)["StatusCode"]
            self._container.reload()
            return Ended(code, out_of_memory=self._container.attrs["State"]["OOMKilled"])
        return Ended(128 + signal.SIGKILL)  # somebody has removed it


def _connected() -> docker.DockerClient:
    import docker
    import docker.errors

    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, OSError) as problem:
        where = os.environ.get("DOCKER_HOST") or "Docker's usual place"
        raise DistlaunchError(
            f"no container engine can be used at {where} ({_reason(problem)}); start Docker, "
            "set DOCKER_HOST, or run jobs as processes with --run-with process"
        ) from None
    return client


def _reason(problem: BaseException) -> str:
    """Return what the system said, which stands at the end of a chain of others' exceptions."""
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(problem).split())


def _close(stream: Any) -> None:
    """Let go of the engine's connection: the stream's own `close` fails where the engine has."""
    if stream is not None:
        stream._response.close()  # noqa: SLF001


def _network(client: docker.DockerClient, name: str, labels: dict[str, str]) -> Any:
    """Make a network with addresses that we may give out."""
    import docker.errors

    for _ in range(_TRIES):  # somebody else may be quicker
        with contextlib.suppress(docker.errors.APIError):
            return _network_of_free_addresses(client, name, labels)
    try:
        return _network_of_free_addresses(client, name, labels)
    except docker.errors.APIError as problem:
        raise CannotRun(f"No network for the job: {problem.explanation or problem}") from None


def _network_of_free_addresses(
    client: docker.DockerClient, name: str, labels: dict[str, str]
) -> Any:
    """Have the engine choose addresses, for only it knows which are free, and ask for these."""
    from docker.types import IPAMConfig, IPAMPool

    with _networking:
        draft = client.networks.create(name, labels=labels)
        draft.reload()
        chosen = IPAMPool(subnet=draft.attrs["IPAM"]["Config"][0]["Subnet"])
        draft.remove()
        made = client.networks.create(name, labels=labels, ipam=IPAMConfig(pool_configs=[chosen]))
    made.reload()
    return made


def _addresses(network: Any) -> Iterator[str]:
    """Give the addresses of a network that replicas can have."""
    config = network.attrs["IPAM"]["Config"][0]
    taken = config.get("Gateway", "").partition("/")[0]
    hosts = map(str, ipaddress.ip_network(config["Subnet"]).hosts())
    return (host for host in itertools.islice(hosts, 1, None) if host != taken)


def _pull(client: docker.DockerClient, image: str, is_wanted: Callable[[], bool]) -> None:
    """Pull an image as the machines of Vertex AI do: always, and from its registry."""
    import docker.errors

    try:
        events = client.api.pull(image, stream=True, decode=True, platform=_PLATFORM)
        for event in events:
            if "error" in event:
                raise CannotRun(_not_pulled(image, event["error"]))
            if not is_wanted():
                events.close()
                raise CannotRun("not wanted any more")
    except (docker.errors.DockerException, OSError) as problem:
        raise CannotRun(
            _not_pulled(image, getattr(problem, "explanation", None) or problem)
        ) from None


def _not_pulled(image: str, why: object) -> str:
    return f'Failed to pull image "{image}": {" ".join(str(why).split())}'


def _buckets(work: Work, storage: Path) -> list[Path]:
    """Return the folders of all buckets; of those that the job names too, which get one."""
    named = {
        bucket
        for replica in work.replicas
        for text in (*replica.command, *replica.args, *replica.env.values(), *replica.packages)
        for bucket in _BUCKET.findall(text)
    }
    named |= set(_BUCKET.findall(work.job_dir or ""))
    for bucket in named:
        (storage / bucket).mkdir(parents=True, exist_ok=True)
    found = [path.absolute() for path in sorted(storage.iterdir()) if _is_bucket(path)]
    for path in found:
        with contextlib.suppress(PermissionError):
            path.chmod(0o777)  # as the mount of Vertex AI, which anybody may write to
    return found


def _is_bucket(path: Path) -> bool:
    return path.is_dir() and _BUCKET.fullmatch(f"/gcs/{path.name}") is not None


def _in_gcs(uri: str) -> str:
    return f"/gcs/{uri.removeprefix('gs://')}"


def _suppressed() -> contextlib.suppress:
    """Ignore that a container has ended or is gone."""
    import docker.errors
    import requests

    return contextlib.suppress(docker.errors.APIError, requests.RequestException)
