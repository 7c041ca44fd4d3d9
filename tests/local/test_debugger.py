"""`local --debug-task`: a real debugger stops a task, and the run goes on behind it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from itertools import count

import pytest

from distlaunch.errors import DistlaunchError
from distlaunch.job.tasks import Task
from distlaunch.local import stop_policy
from distlaunch.local.debugger import Debugger, check_program
from distlaunch.local.stop_policy import Done, Ended, Policy

PROGRAM = """
answer = 41
if TASK == "chief":
    while not Path("done").exists():
        time.sleep(0.05)
else:
    import subprocess
    secret = answer + int(subprocess.check_output([sys.executable, "-c", "print(1)"]))
    Path("done").write_text(str(secret))
"""
JOB = "name: digits\nmodule: program\ncluster: {chief: {machine: n1-standard-4}}\n"


class Client:
    """A client of the Debug Adapter Protocol, as an editor is.

    https://microsoft.github.io/debug-adapter-protocol/specification
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._stream = self._socket.makefile("rb")
        self._numbers = count(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stream.close()
        self._socket.close()

    def send(self, command: str, **arguments) -> int:
        number = next(self._numbers)
        message = {"seq": number, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(message).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        return number

    def call(self, command: str, **arguments) -> dict:
        """Send a request and return the body of its response."""
        number = self.send(command, **arguments)
        response = self._until(lambda message: message.get("request_seq") == number)
        assert response["success"], response
        return response.get("body", {})

    def event(self, name: str) -> dict:
        """Wait for an event."""
        return self._until(lambda message: message.get("event") == name).get("body", {})

    def _until(self, is_wanted) -> dict:
        while True:
            size = int(self._stream.readline().partition(b":")[2])
            self._stream.readline()
            message = json.loads(self._stream.read(size))
            if is_wanted(message):
                return message

    def attach(self, file, line: int) -> None:
        """Attach with a breakpoint, and let the program start."""
        self.call("initialize", adapterID="test", pathFormat="path")
        self.send("attach", justMyCode=True)
        self.event("initialized")
        self.call("setBreakpoints", source={"path": str(file)}, breakpoints=[{"line": line}])
        self.call("configurationDone")

    def evaluate_at_stop(self, expression: str) -> str:
        """Wait until the program stops, and return the value of an expression there."""
        thread = self.event("stopped")["threadId"]
        frame = self.call("stackTrace", threadId=thread)["stackFrames"][0]["id"]
        value = self.call("evaluate", expression=expression, frameId=frame, context="watch")
        self.send("continue", threadId=thread)  # a program that ends may leave it unanswered
        return value["result"]


def port_of(process) -> int:
    """Return the port of the message that a task waits."""
    for line in iter(process.stderr.readline, b""):
        if match := re.search(rb"waiting for a debugger at 127\.0\.0\.1:([0-9]+)", line):
            return int(match[1])
    raise AssertionError("no task waits for a debugger")


def line_of(file, text: str) -> int:
    lines = file.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.slow
def test_a_breakpoint_in_a_worker_while_the_chief_waits_for_it(launch, tmp_path):
    started = launch(PROGRAM, "--debug-task", "worker:0")
    with Client(port_of(started.process)) as client:
        assert not (tmp_path / "done").exists()
        file = tmp_path / "program.py"
        client.attach(file, line_of(file, 'Path("done").write_text'))
        assert client.evaluate_at_stop("(TASK, secret)") == "('worker-0', 42)"
        code, _, err = started.end()
    assert (code, started.left()) == (0, []), err
    assert (tmp_path / "done").read_text() == "42"


@pytest.mark.slow
def test_the_chief_that_runs_the_module_of_the_job(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    file, code = tmp_path / "program.py", "import sys, beside\nsys.exit(len(sys.argv))\n"
    file.write_text(code)
    (tmp_path / "beside.py").write_text("")
    words = [sys.executable, "-m", "distlaunch", "local", "--debug-task=chief", "--", "--epochs=2"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=-1, stderr=-1) as process:
        with Client(port_of(process)) as client:
            client.attach(file, line_of(file, "sys.exit"))
            value = client.evaluate_at_stop("sys.argv[1:], beside.__name__, __name__")
            assert value == "(['--epochs=2'], 'beside', '__main__')"
            _, err = process.communicate(timeout=60)
        assert (process.returncode, b"chief failed with exit code 2" in err) == (2, True), err


@pytest.mark.parametrize(
    ("option", "program", "code", "message"),
    [
        ("worker:5", "python", 2, "--debug-task worker:5: no such task in this cluster"),
        ("boss", "python", 2, "--debug-task boss: no such task in this cluster"),
        ("chief", "./train.sh", 2, "./train.sh is not Python; write -- python FILE.py"),
    ],
)
def test_what_cannot_be_debugged(cli, option, program, code, message):
    done = cli("local", "--workers=2", f"--debug-task={option}", "--", program, "x.py")
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_a_python_without_debugpy_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("distlaunch.local.debugger.find_spec", lambda _: None)
    python = sys.executable
    for words, is_module in ((["trainer.task"], True), (["python", "x.py"], False)):
        with pytest.raises(DistlaunchError) as error:
            check_program(words, is_module=is_module)
        text = f"not installed in {python}; run '{python} -m pip install debugpy'"
        assert text in str(error.value)
    check_program(["/opt/python3.12", "x.py"], is_module=False)


def test_a_container_cannot_be_debugged(cli, tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    done = cli("local", "--workers=2", "--debug-task=chief", "--docker")
    assert "--debug-task cannot be used with --docker" in done.stderr


@pytest.mark.parametrize(
    ("words", "is_module", "before", "after"),
    [
        (["trainer.task", "-a"], True, [sys.executable], ["-m", "trainer.task", "-a"]),
        (["python", "-X", "dev", "-u", "a.py"], False, ["python", "-X", "dev", "-u"], ["a.py"]),
        (["python3", "-m", "a", "-c"], False, ["python3"], ["-m", "a", "-c"]),
    ],
)
def test_debugpy_gets_the_program_and_python_its_options(words, is_module, before, after):
    listen = ["-m", "debugpy", "--listen", "127.0.0.1:7", "--wait-for-client"]
    alone = ["--configure-subProcess", "False"]
    expected = [*before, *listen, *alone, *after]
    assert Debugger("chief", 7).words(words, is_module=is_module) == expected


@pytest.mark.parametrize("is_debugged", [False, True])
def test_a_worker_that_a_debugger_holds_is_not_ended_after_the_chief(is_debugged):
    tasks = [Task("chief"), Task("worker")]
    policy = Policy(tasks, lambda *_: None, lambda *_: None, is_debugged=is_debugged)
    for task in tasks:
        policy.started(task, 0.0)
    policy.exited(tasks[0], Ended(), 1.0)
    policy.tick(2.0 + stop_policy.STOP_TIMEOUT)
    assert policy.verdict == (None if is_debugged else Done())
    policy.exited(tasks[1], Ended(), 9e5)
    assert policy.verdict == Done()
