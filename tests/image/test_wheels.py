"""An environment of wheels gives the image that Docker would build, or is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import projects  # what tests/image/conftest.py has imported
import pytest
import registries
import wheel_index
from wheel_index import BASE_FILES, ON_PATH, SITE_PACKAGES

from distlaunch.errors import ImageError
from distlaunch.image import execute_plan, plan_image
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.render.templates import recipe

TEMPLATE = """\
FROM {{ base }} AS environment
%s
WORKDIR /app
FROM environment
COPY . .
ENTRYPOINT ["x"]
"""
REQUIREMENTS = "COPY requirements.txt /environment/requirements.txt\n"
INSTALL = "RUN pip install -r /environment/requirements.txt\n"
T4 = Cluster(Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)))


@pytest.fixture(autouse=True)
def without_docker(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The folder in which pip finds wheels, and nowhere else."""
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def push_base(registry):
    def push(files=BASE_FILES, config=ON_PATH):
        base = registries.fresh(registry, "base")
        registries.Recipe(layers=[registries.tar_of(files)], config=config).push(base)
        return base

    return push


@pytest.fixture
def build(registry, push_base, tmp_path):
    """Build the image of a project, and return its URI."""

    def build_image(requirements, steps=None, *, head="", base=None, progress=lambda _: None):
        folder = projects.project(tmp_path / "digits", requirements)
        if steps is not None:
            (folder / "templates").mkdir()
            (folder / "templates/Dockerfile.j2").write_text(head + TEMPLATE % steps)
        repository = registries.fresh(registry).name
        job = projects.job(repository, str(base or push_base()))
        return execute_plan(plan_image(job, folder, recipe), lambda _: None, progress=progress).uri

    return build_image


def refusal(build, *args, **kwargs):
    with pytest.raises(ImageError) as caught:
        build(*args, **kwargs)
    assert "\n" not in str(caught.value)
    assert "with Docker: Docker is not running at unix:///nowhere.sock; " in str(caught.value)
    return str(caught.value)


def test_packages_are_where_the_bases_python_looks(build, index):
    wheel_index.write_wheel(index, "one", requires=["two>=2"], scripts=["run-one"])
    wheel_index.write_wheel(index, "two", "1")
    wheel_index.write_wheel(index, "two", "2", tag="cp311-cp311-manylinux_2_28_x86_64")
    wheel_index.write_wheel(index, "two", "3", tag="cp311-cp311-manylinux_2_39_x86_64")
    data = {"three-1.data/data/share/three/a.txt": "a"}
    wheel_index.write_wheel(index, "three", files=data)
    lines = []
    files = projects.files(build("one\nthree\n", progress=lines.append), -2)
    assert files[f"{SITE_PACKAGES}/one/__init__.py"] == b"VERSION = '1'\n"
    assert files[f"{SITE_PACKAGES}/two/__init__.py"] == b"VERSION = '2'\n"
    assert f"{SITE_PACKAGES}/one-1.dist-info/METADATA" in files
    assert files["usr/local/bin/run-one"].startswith(b"#!/usr/local/bin/python3.11\n")
    assert files["usr/local/share/three/a.txt"] == b"a"
    assert files["environment/requirements.txt"] == b"one\nthree\n"
    assert not any(path.endswith(".pyc") for path in files)
    assert any(each.startswith("pip: Successfully installed") for each in lines)


def test_every_pip_step_is_done(build, index):
    """Packages that the Dockerfile installs besides requirements.txt were left out."""
    for name in ("one", "two", "three"):
        wheel_index.write_wheel(index, name)
    steps = "RUN pip install --no-cache-dir two 'three>=1'\n" + REQUIREMENTS + INSTALL
    files = projects.files(build("one\n", steps), -2)
    names = [
        name for name in ("one", "two", "three") if f"{SITE_PACKAGES}/{name}/__init__.py" in files
    ]
    assert names == ["one", "two", "three"]


@pytest.mark.parametrize(
    "step",
    [
        "RUN pip install --index-url https://example.invalid/simple two",
        "RUN pip install two && rm -r /opt",
        "RUN pip install $PACKAGES",
        "RUN pip install --no-deps two",
        "RUN pip install -r /other.txt",
        "RUN /opt/venv/bin/pip install two",
        "RUN pip install <<EOF two\nEOF",
        "RUN apt-get install x",
        "COPY trainer /trainer",
        "COPY requirements.txt /usr/lib/requirements.txt",
        "COPY --chown=1:1 requirements.txt /requirements.txt",
        "USER daemon",
        'SHELL ["/bin/bash", "-c"]',
    ],
)
def test_a_step_that_cannot_be_reproduced_is_refused(build, index, step):
    error = refusal(build, "one\n", f"{REQUIREMENTS}{INSTALL}{step}\n")
    words = step.split("\n")[0]
    assert error.startswith(f"Docker is needed for the Dockerfile's step '{words}'; install Docker")


