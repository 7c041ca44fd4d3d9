"""Where text goes: colour and a progress line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from distlaunch import platforms
from distlaunch.errors import OutputError, output_error
from distlaunch.text import without_colours

if TYPE_CHECKING:
    from distlaunch.events import Level
    from distlaunch.text import Table

LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
TASK_COLOURS = (36, 35, 34, 32, 96, 95, 94, 92)  # not those of warnings and errors
RED, GREEN, YELLOW, CYAN, DIM = 31, 32, 33, 36, 2

# Control characters except tab and newline, and surrogates (undecodable bytes).
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
_CONTROLS = re.compile(_CONTROL)
_CONTROLS_AND_COLOURS = re.compile(rf"\x1b\[[0-9;:]*m|{_CONTROL}")
_ASCII_CONTROLS = {code: f"\\x{code:02x}" for code in range(0x20) if chr(code) not in "\t\n"}
_ASCII_CONTROLS[0x7F] = r"\u007f"
_RETURNS = re.compile(r"(?P<at_start>^\r+)|\r+\n?", re.MULTILINE)
_RESET = "\x1b[0m"

_CLEAR_LINE = b"\r\x1b[2K"
_CLEAR_LINE_ABOVE = b"\x1b[A\x1b[2K"
_USUAL_SIZE = 80, 24
_LOOK = 200  # milliseconds between two looks at whether a reader that takes nothing is given up
_PATIENCE = 5  # looks


class OutputStream:
    """A standard stream, whose reader may be slow, pause or leave.

    Before each write it waits until the reader has room for it, so that a signal never waits for
    the reader. The descriptor isn't made non-blocking: other processes hold it too, such as a
    shell.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_terminal = os.isatty(descriptor)
        self.is_hurried = False  # a reader that takes nothing for a second is given up
        self._is_given_up = False
        self._piece = sys.maxsize
        self._encoding = (sys.stderr if descriptor == 2 else sys.stdout).encoding or "utf-8"
        if sys.platform == "win32":  # which polls sockets alone
            return
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        # What polls as writable takes this much without blocking; a file takes anything.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._piece = select.PIPE_BUF

    def encoded(self, text: str) -> bytes:
        """Return text in the stream's encoding; a character that it does not have becomes '?'."""
        return text.encode(self._encoding, "replace")

    def write(self, data: bytes) -> None:
        """Write whole lines, however long the reader takes.

        BrokenPipeError is raised if the reader is gone and OutputError if writing fails for another
        reason.
        """
        done = 0
        while done < len(data) and self._wait_for_reader():
            # A reader that is given up has the end of a line, unless that is longer than a piece.
            end = data.rfind(b"\n", done, done + self._piece) + 1 or done + self._piece
            try:
                done += platforms.write(self.descriptor, data[done:end])
            except BlockingIOError:
                continue  # another process made it non-blocking and filled it
            except OSError as problem:
                raise output_error(problem) from None

    def _wait_for_reader(self) -> bool:
        """Return whether the reader takes more, as soon as it does or is given up."""
        if sys.platform == "win32":
            return True
        looks = 0
        while not self._is_given_up and not self._poll.poll(_LOOK):
            looks += self.is_hurried
            self._is_given_up = looks == _PATIENCE
        return not self._is_given_up


