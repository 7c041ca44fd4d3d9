"""Ports are held until they are needed, and a group whose port is taken gets new ones."""

from __future__ import annotations

import re
import socket
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from distlaunch.errors import DistlaunchError
from distlaunch.local import ports
from distlaunch.local.ports import HeldPorts, is_taken

# A task that listens at its address in TF_CONFIG once the test allows it.
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
            assert is_taken(port)
    assert not any(map(is_taken, held.numbers))


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


@contextmanager
def taking_ports(folder, times):
    """Take the worker's port before it does, in so many starts of the group."""
    is_over = Event()

    def work():
        seen, sockets = set(), []
        while not is_over.wait(0.01):
            for path in set(folder.glob("*.waiting")) - seen:
                seen.add(path)
                if len(seen) <= times:
                    sockets.append(socket.create_server(("127.0.0.1", int(path.stem))))
                path.with_suffix(".go").touch()
        for taken in sockets:
            taken.close()

    thread = Thread(target=work)
    thread.start()
    yield
    is_over.set()
    thread.join()


def test_a_group_whose_port_was_taken_starts_again_on_new_ones(run, tmp_path):
    with taking_ports(tmp_path, times=2):
        code, _, err = run(LISTENER)
    assert code == 0
    ports = re.findall(r"another program has taken port (\d+) on 127.0.0.1; starting again", err)
    assert len(set(ports)) == 2
    assert "restarting" not in err


def test_a_group_whose_ports_are_taken_again_and_again_gives_up(run, tmp_path):
    with taking_ports(tmp_path, times=100):
        code, _, err = run(LISTENER)
    assert (code, err.count("starting again on new ports")) == (1, 3)
    assert re.match(
        r"distlaunch: error: another program has taken port \d+ on 127.0.0.1, and others before",
        err.splitlines()[-1],
    )