def test_a_package_without_a_wheel_is_refused(build, index):
    wheel_index.write_wheel(index, "mac", tag="cp311-cp311-macosx_11_0_arm64")
    assert refusal(build, "mac\n").startswith(
        "pip cannot install wheels for Python 3.11 on linux/amd64 (No matching distribution found "
        "for mac); fix the requirements, or install Docker"
    )


@pytest.mark.parametrize("requirement", ["two; python_version >= '3.99'", "one", "more[extra]"])
def test_markers_that_differ_for_this_python_are_refused(build, index, push_base, requirement):
    """pip evaluates markers for the Python that it runs on."""
    files = {path.replace("3.11", "3.99"): data for path, data in BASE_FILES.items()}
    base = push_base(files, {"Env": ["PATH=/usr/local/bin"]})
    marked = "two; python_version >= '3.99'"
    wheel_index.write_wheel(index, "one", requires=[marked])
    wheel_index.write_wheel(index, "two")
    extra = "Provides-Extra: extra"
    wheel_index.write_wheel(
        index, "more", requires=["two; extra == 'extra' and python_version >= '3.99'\n" + extra]
    )
    error = refusal(build, f"{requirement}\n", base=base)
    assert "differs between this Python and the image's; run distlaunch with Python 3.99" in error


def test_versions_that_the_base_has_are_kept(build, index):
    wheel_index.write_wheel(index, "old", "1")
    wheel_index.write_wheel(index, "old", "2")
    assert (
        projects.files(build("old\n"), -2)[f"{SITE_PACKAGES}/old/__init__.py"] == b"VERSION = '1'\n"
    )


def test_another_version_than_the_bases_is_refused(build, index):
    wheel_index.write_wheel(index, "old", "2")
    assert "pip cannot install wheels for Python 3.11 " in refusal(build, "old==2\n")


def test_files_that_are_included_count_too(build, index, tmp_path):
    for name in ("one", "two"):
        wheel_index.write_wheel(index, name)
        wheel_index.write_wheel(index, name, "2")
    folder = tmp_path / "digits/inner"
    folder.mkdir(parents=True)
    (folder / "more.txt").write_text("two \\\n  ==1\n-c limits.txt\n")
    (folder / "limits.txt").write_text("one==1\n")
    files = projects.files(build("one # x\n-r inner/more.txt\n"), -2)
    versions = [files[f"{SITE_PACKAGES}/{name}/__init__.py"] for name in ("one", "two")]
    assert versions == [b"VERSION = '1'\n"] * 2


def test_no_module_of_the_project_runs_in_place_of_pips(build, index, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "pip").mkdir(parents=True)
    for name in ("json.py", "pip/__init__.py"):
        (project / name).write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    monkeypatch.chdir(project)
    wheel_index.write_wheel(index, "one")
    assert f"{SITE_PACKAGES}/one/__init__.py" in projects.files(build("one\n"), -2)
    assert not (tmp_path / "marker").exists()


def test_the_same_wheels_give_the_same_image(build, index, push_base, tmp_path, monkeypatch):
    wheel_index.write_wheel(index, "one", scripts=["run-one"])
    base = push_base()
    digests = set()
    project = projects.project
    for name in ("a", "b"):
        monkeypatch.setattr(
            projects, "project", lambda _, text, name=name: project(tmp_path / name, text)
        )
        digests.add(build("one\n", base=base).partition("@")[2])
    assert len(digests) == 1


def test_cuda_libraries_have_symlinks_in_one_folder(registry, push_base, index, tmp_path):
    libraries = {"nvidia/cublas/lib/libcublas.so.12": "", "nvidia/cublas/a.h": ""}
    wheel_index.write_wheel(index, "cublas", files=libraries)
    base = push_base(config={"Env": ["PYTHON_VERSION=3.11.7"]})
    folder = projects.project(tmp_path / "digits", "cublas\n")
    job = projects.job(registries.fresh(registry).name, str(base))
    plan = plan_image(replace(job, cluster=T4), folder, recipe)
    uri = execute_plan(plan, lambda _: None).uri
    files = projects.files(uri, -2)
    links = "usr/local/lib/nvidia-wheels"
    assert {path: target for path, target in files.items() if path.startswith(links)} == {
        f"{links}/libcublas.so.12": f"/{SITE_PACKAGES}/nvidia/cublas/lib/libcublas.so.12",
    }
    env = projects.image(uri).config["config"]["Env"]
    docker_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert f"PATH=/usr/local/nvidia/bin:{docker_path}" in env
    assert json.dumps(env).count("LD_LIBRARY_PATH=") == 1
