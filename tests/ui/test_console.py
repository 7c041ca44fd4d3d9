"""What a terminal gets, on a real one; what a pipe gets is in test_progress_view.py."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from distlaunch.ui.console import visible

SHOW = """
from distlaunch.ui.console import Console
from distlaunch.ui.events import Notice, TaskLines, Trained
from distlaunch.ui.progress_view import ProgressView

view = ProgressView(Console(), ["chief", "worker:0"])
view.handle(TaskLines("chief", "one\\ntwo\\n"))
view.handle(Notice("slow", "warning"))
view.handle(Trained("worker:0", {"event": "step", "step": 2}))
view.handle(Trained("chief", {"event": "step", "step": 1}))
view.handle(TaskLines("worker:0", "three\\n"))
view.handle(Notice("done"))
view.summarise(None, logs="logs")
"""
PROGRESS = "\r\x1b[2Kstep 1"


def on_a_terminal(code: str = SHOW, **environment: str) -> str:
    """Return what a terminal shows of a program."""
    reader, writer = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        env=env | environment,
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


def test_terminal_gets_colour_and_a_progress_line():
    name = "\x1b[2mdistlaunch:\x1b[0m"
    assert on_a_terminal(TERM="xterm") == (
        "\x1b[36mchief    |\x1b[0m one\n\x1b[36mchief    |\x1b[0m two\n"
        f"{name} \x1b[33mwarning:\x1b[0m slow\n"
        f"{PROGRESS}\r\x1b[2K\x1b[33mworker:0 |\x1b[0m three\nstep 1"
        f"\r\x1b[2K{name} done\nstep 1"
        f"\r\x1b[2K{name} done; the tasks' output is in logs\n"
    )


WAIT = """
from distlaunch.ui.console import Console
from distlaunch.ui.events import TaskLines, Trained, Waiting
from distlaunch.ui.progress_view import ProgressView

view = ProgressView(Console(), ["chief"])
view.handle(Waiting("starting TensorFlow"))
view.wait(0.3)
view.handle(Waiting(""))
view.handle(Trained("chief", {"event": "ready", "epochs": 1, "steps_per_epoch": 2}))
view.handle(Trained("chief", {"event": "step", "step": 1}))
view.handle(TaskLines("chief", "epoch 1/1: loss 0.5\\n"))
view.summarise({"restarts": 0, "epochs": [{"epoch": 1, "step": 2, "logs": {"loss": 0.5}}]})
"""


def test_terminal_gets_a_spinner_until_the_first_step_and_each_epoch_once():
    shown = on_a_terminal(WAIT, TERM="xterm").split("\r\x1b[2K")
    assert shown[:2] == ["", "| starting TensorFlow · 0 s"]
    assert any(piece.startswith("/ starting TensorFlow") for piece in shown)
    assert "| building the first step · 0 s" in shown
    assert shown.index("[##########----------] step 1/2") > shown.index(
        "| building the first step · 0 s"
    )
    assert shown[-1] == "restarts  0\n"
    assert sum("0.5" in piece for piece in shown) == 1


def test_no_color_keeps_the_progress_line_and_a_dumb_terminal_has_none():
    shown = on_a_terminal(TERM="xterm", NO_COLOR="1")
    assert "\x1b[0m" not in shown
    assert PROGRESS in shown
    assert shown.startswith("chief    | one\nchief    | two\ndistlaunch: warning: slow\n")
    assert on_a_terminal(TERM="dumb") == (
        "chief    | one\nchief    | two\ndistlaunch: warning: slow\nworker:0 | three\n"
        "distlaunch: done\ndistlaunch: done; the tasks' output is in logs\n"
    )


def test_what_cannot_be_encoded_is_replaced():
    show = (
        "from distlaunch.ui.console import Console; console = Console(); "
        "console.lines('chief | ', 'é €\\n'); console.log('€')"
    )
    done = subprocess.run(
        [sys.executable, "-c", show],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == "chief | é ?\n".encode("latin-1")
    assert done.stderr == b"distlaunch: ?\n"


ESCAPES = (
    "\x1b]0;title\x07 \x1b]8;;http://x\x1b\\ \x1b]52;c;ZQ==\x07 \x1b[2J \x08 \x7f \x9b2J \udc9b"
)
SHOWN = (
    r"\x1b]0;title\x07 \x1b]8;;http://x\x1b\ \x1b]52;c;ZQ==\x07 \x1b[2J "
    r"\x08 \u007f \u009b2J \udc9b"
)


def shown_of(calls: str) -> tuple[str, str]:
    """Return stdout and stderr of calls of a console with the escapes above as `text`."""
    code = f"from distlaunch.ui.console import Console; console = Console(); text = {ESCAPES!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", code + calls], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_text_from_outside_cannot_send_escapes_to_the_terminal():
    assert shown_of(
        "console.lines(console.prefix(text, 0), f'\\t{text}\\nnext\\n')\n"
        "console.result(f'{text}\\nnext')\n"
        "console.log(f'{text}\\nnext', 'error')"
    ) == (
        f"{SHOWN} | \t{SHOWN}\n{SHOWN} | next\n{SHOWN}\nnext\n",
        f"distlaunch: error: {SHOWN}\n    next\n",
    )
    show = f"from distlaunch.ui.console import Console; Console().progress({ESCAPES!r})"
    assert on_a_terminal(show, TERM="xterm") == "\r\x1b[2K" + SHOWN[:79]


def test_colours_in_task_output_stay_and_end_with_the_line():
    red, reset = "\x1b[1;31m", "\x1b[0m"
    text = f"{red}one\ntwo {red}red{reset} end\n{red}{reset}\n\x1b[mthree\n\x1b[31four\n"
    assert shown_of(f"console.lines('| ', {text!r})")[0] == (
        f"| {red}one{reset}\n| two {red}red{reset} end\n| {red}{reset}\n"
        "| \x1b[mthree\n| \\x1b[31four\n"
    )
    assert visible(f"{red}x") == r"\x1b[1;31mx"


def test_a_carriage_return_cannot_overwrite_the_task_s_name():
    text = "10%\r20%\r\r\n\rchief | no\r\n\r\n"
    assert shown_of(f"console.lines('w | ', {text!r})")[0] == (
        "w | 10%\nw | 20%\nw | chief | no\nw | \n"
    )


@given(st.text())
def test_escapes_in_json_are_still_json(text):
    shown = visible(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not any(unicodedata.category(each) in ("Cc", "Cs") for each in shown)


def test_stderr_may_be_closed():
    show = "from distlaunch.ui.console import Console; Console().log('x'); print('on')"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", show], stdout=subprocess.PIPE, stderr=writer, check=True
    )
    os.close(writer)
    assert done.stdout == b"on\n"


def test_states_have_a_colour_on_a_terminal():
    show = """
from distlaunch.ui.console import Console
from distlaunch.ui.events import JobChanged
from distlaunch.ui.progress_view import ProgressView

view = ProgressView(Console(), ["chief"])
view.handle(JobChanged("RUNNING"))
view.handle(JobChanged("SUCCEEDED", 60.0))
"""
    name = "\x1b[2mdistlaunch:\x1b[0m state"
    assert on_a_terminal(show, TERM="xterm") == (
        f"{name} \x1b[36mRUNNING\x1b[0m\n{name} \x1b[32mSUCCEEDED\x1b[0m (RUNNING took 1 min)\n"
        "\r\x1b[2K| waiting for the last lines of the log · 0 s"
    )
