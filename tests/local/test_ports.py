"""Ports are held until they are needed, and a group whose port is taken gets new ones."""

from __future__ import annotations

import re
import socket
from itertools import chain, repeat

import pytest

from distlaunch.cli import main
from distlaunch.errors import DistlaunchError
from distlaunch.local import ports, runner
from distlaunch.local.ports import HeldPorts, is_any_listening, is_taken


def test_a_port_is_taken_by_a_server_but_not_by_connections_that_have_just_ended():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert is_taken(address[1])
        with socket.create_connection(address):
            server.accept()[0].close()
    assert not is_taken(address[1])


def test_held_ports_are_taken_until_they_are_released_and_a_server_of_one_of_them_is_seen():
    with HeldPorts(8) as held:
        assert len(set(held.numbers)) == 8
        assert all(map(is_taken, held.numbers))
        assert not is_any_listening(held.numbers)
        held.release()
        assert not any(map(is_taken, held.numbers))
        for host in ("127.0.0.1", "::1"):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.create_server((host, held.numbers[1]), family=family):
                assert is_any_listening(held.numbers)
        assert not is_any_listening(held.numbers)


def test_no_other_launcher_gets_released_ports(monkeypatch):
    with HeldPorts(2) as held:
        held.release()
        monkeypatch.setattr(ports, "_candidates", lambda: held.numbers)
        with pytest.raises(DistlaunchError, match="no 2 free ports"):
            HeldPorts(2)


@pytest.mark.parametrize("times", [2, 100])
def test_a_group_whose_port_was_taken_starts_again_on_new_ones(tmp_path, monkeypatch, capfd, times):
    answers = chain(repeat(True, times), repeat(False))
    monkeypatch.setattr(runner, "is_taken", lambda _: next(answers))
    monkeypatch.chdir(tmp_path)
    assert main(["local", "--workers=1", "--", "sh", "-c", "exit 9"]) == (9 if times == 2 else 1)
    err = capfd.readouterr().err
    problem = r"another program has taken port (\d+) on 127.0.0.1"
    assert len(set(re.findall(f"{problem}; starting again on new ports", err))) == min(times, 3)
    gives_up = re.search(f"distlaunch: error: {problem}, and others before; end what takes", err)
    assert bool(gives_up) == (times > 3)
    assert "restarting" not in err
