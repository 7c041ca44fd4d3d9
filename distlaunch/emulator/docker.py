"""Runs replicas as Docker containers."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from distlaunch.emulator.job_spec import package_command, storage_path, variables
from distlaunch.emulator.replica_group import ExitStatus, LineWriter
from distlaunch.emulator.supervisor import START_ERROR
from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import docker

    from distlaunch.emulator.job_spec import Replica, Workload
    from distlaunch.emulator.replica_group import CancellationToken, OnExit, WriteLine

# Vertex AI's, in TF_CONFIG and CLUSTER_SPEC: programs may have it as a constant.
PORT = 2222

_PLATFORM = "linux/amd64"
_BUCKETS = "/gcs"  # as Vertex AI mounts them
_METRICS = "/var/hypertune"
_ROOT = ("", "0", "root")
# Docker assigns addresses only in a network whose subnet was named: a draft chooses a free one.
_NETWORK_ATTEMPTS = 5

_LABEL = "distlaunch-emulator"


class DockerBackend:
    """Runs replicas as containers, those of one job in a network of its own.

    A container finds the emulator's buckets under ``/gcs``, and its job folder there too. There
    are no limits on memory and processors, and no GPUs.
    """

    def __init__(self, storage: Path, endpoint: str) -> None:
        self._storage = storage
        self._client = _connect()
        self._label = f"{socket.gethostname()}:{urlsplit(endpoint).port}"
        self._remove(lambda label: label == self._label or _has_ended(label))

    def prepare(self, workload: Workload, token: CancellationToken) -> DockerEnvironment:
        images = {replica.image for replica in workload.replicas if replica.is_started}
        for image in sorted(images):
            _pull(self._client, image, token)
        labels = {_LABEL: self._label, "distlaunch-job": workload.job_id}
        return DockerEnvironment(workload, self._client, self._storage, labels)

    def close(self) -> None:
        self._remove(lambda label: label == self._label)
        self._client.close()

    def _remove(self, is_removed: Callable[[str], bool]) -> None:
        """Remove containers and networks by their label, the host and port of their emulator."""
        filters: dict[str, str | list[str] | bool] = {"label": _LABEL}
        for container in self._client.containers.list(
            all=True, filters=filters, ignore_removed=True
        ):
            if is_removed(container.labels[_LABEL]):
                with _ignore_missing():
                    container.remove(force=True, v=True)
        for network in self._client.networks.list(filters=filters):
            if is_removed(network.attrs["Labels"][_LABEL]):
                with _ignore_missing():
                    network.remove()


def _has_ended(label: str) -> bool:
    """Return whether an emulator of this machine does not listen any more."""
    host, _, port = label.rpartition(":")
    with socket.socket() as probe:
        return host == socket.gethostname() and probe.connect_ex(("127.0.0.1", int(port))) != 0


class DockerEnvironment:
    """The network, mounts and containers of one job."""

    def __init__(
        self,
        workload: Workload,
        client: docker.DockerClient,
        storage: Path,
        labels: dict[str, str],
    ) -> None:
        self._workload = workload
        self._client = client
        self._storage = storage
        self._labels = labels
        self._job_dir = workload.job_dir and _container_path(storage, workload.job_dir)
        mark = secrets.token_hex(5)
        self._hosts = {
            replica.task: f"cmle-training-{replica.name.replace('-', f'-{mark}-')}"
            for replica in workload.replicas
        }
        self._network = _create_network(client, f"distlaunch-{mark}", self._labels)
        # Like on Vertex AI, names resolve before their replicas have started.
        self._ips = dict(zip(self._hosts.values(), _addresses(self._network), strict=False))
        self._scratch = Path(tempfile.mkdtemp(prefix="distlaunch-emulator-"))
        self._containers: dict[str, ReplicaContainer] = {}

    def start(self, replica: Replica, write: WriteLine, on_exit: OnExit) -> ReplicaContainer:
        name = self._hosts[replica.task]
        if name in self._containers:
            self._containers[name].remove()
        container = self._containers[name] = ReplicaContainer(name, write, on_exit)
        container.start(self._client, self._settings(replica))
        return container

    def metrics(self) -> str:
        file = self._scratch / "output.metrics"
        return file.read_text("utf-8", "replace") if file.exists() else ""

    def close(self) -> None:
        for container in self._containers.values():
            container.remove()
        self._change_owner_of_files()
        with _ignore_missing():
            self._network.remove()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _settings(self, replica: Replica) -> dict[str, Any]:
        """Return the arguments of docker-py that create a replica's container."""
        from docker.types import EndpointConfig

        command = replica.command
        if replica.module is not None:
            files = [_container_path(self._storage, package) for package in replica.packages]
            command = package_command(replica.module, files, "/tmp/packages")  # noqa: S108
        host, network = self._hosts[replica.task], str(self._network.name)
        address = EndpointConfig(self._client.api.api_version, ipv4_address=self._ips[host])
        volumes = {str(self._storage): {"bind": _BUCKETS, "mode": "rw"}}
        if replica is self._workload.replicas[0]:
            volumes[str(self._scratch)] = {"bind": _METRICS, "mode": "rw"}
        addresses = {task: f"{host}:{PORT}" for task, host in self._hosts.items()}
        return {
            "image": replica.image,
            "hostname": host,
            # None: the image's own; an image's CMD is not used where there is an entrypoint.
            "entrypoint": list(command) or None,
            "command": list(replica.args) or None,
            "environment": variables(
                self._workload,
                replica,
                addresses,
                job_dir=self._job_dir,
                metric_file=f"{_METRICS}/output.metrics",
            ),
            "user": self._user(replica.image),
            "network": network,
            "networking_config": {network: address},
            "extra_hosts": self._ips,
            "volumes": volumes,
            "labels": self._labels,
        }

    def _user(self, image: str) -> str | None:
        """Return the user of a container: root stays root, another could not write to buckets."""
        if sys.platform == "win32":  # whose folders any user of a container can write to
            return None
        user = self._client.images.get(image).attrs["Config"].get("User") or ""
        return None if user.partition(":")[0] in _ROOT else f"{os.getuid()}:{os.getgid()}"

    def _change_owner_of_files(self) -> None:
        """Make the user the owner of what containers wrote as root."""
        if sys.platform == "win32" or os.getuid() == 0:
            return
        with contextlib.suppress(Exception):  # an image without chown: the files can still be read
            self._client.containers.run(
                self._workload.replicas[0].image,
                entrypoint=["chown", "-R", f"{os.getuid()}:{os.getgid()}", _BUCKETS],
                command=[],
                user="0",
                network_mode="none",
                volumes={str(self._storage): {"bind": _BUCKETS, "mode": "rw"}},
                labels=self._labels,
                remove=True,
            )


