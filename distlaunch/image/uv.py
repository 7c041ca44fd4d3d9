"""uv resolves and installs requirements for an image's Python: wheels of package indexes alone.

What a line names by URL or path, and what it keeps from being a wheel, uv would build on this
machine, with the project's ``setup.py``. So uv reads no file of the project, but lines of names
and versions that are written here, without its own configuration.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.errors import Diagnostic, ImageError
from distlaunch.image.layers import scratch_folder
from distlaunch.image.pip_secrets import expand_variables, has_no_index, uv_settings
from distlaunch.image.requirements import parse_requirement
from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from distlaunch.image.requirements import RequirementLine

# Of these variables of this machine uv gets the values: folders, proxies and certificates.
_KEPT = re.compile(
    r"HOME|USERPROFILE|(LOCAL)?APPDATA|SYSTEMROOT|TE?MP(DIR)?|XDG_CACHE_HOME|NETRC|UV_(CACHE_DIR|OFFLINE)"
    r"|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)",
    re.IGNORECASE,
)
_INDEX_OPTION = re.compile(
    r"(?:-i|-f|--(?:extra-)?index-url|--find-links)[ =]*https?://\S+|--(?:pre|no-index)"
)
# These change neither what is installed nor from where.
_LEFT_OUT = re.compile(
    r"(?:-[rc]|--requirement|--constraint)[ =]*(?!\S+://)\S.*"
    r"|--(?:prefer-binary|only-binary|use-feature|require-hashes|trusted-host)\b.*"
)
# The systems that uv knows: https://docs.astral.sh/uv/reference/cli/#uv-pip-install
_GLIBCS = (17, 28, *range(31, 41))
_NO_SOLUTION = 1  # the exit code; others are failures to find out
# uv prints it as the hint of a package that only has sources.
_NEEDS_SOURCE = "building from source is disabled"
_KEPT_LINES = 200
_LONGEST = 600  # characters of a reason


@dataclass(frozen=True, slots=True)
class ImagePython:
    """The Python of an image: its version and the minor version of its glibc, None for musl."""

    python: str
    glibc: int | None

    @property
    def words(self) -> tuple[str, str]:
        """Return uv's options; ImageError is raised for a glibc that is too old."""
        system = "unknown-linux-musl"
        if self.glibc is not None:
            known = [each for each in _GLIBCS if each <= self.glibc]
            if not known:
                raise ImageError(f"glibc 2.{self.glibc} is older than wheels for Linux need")
            system = f"manylinux_2_{known[-1]}"
        return f"--python-version={self.python}", f"--python-platform=x86_64-{system}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """What an image gets from package indexes, or why that is not known.

    `is_refused` is whether the indexes have no such versions for the image's Python; with
    `needs_source`, they may have sources, which Docker and Cloud Build build.
    """

    count: int = 0  # of packages
    reason: str = ""
    is_refused: bool = False
    needs_source: bool = False

    def describe(self) -> str:
        """Return the result for the plan of a job."""
        if self.reason:
            return f"not resolved: {self.reason}"
        return f"{plural(self.count, 'package')}, resolved for the image's Python"


def refusals(lines: Iterable[RequirementLine]) -> list[Diagnostic]:
    """Return why lines are not installed without Docker and Cloud Build."""
    remedy = "name a version in an index (NAME==1.0), install Docker, or use Cloud Build"
    what = "is in no package index; without Docker only wheels of one are installed"
    outside = [each for each in lines if _rewrite(each) is None]
    return [Diagnostic(f"{each.shown} {what}", remedy, each.location) for each in outside]


def _rewrite(line: RequirementLine) -> str | None:
    """Return a line as uv gets it, empty if it needs none, and None for one of no index."""
    text = expand_variables(line.text)
    if text.startswith("-"):
        is_left_out = _LEFT_OUT.fullmatch(text) is not None
        return text if _INDEX_OPTION.fullmatch(text) else "" if is_left_out else None
    requirement = line.requirement if text == line.text else parse_requirement(text)
    if requirement is None or requirement.url or line.is_local:
        return None
    return " ".join((str(requirement), *(f"--hash={each}" for each in line.hashes)))


def resolve(lines: Iterable[RequirementLine], target: ImagePython, timeout: float) -> Resolution:
    """Resolve the lines of package indexes; others are left out."""
    with scratch_folder() as folder:
        words, env = _prepare("compile", lines, target, folder)
        env |= {"UV_HTTP_TIMEOUT": "8", "UV_HTTP_RETRIES": "0"}
        try:
            done = subprocess.run(
                [*words, "--quiet", "--no-header", "--no-annotate"],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=timeout,
                env=env,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return Resolution(reason="the package indexes have not answered in time")
    if done.returncode:
        is_refused = done.returncode == _NO_SOLUTION
        return Resolution(0, _reason(done.stderr), is_refused, _NEEDS_SOURCE in done.stderr)
    return Resolution(sum("==" in line for line in done.stdout.splitlines()))


def install(
    lines: Iterable[RequirementLine],
    installed: Mapping[str, str],
    target: ImagePython,
    prefix: Path,
    progress: Callable[[str], None],
) -> None:
    """Install lines of package indexes into the folder `prefix`, and keep installed versions.

    ImageError is raised with uv's reason.
    """
    from distlaunch.image.docker import run_command  # of weight, and `check` needs none of it

    with scratch_folder() as folder:
        words, env = _prepare("install", lines, target, folder, installed)
        printed: list[str] = []

        def show(line: str) -> None:
            printed.append(line)
            progress(f"uv: {line.strip()}")

        if run_command([*words, f"--prefix={prefix}"], show, env=env, cwd=folder):
            reason = _reason("\n".join(printed[-_KEPT_LINES:]))
            what = f"no wheels for Python {target.python} on linux/amd64: {reason}"
            raise ImageError(f"{what}; fix the requirements, or install Docker")


def _prepare(
    command: str,
    lines: Iterable[RequirementLine],
    target: ImagePython,
    folder: Path,
    installed: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Write the files of a command of ``uv pip``, and return its words and its variables."""
    from uv import find_uv_bin

    written = [(each, text) for each in lines if (text := _rewrite(each))]
    required = [text for each, text in written if not each.is_constraint]
    limits = [text for each, text in written if each.is_constraint]
    limits += [f"{name}=={version}" for name, version in sorted((installed or {}).items())]
    for name, texts in (("requirements.txt", required), ("constraints.txt", limits)):
        (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    words = [find_uv_bin(), "pip", command, "--no-config", "--no-build", "--no-progress"]
    words += ["--color=never", "--system-certs", "--no-python-downloads", *target.words]
    # As pip, which takes the best version of all indexes.
    words += [f"--python={sys.executable}", "--index-strategy=unsafe-best-match"]
    words += ["--constraints=constraints.txt"]
    words += ["--no-index"] if has_no_index() else []
    if command == "compile":
        words.append("requirements.txt")
    else:  # as pip, which takes one hash for the wish to verify all
        words += ["--require-hashes"] if any(each.hashes for each, _ in written) else []
        words.append("--requirements=requirements.txt")
    env = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    return words, env | uv_settings(folder, [each.text for each, _ in written])


def _reason(printed: str) -> str:
    """Return uv's error and its causes in one line."""
    lines = [line for line in printed.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.startswith("error:")), len(lines))
    causes = [line.strip() for line in lines[first:] if _NEEDS_SOURCE not in line]
    if len(causes) > 1 and causes[0].startswith("error: No solution"):
        del causes[0]
    text = " ".join(each.removeprefix("error: ").removeprefix("cause: ") for each in causes)
    text = text.replace(", we can conclude that your requirements are unsatisfiable", "")
    return text[:_LONGEST] or (lines[-1].strip() if lines else "no output")
