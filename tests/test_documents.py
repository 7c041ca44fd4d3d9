"""Every command that a document shows is run.

Commands are in fenced blocks. `console` blocks hold commands after a `$`; those of a document are
one session in an empty folder. A `python` block between them that begins with the comment
`# PATH.py` is written to that file. Its `distlaunch local` is a fork of a process that has imported
TensorFlow; all else are processes of their own. `console long` blocks run in `make docs-test`
only, where the session has both kinds; those of `console slurm` on a Slurm cluster. The losses and
metrics of a `text` block after a console block are compared with what the commands print; those of
a `text varies` block differ from run to run. Each command of an `sh` block has a check in `CHECKS`
or is run at the emulator.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import socketserver
import subprocess
import sys
import textwrap
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distlaunch import scaffold
from distlaunch.job.json_schema import schema
from distlaunch.job.load import load_job_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

RUN = "console"
LONG = "console long"
ON_SLURM = "console slurm"
SET_UP = "sh"
NOT_COMMANDS = {"dockerfile", "json", "python", "text", "text varies", "yaml"}


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Return the fenced blocks of a document, each with its kind."""
    fenced: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.strip().startswith("```"):
            if not inside:
                fenced.append((line.strip().removeprefix("```"), []))
            inside = not inside
        elif inside:
            fenced[-1][1].append(line)
    return [(kind, textwrap.dedent("\n".join(lines)).splitlines()) for kind, lines in fenced]


def joined(lines: list[str]) -> list[str]:
    """Join lines that end with a backslash with the next ones."""
    return re.sub(r"\\\n *", "", "\n".join(lines)).splitlines()


def lines_in(text: str, kind: str) -> list[str]:
    return [line for other, lines in blocks(text) if other == kind for line in joined(lines)]


def console_commands(text: str, *kinds: str) -> list[str]:
    """Return the commands of a session; files that are shown between them are written."""
    commands = []
    for other, lines in blocks(text):
        file = re.fullmatch(r"# (\S+\.py)", lines[0]) if other == "python" else None
        if other in kinds:
            commands += [line[2:] for line in joined(lines) if line.startswith("$ ")]
        elif file and commands:
            commands.append("\n".join([f"cat > {file[1]} <<'END'", *lines, "END"]))
    return commands


def setup_commands() -> set[str]:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    lines = [line.partition("  #")[0].strip() for text in texts for line in lines_in(text, SET_UP)]
    return set(filter(None, lines))


# Hands `distlaunch local` to the test, which runs it in a process that has imported TensorFlow.
CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    request = {"words": sys.argv[2:], "cwd": os.getcwd(), "env": dict(os.environ)}
    server.sendall(json.dumps(request).encode() + b"\\n")
    result = json.loads(server.makefile().read())
print(result["out"], end="")
print(result["err"], end="", file=sys.stderr)
sys.exit(result["code"])
"""


@pytest.fixture
def run_session(tensorflow, tmp_path_factory) -> Iterator[Callable[[list[str], Path], str]]:
    """Run commands one after the other in a shell."""
    folder = tmp_path_factory.mktemp("session")
    (folder / "client.py").write_text(CLIENT)
    distlaunch, scripts = folder / "bin/distlaunch", Path(sys.executable).parent
    distlaunch.parent.mkdir()
    client = f"{sys.executable} -IS {folder}/client.py {folder}/socket"
    distlaunch.write_text(
        f'#!/bin/sh\n[ "$1" = local ] && exec {client} "$@"\nexec {scripts}/distlaunch "$@"\n'
    )
    distlaunch.chmod(0o755)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = json.loads(self.rfile.readline())
            cwd = Path(request["cwd"])
            done = tensorflow.run("distlaunch", *request["words"], cwd=cwd, env=request["env"])
            self.wfile.write(json.dumps(asdict(done)).encode())

    path = os.pathsep.join([str(distlaunch.parent), str(scripts), os.environ["PATH"]])
    with socketserver.UnixStreamServer(f"{folder}/socket", Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield partial(_run_session, os.environ | {"PATH": path})
        server.shutdown()


def _run_session(environment: dict[str, str], commands: list[str], folder: Path) -> str:
    """Return what the commands print."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])  # emulators of other tests may run on this machine
    script = "\n".join(commands).replace("emulator ", f"emulator --port={port} ")
    script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + script
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-x", "-c", script.replace("8085", port)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def results(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the results that lines have, by what is before the first and by their names."""
    found = {}
    for line in lines:
        before, *parts = re.split(r"((?:val_)?(?:loss|accuracy)|learning_rate) (?=[0-9])", line)
        if parts and "{" not in line:
            numbers = [float(part.partition(" ")[0].rstrip(",")) for part in parts[1::2]]
            found[before.strip()] = dict(zip(parts[::2], numbers, strict=True))
    return found


