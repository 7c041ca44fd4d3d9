from __future__ import annotations

import json
import os
import subprocess

import pytest


def test_one_line_a_host_in_order(cli):
    done = cli("tf-config", "--hosts", "10.0.0.1:2222,10.0.0.2,10.0.0.3:99")
    assert (done.returncode, done.stderr) == (0, "")
    cluster = {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:99"]}
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"cluster": cluster, "task": {"type": "chief", "index": 0}},
        {"cluster": cluster, "task": {"type": "worker", "index": 0}},
        {"cluster": cluster, "task": {"type": "worker", "index": 1}},
    ]


HOSTS = ("tf-config", "--hosts", "a,[::1]:7")


def evaluated(output: str, *, quoted: bool = True) -> subprocess.CompletedProcess[str]:
    """Evaluate what the command printed in a shell, and print TF_CONFIG."""
    words = '"$PRINTED"' if quoted else "$PRINTED"
    return subprocess.run(
        ["sh", "-c", f'eval {words} || echo failed >&2; printf %s "$TF_CONFIG"'],
        env={"PATH": os.defpath, "PRINTED": output},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("name", "kind"), [("chief", "chief"), ("worker:0", "worker")])
def test_one_task_is_chosen_and_evaluated_by_a_shell(cli, name, kind):
    printed = cli(*HOSTS, "--task", name, "--shell").stdout
    done = evaluated(printed)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "cluster": {"chief": ["a:2222"], "worker": ["[::1]:7"]},
        "task": {"type": kind, "index": 0},
    }
    assert cli(*HOSTS, "--task", name).stdout == done.stdout + "\n"


def test_evaluating_the_lines_of_all_machines_sets_none_of_them_and_fails(cli):
    printed = cli(*HOSTS, "--shell").stdout
    done = evaluated(printed)
    assert done.stdout == ""
    assert done.stderr == (
        "TF_CONFIG is not set: choose the machine with --task, e.g. --task chief\nfailed\n"
    )
    unquoted = evaluated(printed, quoted=False)
    assert unquoted.stdout == ""
    assert unquoted.stderr


@pytest.mark.parametrize(
    ("hosts", "known"),
    [
        ("a,b", "chief, worker:0"),
        (",".join(f"h{n}" for n in range(20)), "chief, worker:0, …, worker:18"),
    ],
)
def test_a_task_that_the_cluster_does_not_have(cli, hosts, known):
    done = cli("tf-config", "--hosts", hosts, "--task", "worker:19")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"distlaunch: error: --task worker:19: no such task in this cluster; there are: {known}\n"
    )


@pytest.mark.parametrize(
    ("hosts", "line"),
    [
        ("a,b,a:2222", "duplicate host a:2222; each task needs its own address"),
        *(
            (hosts, f"{host!r} is not a host with a port from 1 to 65535, such as a:2222, b or "
            "[::1]:2222")
            for hosts, host in [("a,,b", ""), ("a:65536", "a:65536"), ("::1", "::1"),
                                ("[::x]:1", "[::x]:1")]
        ),
    ],
)  # fmt: skip
def test_wrong_hosts_are_one_line(cli, hosts, line):
    done = cli("tf-config", "--hosts", hosts)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"distlaunch: error: --hosts: {line}\n"
