"""The image of a GPU cluster finds CUDA's libraries, however it was built."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import base_image
import projects  # what tests/image/conftest.py has imported
import pytest
import wheel_index

from distlaunch.image import execute_plan, plan_image
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.render.templates import dockerfile, dockerignore, recipe

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from distlaunch.job.model import Job

pytestmark = pytest.mark.slow

LIBRARY = "nvidia/foo/lib/libfoo.so.1"
PROGRAM = """\
import ctypes, os
ctypes.CDLL("libfoo.so.1")
print(os.readlink("/usr/local/lib/nvidia-wheels/libfoo.so.1"))
"""
OF_BASE = [f"PATH={base_image.PATH}", "LANG=C.UTF-8", "PYTHON_VERSION=3.11.2"]
OF_OWN_BASE = [
    f"PATH=/opt/python/bin:{base_image.PATH}",
    "LANG=C.UTF-8",
    "PYTHON_VERSION=3.11.2",
    "LD_LIBRARY_PATH=/own/lib",
    "NVIDIA_VISIBLE_DEVICES=0",
    "NVIDIA_DRIVER_CAPABILITIES=video",
]
OF_ALL = ["PYTHONUNBUFFERED=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_ROOT_USER_ACTION=ignore"]
FOLDERS = "/usr/local/lib/nvidia-wheels:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"


@pytest.fixture(scope="module")
def requirements(engine, tmp_path_factory) -> Iterator[str]:
    """Requirements of a package with a shared library, which containers can reach too."""
    folder = tmp_path_factory.mktemp("wheels")
    # A library that the loader takes: every Linux with glibc has this small one.
    library = next(Path("/").glob("lib/*-linux-gnu/libdl.so.2")).read_bytes()
    wheel_index.write_wheel(folder, "foo", files={LIBRARY: library})
    with wheel_index.serving(folder, engine) as (host, port):
        yield f"--no-index\n--find-links http://{host}:{port}/\n--trusted-host {host}\nfoo==1\n"


@pytest.fixture(scope="module")
def bases(engine, tmp_path_factory) -> Iterator[tuple[str, str]]:
    """The tests' base image, and one with more variables and its Python in another folder."""
    name = f"{engine.repository('own')}:1"
    folder = tmp_path_factory.mktemp("own")
    (folder / "Dockerfile").write_text(
        f"FROM {engine.base}\nRUN mv /usr/local /opt/python && mkdir -p /usr/local/lib\n"
        f"ENV {' '.join(OF_OWN_BASE)}\n"
    )
    assert engine.docker("build", "--tag", name, str(folder)).returncode == 0
    assert engine.docker("push", name).returncode == 0
    yield engine.base, name
    engine.docker("rmi", name)


def built(engine, job: Job, folder: Path, way: str) -> str:
    """Build an image in one of the ways, and return its name in the engine."""
    if way == "by hand":
        (folder / "Dockerfile").write_text(dockerfile(job, folder))
        (folder / ".dockerignore").write_text(dockerignore(job, folder))
        environment = os.environ | {"DOCKER_BUILDKIT": "1"}
        return succeeded(engine.docker("build", "--quiet", str(folder), env=environment))
    image = execute_plan(plan_image(job, folder, recipe), lambda _: None)
    assert image.strategy == way
    succeeded(engine.docker("pull", image.uri))
    return image.uri


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass(frozen=True)
class Case:
    cluster: Cluster
    has_own_base: bool
    variables: list[str]
    python: str | None


ON_CPUS = Case(Cluster(Pool(Machine("n1-standard-8"))), True, OF_OWN_BASE + OF_ALL, None)
ON_T4 = Case(
    Cluster(Pool(Machine("n1-standard-8")), Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1))),
    False,
    [
        f"PATH=/usr/local/nvidia/bin:{base_image.PATH}",
        *OF_BASE[1:],
        *OF_ALL,
        f"LD_LIBRARY_PATH={FOLDERS}",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ],
    "/usr/local",
)
WITH_RDMA = Case(
    Cluster(Pool(Machine("a4-highgpu-8g", "NVIDIA_B200", 8))),
    True,
    [
        f"PATH=/usr/local/nvidia/bin:/opt/python/bin:{base_image.PATH}",
        *OF_BASE[1:],
        f"LD_LIBRARY_PATH={FOLDERS}:/own/lib",
        *OF_OWN_BASE[4:],
        *OF_ALL,
    ],
    "/opt/python",
)
CASES = {
    "CPU-wheels": (ON_CPUS, "wheels"),
    "CPU-by hand": (ON_CPUS, "by hand"),  # as with Docker, see test_build
    **{f"T4-{way}": (ON_T4, way) for way in ("engine", "wheels", "by hand")},
    **{f"RDMA-{way}": (WITH_RDMA, way) for way in ("engine", "wheels", "by hand")},
}


@pytest.mark.parametrize(("case", "way"), CASES.values(), ids=CASES)
def test_variables_and_libraries_of_an_image(
    engine, bases, requirements, tmp_path, monkeypatch, *, case, way
):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere" if way == "wheels" else engine.socket)
    folder = projects.project(tmp_path / "digits", requirements)
    (folder / "trainer/task.py").write_text(PROGRAM)
    job = projects.job(engine.repository(), bases[case.has_own_base])
    image = built(engine, replace(job, cluster=case.cluster), folder, way)
    variables = succeeded(engine.docker("inspect", "--format", "{{json .Config.Env}}", image))
    assert json.loads(variables) == case.variables
    if case.python:
        printed = succeeded(engine.docker("run", "--rm", image))
        assert printed == f"{case.python}/lib/python3.11/site-packages/{LIBRARY}"
    engine.docker("rmi", image)
