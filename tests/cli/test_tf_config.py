from __future__ import annotations

import json
import subprocess

import pytest


def test_one_line_a_host_in_order(run):
    done = run("tf-config", "--hosts", "10.0.0.1:2222,10.0.0.2,10.0.0.3:99")
    assert (done.code, done.err) == (0, "")
    cluster = {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:99"]}
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"cluster": cluster, "task": {"type": kind, "index": index}}
        for kind, index in [("chief", 0), ("worker", 0), ("worker", 1)]
    ]


HOSTS = ("tf-config", "--hosts", "a,[::1]:7")


@pytest.mark.parametrize(("name", "kind"), [("chief", "chief"), ("worker:0", "worker")])
def test_one_task_is_chosen_and_evaluated_by_a_shell(run, name, kind):
    line = run(*HOSTS, "--task", name, "--shell").out
    done = subprocess.run(
        ["sh", "-c", f'{line}printf %s "$TF_CONFIG"'], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "cluster": {"chief": ["a:2222"], "worker": ["[::1]:7"]},
        "task": {"type": kind, "index": 0},
    }
    assert run(*HOSTS, "--task", name).out == done.stdout + "\n"


def test_evaluated_lines_of_all_machines_set_none_and_fail(run):
    lines = run(*HOSTS, "--shell").out
    assert lines.count("export TF_CONFIG=") == 2
    script = 'eval "$LINES" || echo failed >&2; printf %s "$TF_CONFIG"'
    done = subprocess.run(
        ["sh", "-c", script], env={"LINES": lines}, capture_output=True, text=True, check=False
    )
    message = "TF_CONFIG is not set: choose the machine with --task, e.g. --task chief"
    assert (done.stdout, done.stderr) == ("", f"{message}\nfailed\n")


def test_a_task_that_the_cluster_does_not_have(run):
    hosts = ",".join(f"h{number}" for number in range(20))
    problem = "no such task in this cluster; there are: chief, worker:0, …, worker:18"
    done = run("tf-config", "--hosts", hosts, "--task", "worker:19")
    assert done == (2, "", f"distlaunch: error: --task worker:19: {problem}\n")
