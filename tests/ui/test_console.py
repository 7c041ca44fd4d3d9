"""What a terminal gets, on a real one; what a pipe gets is in test_progress_view.py."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from distlaunch.ui.console import visible

BEGIN = """
from distlaunch.ui.console import Console
from distlaunch.events import JobChanged, Notice, TaskLines, Trained, Waiting
from distlaunch.ui.progress_view import ProgressView

console = Console()
view = ProgressView(console, ["chief", "worker:0"])
"""
SHOW = """
view.handle(TaskLines("chief", "one\\ntwo\\n"))
view.handle(Notice("slow", "warning"))
view.handle(Trained("worker:0", {"event": "step", "step": 2}))
view.handle(Trained("chief", {"event": "step", "step": 1}))
view.handle(TaskLines("worker:0", "three\\n"))
view.handle(Notice("done"))
view.summarise(None, logs="logs")
"""
NAME = "\x1b[2mdistlaunch:\x1b[0m"
CLEAR = "\r\x1b[2K"


def on_a_terminal(code: str, **environment: str) -> str:
    """Return what a terminal shows of a program."""
    reader, writer = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + code],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        env=env | {"TERM": "xterm"} | environment,
    ) as process:
        os.close(writer)
        shown = b""
        while chunk := _read(reader):
            shown += chunk
    os.close(reader)
    assert process.returncode == 0, shown
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # on Linux: no process writes to it any more
        return b""


def in_pipes(code: str, **environment: str) -> tuple[str, str]:
    command = [sys.executable, "-c", BEGIN + code]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, check=True)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    return done.stdout.decode(encoding), done.stderr.decode(encoding)


def test_terminal_gets_colour_and_a_progress_line():
    assert on_a_terminal(SHOW) == (
        "\x1b[36mchief    |\x1b[0m one\n\x1b[36mchief    |\x1b[0m two\n"
        f"{NAME} \x1b[33mwarning:\x1b[0m slow\n"
        f"{CLEAR}step 1{CLEAR}\x1b[35mworker:0 |\x1b[0m three\nstep 1{CLEAR}{NAME} done\nstep 1"
        f"{CLEAR}{NAME} done; the tasks' output is in logs\n"
    )


def test_no_color_keeps_the_progress_line_and_a_dumb_terminal_has_none():
    shown = on_a_terminal(SHOW, NO_COLOR="1")
    assert "\x1b[0m" not in shown
    assert f"{CLEAR}step 1" in shown
    assert on_a_terminal(SHOW, TERM="dumb") == (
        "chief    | one\nchief    | two\ndistlaunch: warning: slow\nworker:0 | three\n"
        "distlaunch: done\ndistlaunch: done; the tasks' output is in logs\n"
    )


def test_terminal_gets_a_spinner_until_the_first_step_and_each_epoch_once():
    shown = on_a_terminal("""
view.handle(Waiting("starting TensorFlow"))
view.wait(0.3)
view.handle(Waiting(""))
view.handle(Trained("chief", {"event": "ready", "epochs": 1, "steps_per_epoch": 2}))
view.handle(Trained("chief", {"event": "step", "step": 1}))
view.handle(TaskLines("chief", "epoch 1/1: loss 0.5\\n"))
view.summarise({"restarts": 0, "epochs": [{"epoch": 1, "step": 2, "logs": {"loss": 0.5}}]})
""").split(CLEAR)
    assert shown[:2] == ["", "| starting TensorFlow · 0 s"]
    assert any(piece.startswith("/ starting TensorFlow") for piece in shown)
    first_step = shown.index("[######------] step 1/2")
    assert "| building the first step · 0 s" in shown[:first_step]
    assert shown[-1] == "restarts    0\nlast epoch  loss 0.5000\n"


def test_states_have_a_colour_on_a_terminal():
    states = "JobChanged('RUNNING'), JobChanged('SUCCEEDED', 60.0)"
    assert on_a_terminal(f"for state in ({states}): view.handle(state)") == (
        f"{NAME} state \x1b[36mRUNNING\x1b[0m\n"
        f"{NAME} state \x1b[32mSUCCEEDED\x1b[0m (RUNNING took 1 min)\n"
        f"{CLEAR}| waiting for the last lines of the log · 0 s"
    )


def test_a_running_job_without_lines_has_a_spinner_until_there_is_one():
    shown = on_a_terminal("""
