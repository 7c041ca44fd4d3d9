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


@pytest.mark.parametrize("hosts", ["10.0.0.1\n10.0.0.2\n10.0.0.3", "10.0.0.1 10.0.0.2 10.0.0.3"])
def test_hosts_and_ranks_of_other_launchers(run, hosts):
    config = json.loads(run("tf-config", "--hosts", hosts, "--rank", "2").out)
    assert config["cluster"]["worker"] == ["10.0.0.2:2222", "10.0.0.3:2222"]
    assert config["task"] == {"type": "worker", "index": 1}
    done = run("tf-config", "--hosts", hosts, "--rank", "3")
    assert done == (2, "", "distlaunch: error: --rank 3: there are 3 hosts\n")


def test_a_task_of_slurm_gets_its_variables(run, monkeypatch):
    done = run("tf-config", "--slurm")
    assert (done.code, done.out) == (1, "")
    assert "this is no task of a Slurm step" in done.err
    for name, value in {
        "SLURM_JOB_ID": "12",
        "SLURM_PROCID": "1",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    }.items():
        monkeypatch.setenv(name, value)
    config = json.loads(run("tf-config", "--slurm").out)
    assert config["cluster"] == {"chief": ["n1:11164"], "worker": ["n2:11165"]}
    lines = run("tf-config", "--slurm", "--shell").out
    script = f'{lines}printf "%s" "$TF_CONFIG"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == config
    assert run("tf-config", "--slurm", "--task", "chief").code == 2
