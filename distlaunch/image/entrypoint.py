"""What a container starts: the ENTRYPOINT, CMD and files of an image, as far as they are known."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distlaunch.image.dockerfile_parser import Dockerfile, Instruction, below, expand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.image.context import ContextFile

# Base images without ENTRYPOINT and WORKDIR.
_PLAIN = re.compile(
    r"(?:(?:docker|mirror\.gcr)\.io/)?(?:library/)?(python|debian|ubuntu"
    r"|tensorflow/tensorflow)([:@](?!.*jupyter).*)?"
)
# A command of RUN that makes no program; pip installs modules.
_INERT = re.compile(r"(python\S* -m )?(pip[\d.]*|apt-get|apt|rm|mkdir|chmod|chown|set)\s[^>`]*")
_UNPACKED = re.compile(r"<<|git@|.*://|.*\.(?:tar\b|t[bgx]z)")  # sources that become other files
_FLAGS = re.compile(r"(?:--(?:chmod|chown|link)\S*\s+)*")  # that keep the names of what is copied
_SHELL_COMMAND = re.compile(r"(?:\S*/)?(?:ba|da|z)?sh -[a-z]*c")


@dataclass
class ImageContents:
    """What is known of an image; None is not known."""

    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] = ()
    workdir: str | None = None
    files: dict[str, ContextFile] = field(default_factory=dict)  # of the project, by absolute paths
    has_others: bool = True  # there may be programs that are no files of the project
    commands: str = ""  # of RUN
    line: int = 0  # of ENTRYPOINT or CMD

    def argv(self, command: Sequence[str], args: Sequence[str]) -> tuple[str, ...] | None:
        """Return what a container with a command and args runs."""
        if command:
            return (*command, *args)
        return None if self.entrypoint is None else (*self.entrypoint, *(args or self.cmd))

    def path(self, path: str) -> str | None:
        """Return an absolute path."""
        known = path.startswith("/") or self.workdir
        return posixpath.normpath(posixpath.join(self.workdir or "/", path)) if known else None

    def copy(
        self, step: Instruction, variables: Mapping[str, str], files: Sequence[ContextFile]
    ) -> None:
        """Add what COPY or ADD copies."""
        *sources, target = (expand(word, variables) or "<<" for word in step.words or ("<<",))
        path = self.path(target)
        is_known = target != "<<" and not any(map(_UNPACKED.match, sources))
        if path is None or not is_known or not _FLAGS.fullmatch(step.flags):
            self.has_others = True
            return
        for source in sources:
            for file in files:
                rest = below(source, file.path)
                if rest is not None and not file.is_folder:
                    self.has_others |= file.target is not None  # a folder may be behind a symlink
                    copied = file._replace(mode=0o755) if "--chmod" in step.flags else file
                    for name in [rest] if rest else ["", posixpath.basename(file.path)]:
                        self.files[posixpath.join(path, name).rstrip("/")] = copied


def read_config(config: Mapping[str, Any]) -> ImageContents:
    """Return what is known of an image in a registry."""
    inner = config.get("config") or {}
    return ImageContents(tuple(inner.get("Entrypoint") or ()), tuple(inner.get("Cmd") or ()))


def read_contents(dockerfile: Dockerfile, files: Sequence[ContextFile]) -> ImageContents:
    """Return what is known of an image that is built from a Dockerfile and files."""
    contents = ImageContents()
    if plain := _PLAIN.fullmatch(dockerfile.base or ""):
        cmd = "python3" if plain[1] == "python" else "bash"
        contents = ImageContents((), (cmd,), "/", has_others=plain[1].startswith("tensorflow"))
    for stage in dockerfile.lineage:
        cmd_of_base = contents.cmd
        for each in stage.instructions:
            words = ("/bin/sh", "-c", each.rest) if each.array is None else each.array
            if each.word == "ENTRYPOINT":
                contents.entrypoint, contents.line = words, each.line
                contents.cmd = () if contents.cmd is cmd_of_base else contents.cmd
            elif each.word == "CMD":
                contents.cmd = words
                contents.line = contents.line if contents.entrypoint else each.line
            elif each.word == "WORKDIR":
                folder = expand(each.rest.strip("\"'"), dockerfile.variables)
                contents.workdir = folder and contents.path(folder)
            elif each.word == "RUN":
                contents.commands += each.text
                parts = re.split(r"&&|\|\||[;|]", " ".join(each.array or (each.arguments,)))
                contents.has_others |= not all(_INERT.fullmatch(f"{p.strip()} ") for p in parts)
            elif each.word in ("COPY", "ADD"):
                contents.copy(each, dockerfile.variables, files)
    return contents


def shell_script(argv: Sequence[str]) -> str | None:
    """Return the script that a shell runs as the value of its option -c."""
    return argv[2] if len(argv) > 2 and _SHELL_COMMAND.fullmatch(" ".join(argv[:2])) else None


def drops_args(argv: Sequence[str], count: int) -> bool:
    """Return whether a shell's script ignores some of the last `count` words."""
    script, first = shell_script(argv), len(argv) - count
    used = re.findall(r"\$\{?([@*#0-9])", script or "")
    is_name_lost = first == 3 and "0" not in used  # the first word after a script is its name
    return script is not None and count > 0 and first > 2 and (not used or is_name_lost)
