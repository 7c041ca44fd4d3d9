"""Build what is released, install it by name in empty environments, and use it there.

Needs Python 3.10 and 3.13, on PATH or as pyenv's, a package index and 5 GB of disk for temporary
files. The archives are in build/release afterwards. Nothing is uploaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from release_archives import archive_problems, contents, dependency_problems

from distlaunch import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parent.parent
DIST = ROOT / "build/release"
PROJECTS = {"distlaunch": ROOT, "distlaunch-trainer": ROOT / "trainer_skeleton/runtime"}
ENVIRONMENTS = {"3.10": "local", "3.13": "local,debug,tensorboard,tune"}  # with their extras
TWINE = ("twine>=7,<8", "readme-renderer[md]")


def main() -> None:
    """Run all steps."""
    pythons = {version: find_python(version) for version in ENVIRONMENTS}
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_archives()
        with serving_index() as index:
            for version, python in pythons.items():
                check_environment(version, python, index)
    print(f"ready to upload: {DIST}")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print a step and its seconds."""
    print(f"{name} … ", end="", flush=True)
    started = time.monotonic()
    yield
    print(f"ok ({time.monotonic() - started:.0f} s)")


def require(problems: Iterable[str]) -> None:
    """End the check if there are problems."""
    if lines := "\n  ".join(problems):
        sys.exit(f"FAILED\n  {lines}")


def find_python(version: str) -> str:
    """Return a Python of a version, on PATH or of pyenv. A shim may have none behind it."""
    code = f"import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    quiet = partial(subprocess.run, capture_output=True, text=True, check=False)
    prefix = quiet([shutil.which("pyenv") or "false", "prefix", version]).stdout.strip()
    for python in filter(shutil.which, (f"python{version}", f"{prefix}/bin/python")):
        if quiet([python, "-c", code]).returncode == 0:
            return python
    sys.exit(f"Python {version} with venv was found neither on PATH nor as one of pyenv's")


def run(*words: object, cwd: Path | None = None, expected: str = "", **variables: str) -> None:
    """Run a command, which has to print what is expected."""
    unset = ("PYTHONPATH", "VIRTUAL_ENV", "DISTLAUNCH_ENDPOINT")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    quiet = partial(subprocess.run, capture_output=True, text=True, check=False)
    done = quiet([str(word) for word in words], cwd=cwd, env=environment | variables)
    if done.returncode or expected not in done.stdout:
        wrong = f"ended with {done.returncode}" if done.returncode else f"printed no {expected!r}"
        require([f"{' '.join(done.args)} {wrong}:\n{done.stdout}{done.stderr}"])


def check_archives() -> None:
    """Build the sdists, and from them the wheels, and check both."""
    for name, folder in PROJECTS.items():
        with step(f"building {name}"):
            run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, folder)
    for path in sorted(DIST.iterdir()):
        with step(f"metadata and licence files of {path.name}"):
            require(archive_problems(path, __version__))
    with step("the trainer alone has the modules that distlaunch has"):
        both, alone = ({*contents(path)} for path in sorted(DIST.glob("*.whl")))
        trainer = {name for name in both if name.startswith("distlaunch_trainer/")}
        require(sorted(trainer ^ {name for name in alone if ".dist-info/" not in name}))
    with step("readmes on PyPI"):
        run(sys.executable, "-m", "venv", "twine")
        run("twine/bin/pip", "install", "--quiet", *TWINE)
        run("twine/bin/twine", "check", "--strict", *DIST.iterdir())


class Handler(SimpleHTTPRequestHandler):
    """Lists and serves the folder of an index, without a log."""

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving_index() -> Iterator[str]:
    """Serve the archives as a package index (PEP 503: a folder per package); give its URL."""
    for name in PROJECTS:
        Path("simple", name).mkdir(parents=True)
        for path in DIST.glob(f"{name.replace('-', '_')}-*"):
            shutil.copy(path, Path("simple", name))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


def check_environment(version: str, python: str, index: str) -> None:
    """Install distlaunch in an empty environment, and use it there outside the checkout."""
    folder = Path(version).absolute()
    here = folder / "env/bin"
    install = [here / "pip", "install", "--quiet", "--no-compile", "--extra-index-url", index]
    requirement = f"distlaunch[{ENVIRONMENTS[version]}]=={__version__}"
    with step(f"Python {version}: pip install {requirement}"):
        run(python, "-m", "venv", folder / "env")
        run(*install, requirement)
        run(here / "pip", "check")
    with step(f"Python {version}: licences of dependencies"):
        [packages] = folder.glob("env/lib/python*/site-packages")
        document = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
        require(dependency_problems(packages, document))
    with step(f"Python {version}: the trainer alone"):
        trainer = str(folder / "trainer")
        run(*install, "--no-deps", "--target", trainer, f"distlaunch-trainer=={__version__}")
        code = "import distlaunch_trainer.fit; print(distlaunch_trainer.fit.__file__)"
        run(here / "python", "-c", code, PYTHONPATH=trainer, expected=trainer)
    project = folder / "digits"
    distlaunch = partial(run, here / "distlaunch", cwd=project)
    with step(f"Python {version}: init, local --workers 2"):
        run(here / "distlaunch", "init", project)
        distlaunch("local", "--workers", 2, "--", "--epochs=2", expected="epoch 2/2: ")
    job = step(f"Python {version}: a job at the emulator: submit, status, logs, fetch")
    with job, emulator(here / "distlaunch", project) as url:
        at_emulator = partial(distlaunch, DISTLAUNCH_ENDPOINT=url)
        at_emulator("submit", "--image", "any/image:1", "--", "--epochs=1")
        at_emulator("status", expected="SUCCEEDED")
        at_emulator("logs", expected="strategy: multi-worker, 2 replicas on 2 tasks")
        at_emulator("fetch", "--output", folder / "fetched")
        require([] if list(folder.glob("fetched/**/model.keras")) else ["no model was fetched"])


@contextmanager
def emulator(launcher: Path, project: Path) -> Iterator[str]:
    """Run the emulator with jobs as processes; give its URL."""
    words = ["emulator", "--run-with=process", "--port=0", f"--storage={project.parent}/buckets"]
    popen = partial(subprocess.Popen[str], cwd=project, text=True, stderr=subprocess.DEVNULL)
    with popen([launcher, *words], stdout=subprocess.PIPE) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
