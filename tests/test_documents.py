"""Every command that a document shows is run.

Commands stand in fenced blocks: `console` ones behind a `$`, all of a document in one session in an
empty folder; `sh` ones set something up and are each held to a check of their own here.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import emulators  # what tests/conftest.py has imported
import engine as engines
import pytest

from distlaunch import scaffold
from distlaunch.job.json_schema import schema
from distlaunch.job.project_file import load

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

RUN = "console"  # the kind of block whose commands are typed
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


def console_commands(text: str) -> list[str]:
    lines = lines_in(text, RUN)
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


def benchmark(folder: Path, script: str, *words: str) -> None:
    """Run a benchmark for as short as it goes; whether its limit is held is no test's business."""
    command = [sys.executable, ROOT / "benchmarks" / script, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert re.search(r"ratio \d+\.\d\d, limit \d", done.stdout), done.stdout + done.stderr


def benchmark_with(folder: Path, program: str, script: str, *words: str) -> None:
    """Run a benchmark that compares with another program, where that is installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    benchmark(folder, script, *words)


def benchmark_with_engine(folder: Path, script: str, *words: str) -> None:
    """Run a benchmark that needs a container engine, where there is one."""
    try:
        with engines.running(install=engines.is_demanded()):
            benchmark(folder, script, "--rounds=0", *words)
    except engines.NoEngineError as problem:
        if engines.is_demanded():
            raise
        pytest.skip(f"no container engine here: {problem}")


def at_the_emulator(folder: Path, *words: str) -> None:
    """Run a command of ours in a project whose last job is running, with an emulator as Google."""
    (folder / "distlaunch.yaml").write_text(JOB_FILE)
    seconds = 60 if words[0] == "cancel" else 0
    (folder / "trainer.py").write_text(f"import time; time.sleep({seconds})\n")
    (folder / "config.yaml").write_text(CONFIG_FILE)
    with emulators.running(folder, project=folder) as emulator:
        for command in (["submit", "--detach"], words):
            done = subprocess.run(
                [sys.executable, "-m", "distlaunch", *command],
                cwd=folder,
                env=emulator.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        makes_one = words[0] in ("submit", "resubmit") and "--dry-run" not in words
        assert len(emulator.jobs()) == 1 + makes_one


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

SETUP = {
    **{
        f"distlaunch {' '.join(words)}": (at_the_emulator, *words)
        for words in (
            ("check",),
            ("submit",),
            ("submit", "--dry-run"),
            ("submit", "--config", "config.yaml", "--", "--epochs", "5"),
            ("logs", "--follow"),
            ("status",),
            ("list",),
            ("cancel",),
            ("resubmit",),
        )
    },
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
        f"python benchmarks/{name}.py": (benchmark, f"{name}.py", "--rounds=0")
        for name in (
            "check",
            "checkpoints",
            "help",
            "relay",
            "resume",
            "scaling",
            "start",
            "throughput",
        )
    },
    "python benchmarks/cloud_storage.py": (benchmark, "cloud_storage.py"),
    "python benchmarks/context.py": (
        benchmark,
        "context.py",
        "--rounds=0",
        "--files=1000",
        "--megabytes=25",
    ),
    "python benchmarks/commands.py": (benchmark_with, "gcloud", "commands.py", "--rounds=0"),
    "python benchmarks/tail.py": (benchmark, "tail.py", "--rounds=0", "--lines=20000"),
    "python benchmarks/image.py": (
        benchmark_with_engine,
        "image.py",
        "--requirements=six==1.16.0",
    ),
    "python benchmarks/submit.py": (benchmark_with_engine, "submit.py"),
    "python benchmarks/index.py": (benchmark, "index.py", "--rounds=0", "--records=200000"),
    ". .venv/bin/activate": (activate, ".venv/bin/activate"),
    "make demo": (make, "demo"),
    "make test": (make, "test"),
    "make check": (make, "check"),
    "make laws": (make, "laws"),
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
    assert setup_commands() <= SETUP.keys()


def test_every_block_says_what_it_is():
    for document in DOCUMENTS:
        kinds = {kind for kind, _ in blocks(document.read_text(encoding="utf-8"))}
        assert kinds <= {RUN, SET_UP, *NOT_COMMANDS}, document


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
        assert load(path).name == "digits"


def test_links_between_documents_lead_somewhere():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