class Console:
    """What a person or a script sees: results on stdout, everything else on stderr.

    Writing waits for the readers. To stdout, it raises BrokenPipeError if that is closed and
    OutputError if it fails. Messages below `level` are not shown.
    """

    def __init__(self, level: Level = "info", *, out: int = 1, err: int = 2) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.level = level
        self._out = OutputStream(out)
        self._err = OutputStream(err)
        self._progress = b""

    @property
    def is_one_stream(self) -> bool:
        """Whether stdout and stderr are the same file, pipe or terminal."""
        return os.path.sameopenfile(self._out.descriptor, self._err.descriptor)

    def hurry(self) -> None:
        """From now on give up a reader that takes nothing for a second."""
        self._out.is_hurried = self._err.is_hurried = True

    def _shows(self, level: Level) -> bool:
        return LEVELS.index(level) >= LEVELS.index(self.level)

    def prefix(self, name: str, number: int) -> str:
        """Return the prefix of each line of the task of this number."""
        colour = TASK_COLOURS[number % len(TASK_COLOURS)]
        return paint(f"{visible(name)} |", colour, self._out) + " "

    def painted(self, text: str, colour: int) -> str:
        """Return text as `result` shows it in a colour."""
        return paint(text, colour, self._out)

    def lines(self, prefix: str, text: str) -> None:
        """Write whole lines to stdout, each behind a prefix; a carriage return ends a line, too."""
        if "\r" in text:
            text = _RETURNS.sub(lambda match: "" if match["at_start"] else "\n", text)
        data, before = self._encoded(text, self._out), prefix.encode()
        self._to_stdout(before + data[:-1].replace(b"\n", b"\n" + before) + b"\n")

    def result(self, text: str) -> None:
        """Write a result to stdout as it is."""
        self._to_stdout(self._encoded(text, self._out) + b"\n")

    def draw(self, *parts: str | Table) -> None:
        """Write a result for a person to stdout, within the width of a terminal."""
        for part in parts:
            self.result(fitted(part, self._out.descriptor))

    def log(self, text: str, level: Level = "info") -> None:
        """Log a message to stderr; lines after the first are indented."""
        if not self._shows(level):
            return
        name = paint("distlaunch:", DIM, self._err)
        if level in ("warning", "error"):
            name += " " + paint(f"{level}:", RED if level == "error" else YELLOW, self._err)
        quoted = text.removesuffix("\n").replace("\n", "\n    ")
        line = fitted(f"{name} {quoted}", self._err.descriptor)
        self._to_stderr(self._encoded(line, self._err) + b"\n")

    @property
    def has_progress(self) -> bool:
        """Whether `progress` is shown."""
        return self._err.is_terminal and _is_capable() and self._shows("info")

    def progress(self, text: str) -> None:
        """Show lines that the next ones replace, as far as they fit; only a terminal gets them."""
        if self.has_progress and (text or self._progress):
            width, height = _size(self._err.descriptor)
            lines = visible(without_colours(text)).split("\n")
            if len(lines) >= height:
                lines = [*lines[: height - 2], lines[-1]]
            shown = "\n".join(_cut(line, width - 1) for line in lines)
            clear, self._progress = self._clear, self._err.encoded(shown)
            self._write_err(clear + self._progress)

    @property
    def _clear(self) -> bytes:
        """What clears the lines of the progress."""
        return _CLEAR_LINE + _CLEAR_LINE_ABOVE * self._progress.count(b"\n")

    def _encoded(self, text: str, stream: OutputStream) -> bytes:
        return stream.encoded(visible(text, keep_colours=True))

    def _to_stdout(self, data: bytes) -> None:
        if self._progress and self._out.is_terminal:
            self._write_err(self._clear)
            self._write(self._out, data)
            self._write_err(self._progress)
        else:
            self._write(self._out, data)

    def _to_stderr(self, data: bytes) -> None:
        self._write_err(self._clear + data + self._progress if self._progress else data)

    def _write_err(self, data: bytes) -> None:
        with suppress(BrokenPipeError, OutputError):  # nothing is left to report it to
            self._write(self._err, data)

    def _write(self, stream: OutputStream, data: bytes) -> None:
        try:
            stream.write(data)
        except KeyboardInterrupt:
            self.hurry()
            raise


def paint(text: str, colour: int, stream: OutputStream) -> str:
    """Return text in a colour where its reader is a terminal that shows it, or as it is."""
    return coloured(text, colour) if _shows_colours(stream.descriptor) else text


def coloured(text: str, colour: int) -> str:
    """Return text in a colour, for `fitted`, which leaves it out where it is not shown."""
    return f"\x1b[{colour}m{text}{_RESET}"


def _shows_colours(descriptor: int) -> bool:
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR") and _is_capable()


def fitted(part: str | Table, descriptor: int) -> str:
    """Return text or a table within the width of a terminal; elsewhere lines are as long as needed.

    Colours stay where they are shown; other control characters are written out.
    """
    text = visible(str(part), keep_colours=True)
    plain, width = without_colours(text), columns_of(descriptor)
    if width is not None and any(len(line) > width for line in plain.split("\n")):
        from distlaunch.ui import terminal_width  # it imports rich

        fit = terminal_width.fit(text if isinstance(part, str) else part, width)
        text = visible(fit, keep_colours=True)
        plain = without_colours(text)
    return text if _shows_colours(descriptor) else plain


def visible(text: str, *, keep_colours: bool = False) -> str:
    r"""Return text with its control characters written out, except tabs and newlines.

    ESC becomes ``\x1b``. Characters from U+007F become ``\u009b``, as in JSON, so that text that is
    JSON keeps its value. Colour sequences (SGR) stay if requested; a line that leaves one on is
    reset at its end.
    """
    if text.isascii() and "\x1b" not in text:
        return text.translate(_ASCII_CONTROLS)  # five times as fast as what follows
    if not keep_colours:
        return _CONTROLS.sub(_written_out, text)
    shown = _CONTROLS_AND_COLOURS.sub(_written_out, text)
    return "\n".join(map(_with_reset, shown.split("\n"))) if "\x1b" in shown else shown


def _written_out(match: re.Match[str]) -> str:
    if len(match[0]) > 1:
        return match[0]  # a colour sequence
    code = ord(match[0])
    return _ASCII_CONTROLS.get(code, f"\\u{code:04x}")


def _with_reset(line: str) -> str:
    last = line.rfind("\x1b")
    return line if last < 0 or line.startswith((_RESET, "\x1b[m"), last) else line + _RESET


def _cut(line: str, width: int) -> str:
    """Return a line without the parts, or if it has only one the letters, that do not fit."""
    part = line[:width]
    return part if len(line) <= width else part.rpartition(" · ")[0] or part


def columns_of(descriptor: int) -> int | None:
    """Return the columns of a terminal, None for another file or if they are unknown."""
    try:
        return (_is_capable() and os.get_terminal_size(descriptor).columns) or None
    except OSError:
        return None


def _size(terminal: int) -> tuple[int, int]:
    """Return columns and lines of a terminal; the usual ones if they are unknown."""
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        return _USUAL_SIZE
    return size.columns or _USUAL_SIZE[0], size.lines or _USUAL_SIZE[1]


def _is_capable() -> bool:
    return os.environ.get("TERM") != "dumb"
