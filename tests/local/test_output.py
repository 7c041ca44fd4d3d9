"""What tasks print: very many lines of four at once."""

from __future__ import annotations

import re
import resource
from functools import partial
from pathlib import Path
from threading import Thread

LINES_A_TASK = 60_000

# What a task writes; the test makes the same again to compare.
WRITER = r"""
ENDS = [b"\n", b"\r\n", b"\r", b"\n", b"\r\r\n"]
ODD = [b"a", "h\u00e9 \u2713 \U0001f600".encode(), b"broken \xff\xc3 \xe2\x9c", b"", b"[=> ] 42 %"]

def blocks(task, count):
    for first in range(0, count, 5000):
        yield b"".join(
            b"%s-%d %s|%s" % (task, number, ODD[number % 5], ENDS[number * 7 % 11 % 5])
            for number in range(first, min(first + 5000, count))
        )
"""
PROGRAM = (
    WRITER
    + f"""
for block in blocks(TASK.encode(), {LINES_A_TASK}):
    for start in range(0, len(block), 7919):
        piece = block[start : start + 7919]
        while piece:
            piece = piece[os.write(1 + start % 2, piece) :]
"""
)


def test_no_line_is_lost_torn_or_mixed_and_memory_stays_flat(launch, tmp_path):
    launched = launch(PROGRAM, "--job-dir=job", workers=4)
    peaks: list[int] = []
    shown: dict[bytes, list[bytes]] = {}

    def read() -> None:
        for line in launched.process.stdout:
            name, _, text = line.partition(b"| ")
            lines = shown.setdefault(name.strip(), [])
            lines.append(text)
            if len(lines) % 12_000 == 0:
                peaks.extend(_peak_memory(launched.process.pid))

    reader = Thread(target=read)
    reader.start()
    err = launched.process.stderr.read()
    reader.join()
    assert (launched.process.wait(), b"error" in err) == (0, False)

    namespace: dict[str, object] = {}
    exec(WRITER, namespace)  # noqa: S102
    for task in (b"chief", b"worker:0", b"worker:1", b"worker:2"):
        stem = task.replace(b":", b"-")
        written = b"".join(namespace["blocks"](stem, LINES_A_TASK))
        log = tmp_path / "job" / "task-logs" / "attempt-1" / f"{stem.decode()}.log"
        assert log.read_bytes() == written
        text = written.decode("utf-8", "replace").encode()
        assert b"".join(shown[task]) == re.sub(rb"\r*\n|\r", b"\n", text)
    assert max(peaks) - min(peaks) < 8 << 20


def _peak_memory(process: int) -> list[int]:
    """Return the most memory that a process has had so far, in bytes; nothing once it has ended."""
    # A process that has ended has a status without memory until its parent waits for it.
    status = Path(f"/proc/{process}/status").read_text()
    return [int(size) << 10 for size in re.findall(r"VmHWM:\s+(\d+) kB", status)]


def test_what_comes_last_is_shown_though_a_daemon_holds_the_output(run):
    code, out, _ = run(
        """
        leave_stubborn_descendants()
        await_up(2)
        sys.stdout.write("no newline")
        """,
        workers=1,
    )
    assert (code, out) == (0, "chief | no newline\n")


def test_a_log_that_cannot_be_written_is_reported_and_the_job_continues(launch, tmp_path):
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1000, 1000))
    program = "for number in range(1000): print('line', number)"
    code, out, err = launch(program, "--job-dir=job", workers=1, preexec_fn=limit).end()
    assert (code, out.count("\n")) == (0, 1000)
    log = tmp_path / "job" / "task-logs" / "attempt-1" / "chief.log"
    assert f"{log} ends here: file too large" in err
    assert log.stat().st_size == 1000
