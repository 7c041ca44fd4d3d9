"""Every command that a document shows is run.

Commands are in fenced blocks. `console` blocks hold commands after a `$`; those of a document are
one session in an empty folder. A session of `console long` blocks runs in `make docs-test` only.
`sh` blocks set something up; each command of theirs has a check of its own here.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from distlaunch import scaffold
from distlaunch.job.json_schema import schema
from distlaunch.job.load import load_job_file

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

RUN = "console"
LONG = "console long"
SET_UP = "sh"
NOT_COMMANDS = {"dockerfile", "json", "python", "text", "yaml"}


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Return the fenced blocks of a document, each with what it says it is."""
    found: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.strip().startswith("```"):
            if not inside:
                found.append((line.strip().removeprefix("```"), []))
            inside = not inside
        elif inside:
            found[-1][1].append(line.strip())
    return found


def lines_in(text: str, wanted: str) -> list[str]:
    return [line for kind, lines in blocks(text) if kind == wanted for line in lines]


def console_commands(text: str, kind: str = RUN) -> list[str]:
    lines = lines_in(text, kind)
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def setup_commands() -> set[str]:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    lines = [line.partition("  #")[0].strip() for text in texts for line in lines_in(text, SET_UP)]
    return set(filter(None, lines))


def in_session(commands: list[str], folder: Path) -> None:
    """Run commands as someone would who types them, one after the other."""
    here = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    port = str(free_port())  # several may do so on this machine
    typed = "\n".join(commands).replace("emulator ", f"emulator --port={port} ")
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-x", "-c", typed.replace("8085", port)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def pip_install(folder: Path, extra: str) -> None:
    """See that there is such an extra; what it needs is installed by `make demo` in CI."""
    words = ["-m", "pip", "install", "--dry-run", "--no-deps", f"{ROOT}{extra}"]
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    assert "Would install distlaunch" in done.stdout
    assert "does not provide the extra" not in done.stderr


