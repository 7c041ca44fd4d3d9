"""Whether Docker can build the image's Dockerfile, and what program its containers start."""

from __future__ import annotations

import json
import os
import posixpath
import re
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.errors import did_you_mean
from distlaunch.image.dockerfile_parser import below, expand, variable_names
from distlaunch.image.entrypoint import drops_args, read_contents, shell_script
from distlaunch.image.pip_secrets import DOCKERFILE_SECRETS
from distlaunch.image.reference import PLATFORM
from distlaunch.job import vertex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.image.dockerfile_parser import Dockerfile, Instruction
    from distlaunch.image.entrypoint import ImageContents
    from distlaunch.image.plan import BuildInputs
    from distlaunch.job.model import Job

_MOUNT = re.compile(r"--mount=(\S*\btype=(secret|ssh)\b\S*)")
_SECRET_NAME = re.compile(r"\b(?:id=|(?:target|dst|destination)=[^,]*/)([^,/]+)")
_INTERPRETER = r"(?:\S*/)?(?:python[\d.]*|(?:ba|da|z)?sh)"
_PROMPT = re.compile(rf"(?:/bin/sh -c )?(?:{_INTERPRETER}|\[.*)?", re.DOTALL)  # or no JSON array
_INTERPRETED = re.compile(rf"{_INTERPRETER} ")
_STARTED = re.compile(
    rf"{_INTERPRETER}(?: -\w+)*? (?:-m (?P<module>[\w.]+)|(?P<file>[^\s-]\S*\.(?:py|sh)))(?: .*)?"
    r"|(?P<program>\S*/\S*)(?: .*)?",
    re.DOTALL,
)
_INSTALLED = {"pyproject.toml", "setup.py", "setup.cfg"}  # of a package that pip may install


def image_problems(job: Job, inputs: BuildInputs) -> Iterator[Problem]:
    """Yield why an image cannot be built, or would not run its program with the job's args."""
    dockerfile = inputs.dockerfile
    used = {stage.base.lower() for stage in dockerfile.stages}
    used |= {name.lower() for each in dockerfile.instructions for name in each.stage_names}
    for index, stage in enumerate(dockerfile.stages):
        where = f"{inputs.recipe.path}:{stage.start.line}"
        is_built = stage is dockerfile.stages[-1] or {stage.name or str(index), str(index)} & used
        if stage.name and not is_built and not job.image.target:
            what = f"the image is the last stage, which does not use the stage {stage.name}"
            remedy = f"set image.target: {stage.name}, or the last one's name"
            yield warning("stage-unused", where, what, remedy)
        yield from _unset_problems(dockerfile, where, stage.base)
        platform = re.search(r"--platform=([^\s$]+)", stage.start.flags)
        if platform and platform[1] != PLATFORM and stage in dockerfile.lineage:
            what = f"the image would be for {platform[1]}, and the machines are {PLATFORM}"
            yield error("image-architecture", where, what, "remove --platform")
        for each in stage.instructions:
            where = f"{inputs.recipe.path}:{each.line}"
            for source in each.sources:
                yield from _unset_problems(dockerfile, where, source)
                yield from _source_problems(inputs, where, source)
            yield from _flag_problems(dockerfile, index, each, where)
    if not dockerfile.stages:
        return
    contents = read_contents(dockerfile, inputs.files)
    where = f"{inputs.recipe.path}:{contents.line or dockerfile.stages[-1].start.line}"
    yield from program_problems(job, contents, where)
    # The files of a rendered program are checked elsewhere, and PYTHONPATH names other folders.
    is_unknown = inputs.environment or "PYTHONPATH" in {*job.env, *dockerfile.variables}
    for command, args in () if is_unknown else dict.fromkeys(_starts(job, None)):
        if started := _STARTED.fullmatch(_text(contents.argv(command, args) or ())):
            yield from _file_problems(contents, inputs, where, started, has_args=bool(args))


