"""Build the GPU image of the digits starter, with Docker and without, and verify both.

    python tools/gpu_image.py

Needs what tests/engine.py needs, a package index, 45 GB of disk, and no GPU. Prints what each build
cost and what was verified in a container of its image, and ends with 1 if something is wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from distlaunch.image.reference import Reference
from distlaunch.image.registry.client import Registry, append_layers
from distlaunch.image.registry.manifests import ImageSettings

ROOT = Path(__file__).parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "tests/image")]
import base_image  # noqa: E402
import engine as engines  # noqa: E402
import registries  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

INSIDE = Path(__file__).with_name("gpu_image_inside.py")
POOL = "{machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}"
OF_BASE = "/own/lib"  # the base image's LD_LIBRARY_PATH
LINKS = "/usr/local/lib/nvidia-wheels/"
DRIVER = "/usr/local/nvidia/lib64/libcuda.so.1"
OTHER_DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


@dataclass
class Build:
    """An image, and what it took to build it; bytes and seconds."""

    image: str
    seconds: float
    launcher: int
    processes: int
    compressed: int
    uncompressed: int = 0


def main() -> None:
    """Build and verify both images."""
    with engines.running(install=True) as engine, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with registries.serving(folder / "registry") as host:
            base = base_with_variable(host)
            builds = {}
            for way, docker in (("with Docker", engine.socket), ("without", "unix:///nowhere")):
                project = folder / way / "digits"
                builds[way] = build(project, base, f"{host}/{way.split()[-1].lower()}", docker)
                builds[way].uncompressed = verify(engine, builds[way].image, folder)
                shutil.rmtree(folder / way)
                remove_images(engine, builds[way].image.partition("@")[0])
            remove_images(engine, base.rpartition(":")[0])
        print_costs(builds)


def base_with_variable(host: str) -> str:
    """Push the tests' base image with an LD_LIBRARY_PATH of its own, and return its name."""
    plain = base_image.push(base_image.layer(engines.CACHE), host)
    name = f"{host}/own:1"
    settings = ImageSettings(env={"LD_LIBRARY_PATH": OF_BASE})
    append_layers(Reference.parse(plain), Reference.parse(name), [], settings)
    return name


def build(project: Path, base: str, repository: str, docker: str) -> Build:
    """Run `distlaunch build` in a new project, and measure it."""
    launcher = [sys.executable, "-m", "distlaunch"]
    subprocess.run([*launcher, "init", "--starter=digits", project], check=True)
    (project.parent / "tmp").mkdir()
    settings = {
        "image.base": base,
        "image.repository": repository,
        "cluster.chief": POOL,
        "cluster.workers": POOL,
    }
    words = [f"--set={field}={value}" for field, value in settings.items()]
    environment = {
        "DOCKER_HOST": docker,
        "DOCKER_CONFIG": str(project.parent),
        "PIP_CACHE_DIR": str(project.parent / "pip"),
        "TMPDIR": str(project.parent / "tmp"),
    }
    started = time.monotonic()
    with subprocess.Popen(
        [*launcher, "build", *words],
        cwd=project,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        launcher_peak, processes_peak = memory_peaks(process)
        image = (process.stdout.read() if process.stdout else "").strip()
    assert process.returncode == 0, f"distlaunch build ended with {process.returncode}"
    seconds = time.monotonic() - started
    with Registry(Reference.parse(image)) as registry:
        layers = registry.image().manifest["layers"]
    compressed = sum(layer["size"] for layer in layers)
    return Build(image, seconds, launcher_peak, processes_peak, compressed)


def memory_peaks(process: subprocess.Popen[str]) -> tuple[int, int]:
    """Return the most memory of a process, and of it with its children, until it ends."""
    alone = together = 0
    while process.poll() is None:
        sizes = list(resident(process.pid))
        alone, together = max([alone, *sizes[:1]]), max(together, sum(sizes))
        time.sleep(0.2)
    return alone, together


def resident(pid: int) -> Iterator[int]:
    """Give the resident memory of a process and then of each of its descendants."""
    try:
        parent = psutil.Process(pid)
        for each in (parent, *parent.children(recursive=True)):
            yield each.memory_info().rss
    except psutil.NoSuchProcess:
        return


def verify(engine: engines.Engine, image: str, folder: Path) -> int:
    """Verify an image in a container, and return its size."""
    print(f"verifying {image}")
    assert engine.docker("pull", image).returncode == 0
    found = run_inside(engine, image, folder)
    print(json.dumps(found, indent=2))
    assert found["is built with CUDA"]
    assert found["LD_LIBRARY_PATH"].split(":")[-1] == OF_BASE
    for opened in (found["by name"], found["of cuDNN"], found["by TensorFlow"]):
        missing = [name for name, path in opened.items() if not (path or "").startswith(LINKS)]
        assert not missing, f"not opened: {missing}"
    assert found["all that a GPU requires"]
    assert found["driver"] == DRIVER
    verify_trainer(engine, image, folder)
    print("the same without LD_LIBRARY_PATH:")
    print(json.dumps(run_inside(engine, image, folder, "--env=LD_LIBRARY_PATH="), indent=2))
    return int(engine.docker("inspect", "--format", "{{.Size}}", image).stdout)


def run_inside(engine: engines.Engine, image: str, folder: Path, *options: str) -> dict[str, Any]:
    """Run the checks in a container that has two drivers, each a small shared library."""
    driver = folder / "libcuda.so.1"
    shutil.copy(next(Path("/").glob("lib/*-linux-gnu/libdl.so.2")), driver)
    mounts = [f"--volume={driver}:{path}:ro" for path in (DRIVER, OTHER_DRIVER)]
    words = ["run", "--rm", "--interactive", "--network=none", "--entrypoint=python", *mounts]
    with INSIDE.open() as program:
        done = engine.docker(*words, *options, image, "-", stdin=program)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def verify_trainer(engine: engines.Engine, image: str, folder: Path) -> None:
    """Verify that the trainer stops if it expects a GPU, and that it opens all CUDA libraries."""
    driver = f"--volume={folder / 'libcuda.so.1'}:{DRIVER}:ro"
    no_driver = ("no device file /dev/nvidia0", "driver library libcuda.so.1 not found")
    for options, reasons in (((), no_driver), ((driver,), ("the driver does not start",))):
        words = ["--rm", "--network=none", "--env=DISTLAUNCH_EXPECTED_GPUS=1", *options]
        done = engine.docker("run", *words, image)
        error = done.stderr.splitlines()[-1]
        print(f"{done.stdout}{error}")
        assert done.returncode == 1
        assert " · CUDA 12." in done.stdout
        assert all(reason in error for reason in reasons)
        assert "cannot open" not in error


def remove_images(engine: engines.Engine, repository: str) -> None:
    """Remove the images of a repository from the engine, which may serve others for long."""
    images = engine.docker("images", "--quiet", repository).stdout.split()
    engine.docker("rmi", "--force", *dict.fromkeys(images))


def print_costs(builds: dict[str, Build]) -> None:
    """Print a table."""
    print(
        "| | seconds | GB compressed | GB uncompressed | launcher's MB | with its children |\n"
        "| --- | --- | --- | --- | --- | --- |"
    )
    for way, each in builds.items():
        print(
            f"| {way} | {each.seconds:.0f} | {each.compressed / 1e9:.2f} "
            f"| {each.uncompressed / 1e9:.2f} | {each.launcher / 1e6:.0f} "
            f"| {each.processes / 1e6:.0f} |"
        )


if __name__ == "__main__":
    main()
