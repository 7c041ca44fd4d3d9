"""Which tasks run a server, and how servers end without a launcher."""

import json
import os
import signal
import socket
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import ClusterError
from distlaunch_trainer.options import Settings, parser
from distlaunch_trainer.parameter_server.connection import (
    cluster_spec,
    connect_to_servers,
    coordinates,
)
from distlaunch_trainer.parameter_server.servers import is_server

PEERS = {"peers": ("chief", "worker:0"), "addresses": ("127.0.0.1:1", "127.0.0.1:2")}
SERVERS = {"parameter_servers": ("127.0.0.1:3",)}


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("worker:0", {}, True),
        ("ps:0", {}, True),
        ("chief", {}, False),
        ("evaluator:0", {}, False),
        ("worker:0", {"strategy": "multi-worker"}, False),
        ("worker:0", {"strategy": "parameter-server"}, True),
    ],
)
def test_workers_and_parameter_servers_run_servers(name, options, expected):
    settings = {"strategy": None, **options}
    assert is_server(Role(name, **PEERS, **SERVERS), Namespace(**settings)) == expected
    assert not is_server(Role(name, **PEERS), Namespace(**settings))
    assert not is_server(Role(name, **PEERS, **SERVERS), Namespace())  # of a script


def test_the_chief_coordinates_if_there_are_parameter_servers():
    assert coordinates(Role("chief", **PEERS, **SERVERS), Settings())
    assert not coordinates(Role("chief", **PEERS), Settings())
    assert not coordinates(Role("evaluator:0", **PEERS, **SERVERS), Settings())


@pytest.mark.parametrize(("peers", "missing"), [(("chief",), "worker"), (("worker:0",), "chief")])
def test_a_cluster_without_chief_or_worker_is_refused(peers, missing):
    role = Role(peers[0], peers, ("127.0.0.1:1",), **SERVERS)
    with pytest.raises(ClusterError, match=f"no {missing}"):
        cluster_spec(role)


@pytest.mark.parametrize("option", ["--sync-batch-norm", "--shard-policy=off"])
def test_options_of_workers_in_step_are_refused(option):
    settings = Settings.of(parser().parse_args([option]))
    name = option.partition("=")[0]
    with pytest.raises(ClusterError, match=f"leave {name} out"):
        connect_to_servers(Role("chief", **PEERS, **SERVERS), settings)


PROGRAM = """
import sys
from distlaunch_trainer import launch, options
sys.exit(launch(lambda _: print("trains"), options.parser().parse_args()))
"""


@pytest.fixture
def server(tmp_path):
    """Start a ps whose chief is this process, listening; wait until it serves."""
    with socket.create_server(("127.0.0.1", 0)) as chief, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        addresses = {"chief": [f"127.0.0.1:{chief.getsockname()[1]}"], "ps": [own]}
        config = {
            "cluster": {**addresses, "worker": ["127.0.0.1:1"]},
            "task": {"type": "ps", "index": 0},
        }
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, f"--job-dir={tmp_path}"],
            env={**os.environ, "TF_CONFIG": json.dumps(config)},
            stderr=subprocess.PIPE,
            text=True,
        )
        chief.settimeout(120)
        chief.accept()[0].close()  # the server looks for it
        yield process, chief, tmp_path
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [True, False])
def test_a_server_ends_when_the_chief_is_gone(server, is_done):
    process, chief, job = server
    if is_done:
        Path(job, "summary.json").write_text("{}")
    chief.close()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == (0 if is_done else 1), errors
    assert ("is gone, and has not finished the job" in errors) == (not is_done)


@pytest.mark.slow
def test_sigterm_ends_a_server(server):
    process, _, _ = server
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143