def _unset_problems(dockerfile: Dockerfile, where: str, word: str) -> Iterator[Problem]:
    """Yield the arguments of the build in a word that have no value."""
    for name in sorted(variable_names(word) & dockerfile.unset_arguments):
        what = f"ARG {name} has no value, which {word} needs"
        remedy = f"write image.build_args: {{{name}: VALUE}} in distlaunch.yaml, or a default"
        yield error("build-arg-missing", where, what, remedy)


def _source_problems(inputs: BuildInputs, where: str, source: str) -> Iterator[Problem]:
    """Yield that a source of COPY is not among the files of the build."""
    path = posixpath.normpath(expand(source, inputs.dockerfile.variables) or "*").lstrip("/")
    is_pattern = path == "." or re.match(r"<<|git@|.*:/|.*[*?\[]", path)
    if is_pattern or any(below(path, each.path) is not None for each in inputs.files):
        return
    beside = posixpath.join(posixpath.dirname(inputs.recipe.path), path)
    what, remedy = f"there is no {path} in the project's folder", "correct the path of COPY"
    if os.path.lexists(inputs.folder / path):
        what = f"COPY of {path}, which {inputs.recipe.ignore_path} excludes"
        remedy = f"include it there with the line !{path}"
    elif os.path.lexists(inputs.folder / beside):
        remedy = f"write {beside}, as paths are relative to the project's folder"
    yield error("copy-source-missing", where, what, remedy)


def _flag_problems(
    dockerfile: Dockerfile, index: int, instruction: Instruction, where: str
) -> Iterator[Problem]:
    """Yield the stages, secrets and keys of an instruction's flags that a build does not have."""
    stages = [stage.name or str(number) for number, stage in enumerate(dockerfile.stages)]
    known = {*stages[:index], *map(str, range(index))}
    for name in {each.lower() for each in instruction.stage_names} - known:
        hint = did_you_mean(name, stages).removeprefix("; ")
        if hint or name in stages or name.isdecimal():
            what = f"there is no stage {name} before this one"
            yield error("stage-missing", where, what, hint or f"move it before {where}")
    for mount, kind in _MOUNT.findall(instruction.flags):
        name = (_SECRET_NAME.findall(mount) or [""])[0]
        if kind == "ssh" or name not in DOCKERFILE_SECRETS:
            what = f"the build has no {kind} {name or 'agent'}".rstrip()
            remedy = f"mount a secret that it has: {' or '.join(DOCKERFILE_SECRETS)}"
            yield warning("build-secret-missing", where, what, remedy)


def program_problems(
    job: Job, contents: ImageContents, where: str, image: str | None = None
) -> Iterator[Problem]:
    """Yield why containers of an image, by default the built one, run no program or no args."""
    for command, args in dict.fromkeys(_starts(job, image)):
        argv, entrypoint = contents.argv(command, args), command or contents.entrypoint or ()
        cmd = "" if command or _PROMPT.fullmatch(" ".join(contents.cmd)) else _text(contents.cmd)
        has_prompt = argv and re.fullmatch(f"(?:{_INTERPRETER})?", " ".join(entrypoint))
        is_replaced = has_prompt or (_INTERPRETED.match(cmd) and not shell_script(entrypoint))
        program = f"{_text(entrypoint)} {cmd if is_replaced else ''}".strip()
        is_named = _INTERPRETED.match(program) or re.match(r"(?!-)\S*/", program)
        words = program.split() if is_named else ["python", "-m", job.module]
        remedy = f"write ENTRYPOINT {json.dumps(words)} in its Dockerfile"
        if args and is_replaced and re.match("-(?![muc]$)", args[0]):
            what = f"args replace CMD {cmd!r}" if cmd else "ENTRYPOINT names no program"
            what += f", so that the container would run {args[0]!r}"
            yield error("args-not-passed", where, what, remedy)
        elif argv and drops_args(argv, len(args)):
            kept = "each trial runs the defaults" if vertex.is_tuned(job) else "they are dropped"
            what = f"a shell runs ENTRYPOINT {shell_script(argv)!r}, which gets no args: {kept}"
            yield error("args-not-passed", where, what, remedy)
        elif argv is not None and _PROMPT.fullmatch(" ".join(argv)):
            what = f"the container would run {' '.join(argv)!r}, which ends without training"
            what = what if argv else "the image names no program"
            yield error("no-program", where, what, remedy)