def check_results(text: str, printed: str, *kinds: str) -> None:
    """Compare the results in and after console blocks with those that the commands print."""
    actual, before = results(printed.splitlines()), ""
    for other, lines in blocks(text):
        is_output = other in kinds or (other == "text" and before in kinds)
        documented = results(lines) if is_output else {}
        common = documented.keys() & actual.keys()
        assert bool(common) == bool(documented), (documented, printed)
        for line in common:  # which ones of some tasks there are depends on the machine's speed
            expected = pytest.approx(documented[line], rel=0.02, abs=0.005)
            assert actual[line] == expected, (line, printed)
        before = other


def pip_install(folder: Path, *words: str) -> None:
    """Check that the extra exists; `make demo` installs one in CI."""
    extra = words[-1].removeprefix(".").strip("[]")
    assert not extra or f"\n{extra} = [\n" in (ROOT / "pyproject.toml").read_text()


def activate(folder: Path, _: str, script: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=folder, check=True)
    command = ["bash", "-ec", f". {script}; command -v python"]
    assert subprocess.check_output(command, cwd=folder, text=True) == f"{folder}/.venv/bin/python\n"


def make_environment(folder: Path, _: str, *words: str) -> None:
    subprocess.run([sys.executable, *words, "--without-pip"], cwd=folder, check=True)
    assert (folder / ".venv/bin/activate").is_file()