import distlaunch.ui.progress_view as progress_view
progress_view._SILENCE = 0.4
view.handle(JobChanged("RUNNING"))
view.wait(0.8)
view.handle(TaskLines("chief", "one\\n"))
view.wait(0.3)
view.handle(Trained("chief", {"event": "figures", "step": 30, "epochs": 3, "steps_per_epoch": 20}))
view.wait(0.8)
""").split(CLEAR)
    assert re.fullmatch(r"[|/\\-] running · no line for \d s", shown[1])
    assert any("one\n" in piece for piece in shown)
    assert shown[-1] == "[######------] step 30/60"
    assert "" in shown[2:-1]  # between the line and the figures


def test_lines_of_a_log_have_the_colour_of_their_severity_on_a_terminal():
    shown = """
for severity in ("INFO", "WARNING", "ERROR"):
    view.handle(TaskLines("chief", "one\\ntwo\\n", severity=severity))
"""
    lines = on_a_terminal(shown).splitlines()
    assert [line.partition("|\x1b[0m ")[2] for line in lines] == [
        *("one", "two"),
        *("\x1b[33mone\x1b[0m", "\x1b[33mtwo\x1b[0m"),
        *("\x1b[31mone\x1b[0m", "\x1b[31mtwo\x1b[0m"),
    ]


def test_what_cannot_be_encoded_is_replaced():
    calls = "console.lines('chief | ', 'é €\\n'); console.log('€')"
    shown = in_pipes(calls, PYTHONIOENCODING="latin-1")
    assert shown == ("chief | é ?\n", "distlaunch: ?\n")


ESCAPES = (
    "\x1b]0;title\x07 \x1b]8;;http://x\x1b\\ \x1b]52;c;ZQ==\x07 \x1b[2J \x08 \x7f \x9b2J \udc9b"
)
SHOWN = (
    r"\x1b]0;title\x07 \x1b]8;;http://x\x1b\ \x1b]52;c;ZQ==\x07 \x1b[2J "
    r"\x08 \u007f \u009b2J \udc9b"
)


def test_text_from_outside_cannot_send_escapes_to_the_terminal():
    text = f"text = {ESCAPES!r}\n"
    calls = "console.lines(console.prefix(text, 0), f'\\t{text}\\nnext\\n'); console.result(text)\n"
    assert in_pipes(text + calls + "console.log(f'{text}\\nnext', 'error')") == (
        f"{SHOWN} | \t{SHOWN}\n{SHOWN} | next\n{SHOWN}\n",
        f"distlaunch: error: {SHOWN}\n    next\n",
    )
    assert on_a_terminal(text + "console.progress(text)") == CLEAR + SHOWN[:79]


def test_colours_in_task_output_stay_and_end_with_the_line():
    red, reset = "\x1b[1;31m", "\x1b[0m"
    text = f"{red}one\ntwo {red}red{reset} end\n{red}{reset}\n\x1b[mthree\n\x1b[31four\n"
    assert in_pipes(f"console.lines('| ', {text!r})")[0] == (
        f"| {red}one{reset}\n| two {red}red{reset} end\n| {red}{reset}\n"
        "| \x1b[mthree\n| \\x1b[31four\n"
    )
    assert visible(f"{red}x") == r"\x1b[1;31mx"


def test_a_carriage_return_cannot_overwrite_the_task_s_name():
    text = "10%\r20%\r\r\n\rchief | no\r\n\r\n"
    assert in_pipes(f"console.lines('w | ', {text!r})")[0] == (
        "w | 10%\nw | 20%\nw | chief | no\nw | \n"
    )


@given(st.text())
def test_escapes_in_json_are_still_json(text):
    shown = visible(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in shown)


def test_stderr_may_be_closed():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", BEGIN + "console.log('x'); console.result('on')"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, check=True)
    os.close(writer)
    assert done.stdout == b"on\n"
