"""A group of real processes: how it ends, what is reported, what its programs see."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest


def test_the_first_failure_ends_the_job_with_its_code_and_last_lines(run, tmp_path):
    code, out, err = run(
        """
        if TASK == "worker-0":
            print("first words")
            for number in range(30):
                print("line", number)
            sys.exit(7)
        time.sleep(60)
        """,
        workers=3,
    )
    assert code == 7
    assert "worker:0 | first words" in out
    assert "worker:0 failed with exit code 7 after " in err
    last_lines = err[err.index("worker:0 failed") :]
    assert "line 29" in last_lines
    assert "line 10\n" in last_lines
    assert "line 9\n" not in last_lines
    (log,) = tmp_path.glob(".distlaunch/local/*/task-logs/attempt-1/worker-0.log")
    assert str(log) in err
    assert log.read_text().startswith("first words\nline 0\n")


LATE = "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit('words\\n' * COUNT))"


@pytest.mark.parametrize(
    ("before", "times"),
    [("pass", 1), (LATE.replace("COUNT", "9"), 1), (LATE.replace("COUNT", "99"), 2)],
)
def test_the_last_lines_are_not_repeated_right_below_themselves(launch, before, times):
    code, out, _ = launch(
        f"""
        if TASK == "chief":
            {before}
            is_up("task")
            time.sleep(60)
        await_up(1)
        sys.exit("the reason")
        """,
        stderr=subprocess.STDOUT,
    ).end()
    assert code == 1
    assert out.count("the reason") == times
    assert "worker:0 failed with exit code 1" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["./missing"], 127, "chief could not start: ./missing: No such file or directory"),
        (["./data"], 126, "chief could not start: ./data: Permission denied"),
        (["sh", "-c", "exit 127"], 127, "failed with exit code 127"),
        (["sh", "-c", "exit 2"], 2, "failed with exit code 2"),
    ],
)
def test_what_is_not_restarted(cli, tmp_path, words, code, message):
    (tmp_path / "data").write_text("no program")
    done = cli("local", "--workers=1", "--restarts=2", "--", *words)
    assert (done.returncode, done.stderr.count(message)) == (code, 1)
    reason = {2: "exit code 2 means that the program was called wrongly"}
    expected = reason.get(code, "the program could not be started")
    assert f"not restarted: {expected}\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stop_lets_tasks_leave_and_kills_and_reports_those_that_do_not(launch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "from distlaunch.local import stop_policy\nstop_policy.STOP_TIMEOUT = 2\n"
    )
    launched = launch(
        """
        def leave(*_):
            print("saved", flush=True)
            sys.exit(143)
        signal.signal(signal.SIGTERM, leave)
        stay("task", stubborn=TASK == "worker-0")
        """,
        env={"PYTHONPATH": str(tmp_path)},
    )
    launched.until_up(2)
    launched.process.send_signal(signal.SIGINT)
    code, out, err = launched.end()
    assert (code, out) == (130, "chief    | saved\n")
    assert "distlaunch: warning: worker:0: killed, as 2 s were not enough\n" in err
    assert "chief: killed" not in err
    assert "failed" not in err


def test_evaluators_and_parameter_servers_are_ended_when_the_primary_is_done(run, tmp_path):
    machine = "{machine: n1-standard-4}"
    (tmp_path / "distlaunch.yaml").write_text(
        f"name: digits\ncluster: {{chief: {machine}, workers: {machine}, "
        f"parameter_servers: {machine}, evaluators: {machine}}}\n"
    )
    code, out, err = run(
        """
        if TASK in ("ps-0", "evaluator-0"):
            is_up("task")
            time.sleep(60)
        print(json.loads(os.environ["TF_CONFIG"])["task"]["type"], flush=True)
        is_up("task")
        await_up(4)
        """,
        workers=None,
    )
    assert (code, "failed" in err) == (0, False)
    assert sorted(out.split()) == ["chief", "chief", "worker", "worker:0", "|", "|"]


def test_a_worker_that_fails_after_the_primary_is_done_is_a_failure(run):
    code, _, err = run(
        """
        if TASK == "worker-0":
            await_state("chief", "Z")
            sys.exit(9)
        """,
        "--restarts=1",
    )
    assert code == 9
    assert err.count("worker:0 failed with exit code 9") == 1
    assert (
        "not restarted: the primary task was done, and a finished job is not trained again" in err
    )


def test_what_a_program_sees(run, tmp_path):
    code, out, _ = run(
        """
        facts = {name: value for name, value in os.environ.items()}
        facts["stdin"] = sys.stdin.read()
        facts["cores"] = len(os.sched_getaffinity(0))
        facts["python"] = sys.executable
        facts["session"] = os.getsid(0) == os.getpid()
        Path(f"{TASK}.json").write_text(json.dumps(facts))
        """,
        "--job-dir=job",
        workers=2,
        env={"TF_CONFIG": "an outer job's", "OMP_NUM_THREADS": "3"},
    )
    assert (code, out) == (0, "")
    chief, worker = (
        json.loads((tmp_path / f"{task}.json").read_text()) for task in ("chief", "worker-0")
    )
    cluster = json.loads(chief["TF_CONFIG"])["cluster"]
    assert json.loads(worker["TF_CONFIG"])["cluster"] == cluster
    addresses = cluster["chief"] + cluster["worker"]
    assert len(set(addresses)) == 2
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    job, count = tmp_path / "job", len(psutil.Process().cpu_affinity())
    assert worker["DISTLAUNCH_EVENTS"] == f"{job}/task-logs/attempt-1/worker-0.events.jsonl"
    assert (
        chief
        | {
            "DISTLAUNCH_RESTARTS": "0",
            "DISTLAUNCH_PEER_TIMEOUT": "60",
            "OMP_NUM_THREADS": "3",
            "PYTHONUNBUFFERED": "1",
            "TF_NUM_INTRAOP_THREADS": str(max(1, count // 2)),
            "cores": max(1, count // 2),
            "stdin": "",
            "session": True,
        }
        == chief
    )
    assert Path(chief["python"]).parent == Path(sys.executable).parent


def test_restarts_are_of_all_tasks_with_new_logs_until_they_are_used_up(run, tmp_path):
    code, out, err = run(
        """
        print("attempt", RESTARTS, flush=True)
        is_up(RESTARTS)
        await_up(2 * RESTARTS + 2)
        sys.exit(4) if TASK == "worker-0" else time.sleep(60)
        """,
        "--restarts=2",
        "--job-dir=job",
    )
    assert code == 4
    assert "chief    | attempt 2" in out
    assert err.count("worker:0 failed with exit code 4") == 3
    assert err.count("full log: ") == 3
    assert "failed first" not in err  # what failed is named above
    assert "restarting all tasks (2 of 2)" in err
    assert "not restarted" not in err
    logs = sorted(tmp_path.glob("job/task-logs/attempt-*/worker-0.log"))
    assert [path.read_text() for path in logs] == [f"attempt {number}\n" for number in range(3)]


def test_a_task_is_killed_at_a_step_once_and_a_fault_that_never_happened_is_reported(run):
    code, _, err = run(
        "report('step', step=12); time.sleep(0 if RESTARTS else 60)",
        "--kill=worker:0@step=10",
        "--kill=chief@step=1000000",
        "--restarts=1",
    )
    assert code == 0
    assert err.count("worker:0 was killed by signal 9 (SIGKILL)") == 1
    assert "--kill worker:0@step=10: sending SIGKILL to worker:0 at step 12" in err
    assert "fault not triggered: --kill chief@step=1000000" in err


def test_a_frozen_task_is_a_likely_cause(run):
    code, _, err = run(
        """
        if TASK == "worker-0":
            report("step", step=30)
            time.sleep(60)
        await_state("worker-0", "T")
        sys.exit(6)
        """,
        "--freeze=worker:0@step=30",
    )
    assert code == 6
    assert "--freeze worker:0@step=30" in err
    assert "likely cause: worker:0 is frozen (SIGSTOP)" in err