def make(folder: Path, _: str, target: str) -> None:
    """Check that the target exists; `.ci/run` makes it."""
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def completion(folder: Path, *words: str) -> None:
    shell = re.findall("bash|zsh|fish", " ".join(words))[0]
    environment = os.environ | {"_DISTLAUNCH_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-m", "distlaunch"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert f"{shell}_complete" in done.stdout


def benchmark(folder: Path, _: str, script: str) -> None:
    """Check that the benchmark exists; `make bench` runs it."""
    assert (ROOT / script).is_file()


def gcloud_has(folder: Path, *words: str) -> None:
    """Check that the command has the options; Google is not called."""
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")
    command = [*(word for word in words if not word.startswith("--")), "--help"]
    environment = os.environ | {"CLOUDSDK_CONFIG": str(folder), "PAGER": "cat"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        assert option in done.stdout


def distlaunch_has(folder: Path, _: str, name: str, *words: str) -> None:
    """Check that the command has the options; tests/cli runs it."""
    command = [sys.executable, "-m", "distlaunch", name, "--help"]
    shown = subprocess.check_output(command, cwd=folder, text=True)
    assert all(word in shown for word in words if word.startswith("--"))


CHECKS = {
    ".": activate,
    "distlaunch": distlaunch_has,
    "gcloud": gcloud_has,
    "make": make,
    "pip": pip_install,
    "python": benchmark,
    "python3": make_environment,
    "eval": completion,
    "_DISTLAUNCH_COMPLETE=fish_source": completion,
}
"""Checks of set-up commands by their first word."""

JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
image: {uri: "localhost:5000/unused/image:1"}
cluster: {chief: {machine: n1-standard-4}}
scheduling: {timeout: 2h}
"""
CONFIG_FILE = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: standard
  masterConfig: {imageUri: "localhost:5000/unused/image:2"}
"""

# Run in this order at one emulator, after the submit of a job that keeps running.
AT_THE_EMULATOR = (
    "check",
    "status",
    "list",
    "submit --dry-run",
    "submit --dry-run --max-cost 20",
    "submit --detach --max-cost 20",
    "status --json",
    "logs --tail 50",
    "cancel",
    "logs --follow",
    "submit",
    "submit --config config.yaml -- --epochs 5",
    "resubmit",
)

SETUP = setup_commands() - {f"distlaunch {line}" for line in AT_THE_EMULATOR}


def test_documented_results_are_compared():
    text = (
        "```console\n$ a\nb: loss 1.50 accuracy 0.5\n```\nIt prints:\n```text\nc: val_loss 2\n```\n"
    )
    check_results(
        text, "b: loss 1.51 accuracy 0.501 (9 examples/s)\nc: val_loss 2\nd: loss 9\n", RUN
    )
    for printed in ("b: loss 1.7 accuracy 0.5\nc: val_loss 2\n", "b: loss 1.5 accuracy 0.5\n"):
        with pytest.raises(AssertionError):
            check_results(text, printed, RUN)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_a_document_run(document, run_session, tmp_path):
    text = document.read_text(encoding="utf-8")
    check_results(text, run_session(console_commands(text, RUN), tmp_path), RUN)


@pytest.mark.docs
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_long_sessions_of_a_document_run(document, run_session, tmp_path):
    text = document.read_text(encoding="utf-8")
    kinds = (RUN, LONG) if lines_in(text, LONG) else ()
    check_results(text, run_session(console_commands(text, *kinds), tmp_path), *kinds)


@pytest.mark.slow
def test_commands_of_the_slurm_page_run(slurm, tmp_path):
    text = (ROOT / "docs/start/slurm.md").read_text(encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **slurm.environment, "HOME": str(tmp_path), "PATH": path}
    printed = _run_session(environment, console_commands(text, ON_SLURM), tmp_path)
    check_results(text, printed, ON_SLURM)


@pytest.mark.slow
def test_commands_for_the_cloud_run_at_the_emulator(cli, tmp_path, emulator):
    (tmp_path / "distlaunch.yaml").write_text(JOB_FILE)
    (tmp_path / "config.yaml").write_text(CONFIG_FILE)
    program = tmp_path / "trainer.py"
    program.write_text("import time; time.sleep(600)\n")
    server = emulator(project=tmp_path)
    for command in ("submit --detach", *AT_THE_EMULATOR):
        done = cli(*command.split(), env=server.environment)
        code = 3 if command == "logs --follow" else 0  # the job was cancelled
        assert done.returncode == code, (command, done.stderr)
        if command == "cancel":
            program.write_text("print('trained')\n")
    assert len(server.jobs()) == 5


@pytest.mark.slow
def test_commands_of_a_project_readme_run(run_session, tmp_path):
    """Those that the README and the page on the first cluster do not run."""
    scaffold.plan(tmp_path, "digits").write(tmp_path)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    pages = (ROOT / "README.md", ROOT / "docs/start/first-cluster.md")
    texts = [page.read_text(encoding="utf-8") for page in pages]
    elsewhere = [command for text in texts for command in console_commands(text, RUN, LONG)]
    commands = [command for command in console_commands(readme, RUN) if command not in elsewhere]
    assert commands == ["distlaunch local", "python -m pytest tests"]
    run_session(commands, tmp_path)
    [summary] = (tmp_path / ".distlaunch/local").glob("*/summary.json")  # of its 8 epochs
    epochs = json.loads(summary.read_text())["epochs"]
    assert (len(epochs), epochs[-1]["logs"]["val_accuracy"] >= 0.94) == (8, True)
    assert "`val_accuracy` of about 0.96 (0.94 or more)" in readme
    (use,) = [lines for kind, lines in blocks(readme) if kind == "python"]
    program = "\n".join(use).replace("DATE-TIME", summary.parent.name)
    (tmp_path / "use_model.py").write_text(program, encoding="utf-8")
    run_session(["distlaunch local --workers 1 --set module=use_model --set args=[]"], tmp_path)


@pytest.mark.parametrize("starter", ["digits", "own-script"])
def test_cloud_commands_of_a_project_readme_are_those_of_the_documents(starter, tmp_path):
    readme = scaffold.plan(tmp_path / "digits", starter).files[Path("README.md")].decode()
    lines = {line.partition("  #")[0].strip() for line in lines_in(readme, SET_UP)}
    here = {line for line in lines if line.startswith("distlaunch ")}
    assert lines - here - {""} <= SETUP  # which are checked below
    tried = {f"distlaunch {command}" for command in AT_THE_EMULATOR}
    job_dir = "distlaunch submit --job-dir gs://my-bucket/digits/JOB_ID"
    setup = "distlaunch setup --project my-project"
    assert here - tried == {"distlaunch fetch", setup, job_dir}  # see tests/cli


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(SETUP))
def test_setup_command_works(command, tmp_path):
    words = shlex.split(command)
    CHECKS[words[0]](tmp_path, *words)


def site_pages() -> set[Path]:
    """Return the pages in the site's navigation; `make docs` fails where one does not exist."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return {ROOT / "docs" / path for path in re.findall(r": (\S+\.md)$", text, re.MULTILINE)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_kinds_of_blocks_links_and_targets_of_make_are_known(document):
    text = document.read_text(encoding="utf-8")
    assert {kind for kind, _ in blocks(text)} <= {RUN, LONG, ON_SLURM, SET_UP, *NOT_COMMANDS}
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    paths = {(document.parent / target).resolve() for target in links}
    assert {path for path in paths if not path.exists()} <= site_pages()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= set(targets)


def test_job_file_document_has_every_key_and_valid_examples(tmp_path):
    text = (ROOT / "docs/look-up/job-file.md").read_text(encoding="utf-8")
    json_schema = schema()
    sections = (json_schema, *json_schema["$defs"].values())
    keys = {key for section in sections for key in section.get("properties", {})}
    assert not {key for key in keys if not re.search(rf"\b{key}:", text)}
    for example in text.split("```yaml\n")[1:]:
        path = tmp_path / "distlaunch.yaml"
        path.write_text(example.partition("```")[0], encoding="utf-8")
        assert load_job_file(path).name == "digits"


def test_performance_document_has_every_benchmark():
    text = (ROOT / "docs/understand/performance.md").read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")} - {"common.py"}
    assert set(re.findall(r"`(?:benchmarks/)?([a-z_]+\.py)`", text)) == scripts
