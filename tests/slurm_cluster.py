"""A Slurm cluster for tests: a controller and four nodes, all on this machine.

The nodes have addresses of the loopback device as names, so that TensorFlow finds them. It needs
Linux, root and Debian's packages, which are installed with DISTLAUNCH_TEST_ENGINE=1.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "python3")
NODES = 4
START_TIMEOUT = 30  # seconds
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={first}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
KillWait=30
NodeName=127.0.0.[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs=4
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
"""


class NoSlurmError(Exception):
    """There can be no Slurm on this machine, or it did not start."""


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster that runs; `environment` has the variable by which Slurm's commands find it."""

    environment: Mapping[str, str]

    def run(self, *words: str) -> str:
        """Run a command of Slurm and return what it prints."""
        env = os.environ | self.environment
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout

    def jobs(self) -> list[list[str]]:
        """Return number, state and comment of each job that Slurm knows."""
        lines = self.run("squeue", "--noheader", "--states=all", "--format=%i|%T|%k").splitlines()
        return [line.split("|") for line in lines]

    def requeue(self, number: str) -> None:
        """Start a job again, at once: Slurm itself waits two minutes."""
        self.run("scontrol", "requeue", number)
        deadline = time.monotonic() + START_TIMEOUT
        while f"{number}|PENDING" not in self.run("squeue", "--noheader", "--format=%i|%T"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        self.run("scontrol", "update", f"jobid={number}", "starttime=now")


@contextlib.contextmanager
def running(*, install: bool = False) -> Iterator[SlurmCluster]:
    """Run a cluster; NoSlurmError is raised if there can be none."""
    _prepare(install=install)
    with tempfile.TemporaryDirectory(prefix="distlaunch-slurm-") as folder:
        Path(folder).chmod(0o755)  # other users' jobs start there
        yield from _running(Path(folder))


def _running(folder: Path) -> Iterator[SlurmCluster]:
    for name in ("state", "spool", "log"):
        (folder / name).mkdir()
    first = _free_ports(1 + NODES)
    nodes = [f"127.0.0.{number}" for number in range(1, NODES + 1)]
    ports = f"{first + 1}-{first + NODES}"
    text = CONFIGURATION.format(
        host=socket.gethostname(), folder=folder, first=first, ports=ports, nodes=NODES
    )
    (folder / "slurm.conf").write_text(text)
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    commands = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in nodes)]
    cluster = SlurmCluster(environment)
    with contextlib.ExitStack() as until_the_end:
        for command in commands:
            process = subprocess.Popen(
                command,
                env=os.environ | environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            until_the_end.callback(_end, process)
        until_the_end.callback(_cancel_all, cluster)
        deadline = time.monotonic() + START_TIMEOUT
        while not _is_idle(cluster):
            if time.monotonic() > deadline:
                log = (folder / "log" / "slurmctld.log").read_text()
                raise NoSlurmError(f"the nodes do not come up: {log[-500:]}")
            time.sleep(0.2)
        yield cluster


def _prepare(*, install: bool) -> None:
    if sys.platform != "linux" or os.getuid() != 0:
        raise NoSlurmError("needs Linux and root")
    with engine.installing():
        if not all(shutil.which(name) for name in ("slurmctld", "slurmd", "sbatch")):
            problem = engine.install_packages(PACKAGES, is_allowed=install)
            if problem:
                raise NoSlurmError(problem)


def _free_ports(count: int) -> int:
    """Return the first of some free ports in a row, where neither tasks nor connections are."""
    while True:
        first = random.randrange(30_000, 32_700)  # noqa: S311 - not a secret
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for number in range(first, first + count):
                probe = probes.enter_context(socket.socket())
                probe.bind(("0.0.0.0", number))  # noqa: S104 - as Slurm does
            return first


def _is_idle(cluster: SlurmCluster) -> bool:
    try:
        states = cluster.run("sinfo", "--noheader", "--Node", "--format=%T").split()
    except subprocess.CalledProcessError:
        return False
    return states == ["idle"] * NODES


def _cancel_all(cluster: SlurmCluster) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        cluster.run("scancel", "--signal=KILL", "--full", "--user=root")
        cluster.run("scancel", "--user=root")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
