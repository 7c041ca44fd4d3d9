"""What a Dockerfile of the user's own makes of the project, where it says so plainly."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from distlaunch.checks.problem import warning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job

_COMMENT = re.compile(r"^\s*#.*(?:\n|$)", re.MULTILINE)
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_ARGUMENT = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_QUOTING = str.maketrans("[]\",'", "     ")
_COMMANDS = re.compile(r"&&|\|\||;|\|")
_INSTALLS = re.compile(r"\b(?:install|conda|mamba|uv|poetry|pipenv|easy_install|sh|bash)\b")
_OF_THE_SYSTEM = re.compile(r"(?:sudo )?apt(?:-get)?\s")
_OF_THE_GPU = re.compile(r"cuda|cudnn|nvidia", re.IGNORECASE)
_PIP = re.compile(r"(?:\S*python[\d.]* -m )?pip[\d.]*(?: -\S+)* install (.*)")
_PIP_ITSELF = ("pip", "setuptools", "wheel")
_WITH_A_VALUE = (
    *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host"),
    *("--timeout", "--retries", "--cache-dir", "--progress-bar"),
)
_FILE = re.compile(r"(?:-r|--requirement)(?:=| |(?=\S))(\S+)")
_CUDA = re.compile(r"cuda|cudnn|nvidia", re.IGNORECASE)
_WITHOUT_CUDA = re.compile(r"(?:docker\.io/)?(?:library/)?(?:python|debian|ubuntu)(?:[:@].*)?")
_TENSORFLOW = re.compile(
    r"\bpip[\d.]* install\b.*\s[\"']?(tensorflow(?:-cpu)?)(?=[\s\"'=<>!~;@]|$)"
)
_MADE_FOR = re.compile(r"\\1(tensorflow-cpu|tensorflow\[and-cuda\])\\3")  # image.requirements


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile of the user's own.

    Parameters
    ----------
    path
        In the project.
    text
        What stands in it.
    """

    path: str
    text: str

    @cached_property
    def bases(self) -> tuple[str | None, ...]:
        """The image that each stage begins with, None where it cannot be told."""
        named: dict[str, str | None] = {}
        arguments = dict(each.split("=", 1) for each in self._said("ARG") if "=" in each)
        found: list[str | None] = []
        for each in self._said("FROM"):
            if stage := _FROM.match(each):
                base = _ARGUMENT.sub(
                    lambda name: arguments.get(name[1] or name[2], name[0]).strip("\"'"), stage[1]
                )
                found.append(named.get(base.lower(), None if "$" in base else base))
                named[(stage[2] or "").lower()] = found[-1]
        return tuple(found)

    @property
    def base(self) -> str | None:
        """The image that its last stage begins with, None where it cannot be told."""
        return self.bases[-1] if self.bases else None

    @property
    def has_cuda(self) -> bool | None:
        """Whether it writes CUDA into the requirements, or takes it out; None for neither."""
        found = _MADE_FOR.search(self.text)
        return found[1] == "tensorflow[and-cuda]" if found else None

    @property
    def is_without_cuda(self) -> bool:
        """Whether nothing in it brings CUDA: its base is plain, and no line names CUDA."""
        is_plain = self.base is not None and _WITHOUT_CUDA.fullmatch(self.base)
        return bool(is_plain) and not _CUDA.search(self.text)

    @property
    def tensorflow(self) -> tuple[int, str] | None:
        """The line on which pip installs TensorFlow by name, and which; None without one."""
        first = 1
        for lines in re.split(r"(?<!\\)\n", self.text):
            found = _TENSORFLOW.search(_CONTINUED.sub(" ", lines))
            if found and not lines.lstrip().startswith("#"):
                return first, found[1]
            first += 1 + lines.count("\n")
        return None

    def requirements(self, folder: Path) -> str | None:
        """Return the project's file that it has pip install, and nothing else; None without one."""
        runs = [each.translate(_QUOTING) for each in self._said("RUN")]
        if "--from=" in self.text or "<<" in self.text:
            return None
        commands = [" ".join(each.split()) for run in runs for each in _COMMANDS.split(run)]
        named = {_installed(each) for each in commands if _INSTALLS.search(each)} - {""}
        said = named.pop() if len(named) == 1 else None
        return self._in_project(said, folder) if said else None

    def _in_project(self, said: str, folder: Path) -> str | None:
        """Return the project's file that has a path in the image."""
        name = posixpath.basename(said)
        words = [each.translate(_QUOTING).split() for each in self._said("COPY", "ADD")]
        sources = [posixpath.normpath(each) for copied in words for each in copied[:-1]]
        likely = [each for each in sources if posixpath.basename(each) == name]
        if "." in sources:
            likely += [posixpath.normpath(said), name]
        inside = (each for each in likely if not each.startswith(("/", "..")))
        return next((each for each in inside if (folder / each).is_file()), None)

    def _said(self, *instructions: str) -> Iterator[str]:
        """Yield what stands behind an instruction, wherever it does."""
        for line in _CONTINUED.sub(" ", _COMMENT.sub("", self.text)).splitlines():
            word, _, rest = line.strip().partition(" ")
            if word.upper() in instructions:
                yield rest.strip()


def unused(own: Dockerfile, job: Job) -> Iterator[Problem]:
    """Yield what the job file says of the image, and its Dockerfile does not do."""
    base, requirements = job.image.base, job.image.requirements
    if base and None not in own.bases and base not in own.bases:
        yield warning(
            "dockerfile-wins",
            "image.base",
            f"the image begins with {own.base}, as {own.path} says, and not with {base}",
            f"write FROM {base} in {own.path}, or take one of them out",
        )
    if requirements and posixpath.basename(requirements) not in own.text:
        yield warning(
            "dockerfile-wins",
            "image.requirements",
            f"{own.path} makes the image, and does not install {requirements}",
            f"write RUN pip install -r {requirements} in {own.path}, or take one of them out",
        )


def _installed(command: str) -> str | None:
    """Return the file that pip installs and nothing else; "" for nothing that matters."""
    if _OF_THE_SYSTEM.match(command) and not _OF_THE_GPU.search(command):
        return ""
    pip = _PIP.fullmatch(command)
    files = _FILE.findall(pip[1]) if pip else []
    others = _others(_FILE.sub("", pip[1])) if pip else []
    if len(files) == 1 and not others:
        return str(files[0])
    is_pip_itself = bool(others) and not files and set(others) <= set(_PIP_ITSELF)
    return "" if is_pip_itself else None


def _others(said: str) -> list[str]:
    """Return the words of pip's that are neither options of no consequence nor their values."""
    words = said.split()
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before not in _WITH_A_VALUE
        and (not word.startswith("-") or word.startswith(("-c", "--constraint", "-t", "--target")))
    ]