def _starts(job: Job, image: str | None) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the commands and args of the pools that run an image."""
    names = job.tuning.parameters if job.tuning else ["PARAMETER"] * vertex.is_tuned(job)
    for pool in job.cluster.pools:
        program = pool.program if pool and pool.count else None
        uri = (program and program.image) or job.image.uri
        if pool and pool.count and uri == image and not (program and program.module):
            args = (*(program.args if program else job.args), *(f"--{name}=…" for name in names))
            yield program.command if program else (), args


def _file_problems(
    contents: ImageContents,
    inputs: BuildInputs,
    where: str,
    started: re.Match[str],
    *,
    has_args: bool,
) -> Iterator[Problem]:
    """Yield that what is started is not in the image, cannot be executed or ignores its args."""
    module = (started["module"] or "").replace(".", "/")
    names = [f"{module}.py", f"{module}/__main__.py"] if module else [started["file"]]
    paths = [path for name in names if (path := contents.path(name or started["program"]))]
    files = [contents.files[path] for path in paths if path in contents.files]
    project = [each.path for each in inputs.files]
    is_package = any(f"/{module.partition('/')[0]}/" in f"/{path}" for path in project)
    may_be_installed = bool(module) and not (is_package and _INSTALLED.isdisjoint(project))
    is_unknown = may_be_installed or contents.has_others or not paths
    if not files and not is_unknown and paths[0].endswith((".py", ".sh")):
        name = f"/{posixpath.basename(paths[0])}"
        same = [path for path in project if f"/{path}".endswith(name)]
        close = did_you_mean(paths[0].rpartition("/")[2], map(posixpath.basename, project))
        remedy = close.removeprefix("; ") or "copy it to there"
        if same:
            remedy = f"the project has {same[0]}: correct the path, or COPY it to there"
        yield error("program-missing", where, f"{paths[0]} is not in the image", remedy)
    if not files or files[0].target or not (started["program"] or paths[0].endswith(".sh")):
        return
    path, commands = files[0].path, contents.commands
    script = (inputs.folder / path).read_bytes()[:100_000]
    is_shell = paths[0].endswith(".sh") or re.match(rb"#!.*sh\b", script)
    if has_args and is_shell and not re.search(rb"\$[@*\d{]|\bgetopts\b|\bshift\b", script):
        what, remedy = "it does not use its args: they are dropped", 'end its program with "$@"'
        yield warning("args-not-passed", path, what, remedy)
    if script.partition(b"\n")[0].endswith(b"\r") and not re.search(
        r"dos2unix|\bsed\b|\btr\b", commands
    ):
        remedy = f"run 'dos2unix {path}', and write '{path} text eol=lf' in .gitattributes"
        what = "its lines end with CR LF, so that Linux cannot run it"
        yield error("program-not-executable", path, what, remedy)
    if started["program"] and not files[0].mode & 0o100 and "chmod" not in commands:
        remedy = f"run 'chmod +x {path}', or write COPY --chmod=755"
        yield error("program-not-executable", path, "the container cannot execute it", remedy)


def _text(argv: Sequence[str]) -> str:
    """Return a command in one line, that of a shell's script; empty if it has operators."""
    script = shell_script(argv)
    text = re.sub(r'^\s*exec | "?\$@"?$', "", script or "")
    return " ".join(argv) if script is None else text * (not re.search(r"[&|;<>()`$\n]", text))