def activate(folder: Path, script: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=folder, check=True)
    shown = subprocess.run(
        ["bash", "-ec", f". {script}; command -v python"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(shown.stdout.strip()) == folder / ".venv/bin/python"


def make(folder: Path, target: str) -> None:
    """See that there is such a target; `.ci/run` makes it in earnest."""
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def completion(folder: Path, shell: str) -> None:
    environment = os.environ | {"_DISTLAUNCH_COMPLETE": f"{shell}_source"}
    words = [sys.executable, "-m", "distlaunch"]
    shown = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    (folder / "completion").write_text(shown.stdout)
    assert f"{shell}_complete" in shown.stdout


def benchmark(folder: Path, script: str) -> None:
    """See that there is such a benchmark; `make bench` runs it."""
    assert (ROOT / "benchmarks" / script).is_file()


def gcloud_knows(folder: Path, *words: str) -> None:
    """See that there is such a command, with such options; Google itself cannot be asked here."""
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")
    command = ["gcloud", *(word for word in words if not word.startswith("--")), "--help"]
    environment = os.environ | {"CLOUDSDK_CONFIG": str(folder), "PAGER": "cat"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        assert option in done.stdout


JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
image: {uri: "localhost:5000/nobody/asks:1"}
cluster: {chief: {machine: n1-standard-4}}
"""
CONFIG_FILE = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: standard
  masterConfig: {imageUri: "localhost:5000/nobody/asks:2"}
"""

# Run one after the other at one emulator, after a job that is still running was submitted.
AT_THE_EMULATOR = (
    "check",
    "status",
    "list",
    "submit --dry-run",
    "cancel",
    "logs --follow",
    "submit",
    "submit --config config.yaml -- --epochs 5",
    "resubmit",
)

SETUP = {
    **{
        f"gcloud {line}": (gcloud_knows, *line.split())
        for line in (
            "auth application-default login",
            "auth login",
            "config set project my-project",
            "services enable aiplatform.googleapis.com artifactregistry.googleapis.com "
            "logging.googleapis.com",
            "storage buckets create gs://my-bucket --location=us-central1",
            "artifacts repositories create training --repository-format=docker "
            "--location=us-central1",
        )
    },
    **{
        f"python benchmarks/{path.name}": (benchmark, path.name)
        for path in (ROOT / "benchmarks").glob("*.py")
    },
    ". .venv/bin/activate": (activate, ".venv/bin/activate"),
    "make demo": (make, "demo"),
    "make test": (make, "test"),
    "make check": (make, "check"),
    "make laws": (make, "laws"),
    "make bench": (make, "bench"),
    "make docs-test": (make, "docs-test"),
    "make gpu-image": (make, "gpu-image"),
    "pip install .": (pip_install, ""),
    "pip install '.[local]'": (pip_install, "[local]"),
    "pip install '.[local-gpu]'": (pip_install, "[local-gpu]"),
    'eval "$(_DISTLAUNCH_COMPLETE=bash_source distlaunch)"': (completion, "bash"),
    'eval "$(_DISTLAUNCH_COMPLETE=zsh_source distlaunch)"': (completion, "zsh"),
    "_DISTLAUNCH_COMPLETE=fish_source distlaunch | source": (completion, "fish"),
}


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_a_document_run(document, tmp_path):
    commands = console_commands(document.read_text(encoding="utf-8"))
    in_session(commands, tmp_path)


@pytest.mark.docs
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_long_sessions_of_a_document_run(document, tmp_path):
    commands = console_commands(document.read_text(encoding="utf-8"), LONG)
    in_session(commands, tmp_path)


@pytest.mark.slow
def test_commands_for_the_cloud_run_at_the_emulator(tmp_path, emulator):
    (tmp_path / "distlaunch.yaml").write_text(JOB_FILE)
    (tmp_path / "config.yaml").write_text(CONFIG_FILE)
    program = tmp_path / "trainer.py"
    program.write_text("import time; time.sleep(600)\n")
    here = emulator(project=tmp_path)
    for command in ("submit --detach", *AT_THE_EMULATOR):
        done = subprocess.run(
            [sys.executable, "-m", "distlaunch", *command.split()],
            cwd=tmp_path,
            env=here.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        code = 3 if command == "logs --follow" else 0  # of a job that was cancelled
        assert done.returncode == code, (command, done.stderr)
        if command == "cancel":
            program.write_text("print('trained')\n")
    assert len(here.jobs()) == 4


@pytest.mark.slow
def test_commands_of_a_projects_readme_run(tmp_path):
    project = scaffold.plan(tmp_path, "digits")
    project.write(tmp_path)
    commands = console_commands((tmp_path / "README.md").read_text(encoding="utf-8"))
    assert "python -m pytest tests" in commands
    in_session(commands, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(SETUP))
def test_a_command_that_sets_up_does_so(command, tmp_path):
    check, *arguments = SETUP[command]
    check(tmp_path, *arguments)


def test_every_command_that_sets_up_is_known():
    assert setup_commands() <= SETUP.keys() | {f"distlaunch {line}" for line in AT_THE_EMULATOR}


def test_every_block_says_what_it_is():
    for document in DOCUMENTS:
        kinds = {kind for kind, _ in blocks(document.read_text(encoding="utf-8"))}
        assert kinds <= {RUN, LONG, SET_UP, *NOT_COMMANDS}, document


def test_the_job_file_s_document_tells_of_every_key_and_is_read(tmp_path):
    text = (ROOT / "docs/job-file.md").read_text(encoding="utf-8")
    made = schema()
    keys = {
        key for section in (made, *made["$defs"].values()) for key in section.get("properties", {})
    }
    assert not {key for key in keys if not re.search(rf"\b{key}:", text)}
    for example in text.split("```yaml\n")[1:]:
        path = tmp_path / "distlaunch.yaml"
        path.write_text(example.partition("```")[0], encoding="utf-8")
        assert load_job_file(path).name == "digits"


def test_links_between_documents_lead_somewhere():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
