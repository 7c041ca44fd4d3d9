"""Ports are held until they are needed, and a group whose port a stranger takes gets new ones."""

from __future__ import annotations

import re
import socket
from threading import Thread

import pytest

from distlaunch.errors import DistlaunchError
from distlaunch.local import ports
from distlaunch.local.ports import HeldPorts, is_taken

# A task that listens at its address in TF_CONFIG after the stranger had its chance.
LISTENER = """
import socket
address = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0]
host, port = address.split(":")
if TASK == "worker-0":
    Path(f"{port}.waiting").touch()
    while not Path(f"{port}.go").exists():
        time.sleep(0.01)
    with socket.socket() as own:
        own.bind((host, int(port)))
        own.listen()
"""


def test_held_ports_are_ours_until_they_are_released():
    with HeldPorts(8) as held:
        assert len(set(held.numbers)) == 8
        for port in held.numbers:
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(("127.0.0.1", port))
    assert not any(map(is_taken, held.numbers))


def test_a_port_that_somebody_listens_on_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        assert is_taken(stranger.getsockname()[1])


def test_a_port_whose_connections_have_just_ended_is_not_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address):
            server.accept()[0].close()
    assert not is_taken(address[1])


def test_more_ports_than_there_are(monkeypatch):
    monkeypatch.setattr(ports, "_candidates", lambda: range(20_000, 20_003))
    with pytest.raises(DistlaunchError, match="no 4 free ports"):
        HeldPorts(4)


class Stranger:
    """Takes the port of the worker, for so many starts of the group, before the worker does."""

    def __init__(self, folder, times):
        self._folder, self._times = folder, times
        self._seen = set()
        self._sockets = []
        self._is_over = False
        self._thread = Thread(target=self._work)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._is_over = True
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _work(self):
        while not self._is_over:
            for path in set(self._folder.glob("*.waiting")) - self._seen:
                self._seen.add(path)
                if len(self._seen) <= self._times:
                    self._sockets.append(socket.create_server(("127.0.0.1", int(path.stem))))
                path.with_suffix(".go").touch()


def test_a_group_whose_port_was_taken_starts_again_on_new_ones(run, tmp_path):
    with Stranger(tmp_path, times=2):
        code, _, err = run(LISTENER, "--job-dir=job")
    assert code == 0
    ports = re.findall(r"another program has taken port (\d+) on 127.0.0.1; starting again", err)
    assert len(set(ports)) == 2
    assert "restarting" not in err
    assert [path.name for path in tmp_path.glob("job/task-logs/attempt-*")] == ["attempt-1"]


def test_a_group_whose_ports_are_taken_again_and_again_gives_up(run, tmp_path):
    with Stranger(tmp_path, times=100):
        code, _, err = run(LISTENER)
    assert code == 1
    last = err.splitlines()[-1]
    assert re.match(
        r"distlaunch: error: another program has taken port \d+ on 127.0.0.1, and", last
    )


def test_a_failure_without_a_stranger_is_a_failure(run):
    code, _, err = run("sys.exit(1)")
    assert code == 1
    assert "port" not in err