class ReplicaContainer:
    """The container of one replica."""

    def __init__(self, name: str, write: WriteLine, on_exit: OnExit) -> None:
        self._name = name
        self._write = write
        self._on_exit = on_exit
        self._container: Any = None

    def start(self, client: docker.DockerClient, settings: Mapping[str, Any]) -> None:
        """Create and start it; if that fails, the reason is its only line."""
        import docker.errors

        frames = None
        try:
            self._container = client.containers.create(name=self._name, **settings)
            frames = client.api.attach(self._container.id, stream=True, demux=True)
            self._container.start()
        except docker.errors.APIError as problem:
            _close(frames)
            self._write("ERROR", str(problem.explanation or problem))
            self._on_exit(ExitStatus(START_ERROR))
            return
        threading.Thread(target=self._follow, args=(frames,), daemon=True).start()

    def stop(self, *, kill: bool) -> None:
        if self._container:
            with _ignore_missing():
                self._container.kill("SIGKILL" if kill else "SIGTERM")

    def remove(self) -> None:
        """Kill it if it runs, and remove it."""
        if self._container:
            with _ignore_missing():
                self._container.remove(force=True, v=True)

    def _follow(self, frames: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        streams = (LineWriter("INFO", self._write), LineWriter("ERROR", self._write))
        with contextlib.suppress(OSError):  # Docker was stopped
            for frame in frames:
                for data, lines in zip(frame, streams, strict=True):
                    lines.feed(data or b"")
        _close(frames)
        for lines in streams:
            lines.close()
        self._on_exit(self._exit_status())

    def _exit_status(self) -> ExitStatus:
        with _ignore_missing():
            code = self._container.wait(timeout=None)["StatusCode"]
            self._container.reload()
            return ExitStatus(code, out_of_memory=self._container.attrs["State"]["OOMKilled"])
        return ExitStatus(128 + 9)  # by SIGKILL: it was removed


def _connect() -> docker.DockerClient:
    from distlaunch.docker_client import NoDockerError, connect_docker

    try:
        return connect_docker()
    except NoDockerError as problem:
        raise DistlaunchError(
            f"{problem}, or run jobs as processes with --run-with process"
        ) from None


def _close(frames: Any) -> None:
    """Close a connection to Docker; the stream's own `close` fails where Docker has closed it."""
    if frames is not None:
        frames._response.close()  # noqa: SLF001


def _create_network(client: docker.DockerClient, name: str, labels: dict[str, str]) -> Any:
    """Create a network with a subnet of Docker's choice, in which addresses can be assigned."""
    import docker.errors
    from docker.types import IPAMConfig, IPAMPool

    reason: object = ""
    for _ in range(_NETWORK_ATTEMPTS):
        try:
            draft = client.networks.create(name, labels=labels)
            draft.reload()
            pool = IPAMPool(subnet=draft.attrs["IPAM"]["Config"][0]["Subnet"])
            draft.remove()
            ipam = IPAMConfig(pool_configs=[pool])
            return client.networks.create(name, labels=labels, ipam=ipam)
        except docker.errors.APIError as problem:  # noqa: PERF203 - another job took the subnet
            reason = problem.explanation or problem
    raise DistlaunchError(f"No network for the job: {reason}")


def _addresses(network: Any) -> Iterator[str]:
    """Return the addresses of a network except for the gateway's, the first one."""
    network.reload()
    subnet = ipaddress.ip_network(network.attrs["IPAM"]["Config"][0]["Subnet"])
    return map(str, itertools.islice(subnet.hosts(), 1, None))


def _pull(client: docker.DockerClient, image: str, token: CancellationToken) -> None:
    """Pull an image from its registry each time, as Vertex AI does."""
    import docker.errors

    reason: object = ""
    try:
        events = client.api.pull(image, stream=True, decode=True, platform=_PLATFORM)
        for event in events:
            reason = event.get("error", "")
            if reason or token.is_set():
                events.close()
                break
    except (docker.errors.DockerException, OSError) as problem:
        reason = getattr(problem, "explanation", None) or problem
    if reason or token.is_set():
        raise DistlaunchError(f'Failed to pull image "{image}": {" ".join(str(reason).split())}')


def _container_path(storage: Path, uri: str) -> str:
    return f"{_BUCKETS}/{storage_path(storage, uri).relative_to(storage).as_posix()}"


def _ignore_missing() -> contextlib.suppress:
    """Ignore that a container has ended or was removed."""
    import docker.errors
    import requests

    return contextlib.suppress(docker.errors.APIError, requests.RequestException)
