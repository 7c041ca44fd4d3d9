"""An environment of wheels gives the image that Docker would build, or is refused."""

from __future__ import annotations

import gzip
import itertools
import json
import shlex
import subprocess
import sys
import venv
from dataclasses import replace

import images
import pytest
import windows

from distlaunch import __version__, resources
from distlaunch.cli import main
from distlaunch.errors import ImageError
from distlaunch.image import execute_plan, plan_image, wheels
from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.image.registry.client import Registry
from distlaunch.image.wheels import find_python
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.render import render

T4 = Cluster(Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)))
MAC = """
import platform as p
p.system, p.machine = lambda: "Darwin", lambda: "arm64"
p.mac_ver = lambda: ("14.5", ("", "", ""), "arm64")
"""
JOB_FILE = """\
name: digits
module: trainer
image: {}
cluster: {{chief: {{machine: n1-standard-4}}}}
"""
INNER = "nvidia/cublas/lib/libcublas.so.12"


pytestmark = pytest.mark.usefixtures("without_docker")


@pytest.fixture
def index(tmp_path, monkeypatch, without_pip_settings):
    """The folder in which pip finds wheels, and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def push_base(registry):
    def push(files=images.PYTHON_FILES, config=images.ON_PATH):
        base = images.fresh(registry, "base")
        images.push(base, layers=[images.tar_of(files)], config=config)
        return base

    return push


@pytest.fixture
def build(registry, push_base, tmp_path):
    """Build the image of a project, and return its URI."""
    numbers = itertools.count()

    def build_image(
        requirements, *, base=None, progress=lambda _: None, program="", template=None, **changes
    ):
        path = tmp_path / f"project-{next(numbers)}"
        folder = images.project(path, requirements, program)
        if template is not None:
            (folder / "templates").mkdir()
            (folder / "templates/Dockerfile.j2").write_text(template)
        job = images.job(images.fresh(registry).name, base or push_base())
        plan = plan_image(replace(job, **changes), folder)
        return execute_plan(plan, lambda _: None, progress=progress)

    return build_image


def refusal(build, *args, **kwargs):
    with pytest.raises(ImageError) as caught:
        build(*args, **kwargs)
    assert "\n" not in str(caught.value)
    assert "Docker is not running at " in str(caught.value)
    return str(caught.value)


def test_packages_are_where_the_bases_python_looks(build, index, push_base):
    images.write_wheel(index, "one", requires=["two>=2"], scripts=["run-one"])
    images.write_wheel(index, "two", "1")
    images.write_wheel(index, "two", "2", tag="cp311-cp311-manylinux_2_28_x86_64")
    images.write_wheel(index, "two", "3", tag="cp311-cp311-manylinux_2_39_x86_64")
    data = {"three-1.data/data/share/three/a.txt": "a"}
    images.write_wheel(index, "three", files=data)
    lines, base = [], push_base()
    uri = build("one\nthree\n", base=base, progress=lines.append)
    assert build("one\nthree\n", base=base).partition("@")[2] == uri.partition("@")[2]
    files = images.files(uri, -2)
    assert files[f"{images.SITE_PACKAGES}/one/__init__.py"] == b"VERSION = '1'\n"
    assert files[f"{images.SITE_PACKAGES}/two/__init__.py"] == b"VERSION = '2'\n"
    assert f"{images.SITE_PACKAGES}/one-1.dist-info/METADATA" in files
    assert files["usr/local/bin/run-one"].startswith(b"#!/usr/local/bin/python3.11\n")
    assert files["usr/local/share/three/a.txt"] == b"a"
    assert files["environment/requirements.txt"] == b"one\nthree\n"
    assert not any(path.endswith(".pyc") for path in files)
    assert any(each.startswith("pip: Successfully installed") for each in lines)


@pytest.mark.parametrize("step", ["RUN pip install two", "COPY trainer /x", "USER 1", "ENV A=1"])
def test_a_template_that_adds_a_step_is_refused(build, index, step):
    """Packages that the Dockerfile installs besides requirements.txt were left out."""
    template = (resources.templates() / "Dockerfile.j2").read_text(encoding="utf-8")
    changed = template.replace("\nWORKDIR", f"\n{step}\nWORKDIR")
    error = refusal(build, "", template=changed)
    assert error.startswith("Docker is needed for the project's templates/Dockerfile.j2; Docker ")
    assert images.files(build("", template=template))


@pytest.fixture
def on_a_mac(tmp_path, monkeypatch):
    """Have Pythons that are started find themselves on a Mac."""
    (tmp_path / "sitecustomize.py").write_text(MAC)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("on_a_mac")
def test_markers_are_those_of_the_bases_python_on_any_machine(build, index, push_base):
    """pip evaluates markers for the Python that it runs on."""
    files = {path.replace("3.11", "3.99"): data for path, data in images.PYTHON_FILES.items()}
    base = push_base(files, {"Env": ["PATH=/usr/local/bin"]})
    there = "platform_system == 'Linux' and platform_machine == 'x86_64' and python_version > '3.9'"
    for name in ("two", "three", "four"):
        images.write_wheel(index, name, tag="cp399-cp399-manylinux_2_28_x86_64")
    images.write_wheel(index, "one", requires=[f"two; {there}", "mac; platform_system == 'Darwin'"])
    extra = f"three; extra == 'extra' and {there}\nProvides-Extra: extra"
    images.write_wheel(index, "more", requires=[extra])
    uri = build(f"one\nmore[extra]\nfour; {there}\n", base=base)
    packages = images.SITE_PACKAGES.replace("3.11", "3.99")
    wanted = {f"{packages}/{name}/__init__.py" for name in ("one", "more", "two", "three", "four")}
    assert wanted < images.files(uri, -2).keys()


def test_a_pip_that_ignores_the_bases_python_is_refused(build, index, monkeypatch):
    images.write_wheel(index, "one")
    deaf = wheels._PIP.replace("markers.default_environment =", "ignored =")
    monkeypatch.setattr(wheels, "_PIP", deaf)
    assert refusal(build, "one; python_version > '3'\n").startswith("this pip selects packages ")


def test_scripts_that_pip_writes_on_windows(build, index, monkeypatch):
    """They are programs for Windows, with the script in a zip file behind them."""
    images.write_wheel(index, "one", scripts=["run-one"])
    launchers = (
        "from pip._vendor.distlib.scripts import ScriptMaker as M; w = M._write_script; "
        "M._get_launcher = lambda *_: b'MZ'; "
        "M._write_script = lambda self, *args: (setattr(self, '_is_nt', True), w(self, *args))"
    )
    monkeypatch.setattr(wheels, "_PIP", wheels._PIP.replace("\nrunpy", f"\n{launchers}\nrunpy"))
    files = images.files(build("one\n"), -2)
    assert not any(path.endswith(".exe") for path in files)
    script = files["usr/local/bin/run-one"]
    assert script.startswith(b"#!/usr/local/bin/python3.11\n")
    compile(script, "run-one", "exec")


def test_the_image_is_the_same_from_windows(index, registry, push_base, monkeypatch, capfd):
    images.write_wheel(index, "one", scripts=["run-one"])
    folder = images.project(index.parent / "project", "one; sys_platform == 'linux'\n")
    (folder / "trainer/data.csv").write_bytes(b"1\r\n")
    monkeypatch.chdir(folder)
    base = push_base()

    def write_job_file():
        image = f"{{repository: {images.fresh(registry).name}, base: '{base}'}}"
        (folder / "distlaunch.yaml").write_text(JOB_FILE.format(image), encoding="utf-8")

    write_job_file()
    [(code, out, err)] = windows.sessions(folder, ("build",))
    assert code == 0, err
    write_job_file()
    assert main(["build"]) == 0
    assert capfd.readouterr().out.partition("@")[2] == out.partition("@")[2] != ""


def test_versions_that_the_base_has_are_kept_and_others_need_a_wheel(build, index):
    images.write_wheel(index, "old", "1")
    images.write_wheel(index, "old", "2")
    images.write_wheel(index, "mac", tag="cp311-cp311-macosx_11_0_arm64")
    files = images.files(build("old\n"), -2)
    assert files[f"{images.SITE_PACKAGES}/old/__init__.py"] == b"VERSION = '1'\n"
    assert "pip cannot install wheels for Python 3.11 " in refusal(build, "old==2\n")
    assert refusal(build, "mac\n").startswith(
        "pip cannot install wheels for Python 3.11 on linux/amd64 (No matching distribution found "
        "for mac); fix the requirements, or install Docker"
    )


def test_included_files(build, index, tmp_path):
    for version in ("1", "2"):
        images.write_wheel(index, "one", version)
    folder = tmp_path / "project-0/inner"
    folder.mkdir(parents=True)
    (folder / "more.txt").write_text("-c limits.txt\n")
    (folder / "limits.txt").write_text("one==1\n")
    uri = build("one # x\n-r inner/more.txt\n")
    assert images.files(uri, -2)[f"{images.SITE_PACKAGES}/one/__init__.py"] == b"VERSION = '1'\n"
    names = ("requirements.txt", "inner/limits.txt", "inner/more.txt")
    assert {f"environment/{name}" for name in names} < images.files(uri, -2).keys()


def test_no_module_of_the_project_runs_in_place_of_pips(build, index, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "pip").mkdir(parents=True)
    for name in ("json.py", "pip/__init__.py"):
        (project / name).write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    monkeypatch.chdir(project)
    images.write_wheel(index, "one")
    assert f"{images.SITE_PACKAGES}/one/__init__.py" in images.files(build("one\n"), -2)
    assert not (tmp_path / "marker").exists()


def files_by_command(folder, scratch):
    """Return the packages that the rendered Dockerfile's command for the trainer installs."""
    render(images.job("host/p/r"), folder, folder, "vertex").write(folder)
    dockerfile = read_dockerfile((folder / "Dockerfile").read_text())
    [step] = [each.rest for each in dockerfile.instructions if "--find-links=/app/" in each.rest]
    venv.create(scratch)
    pip = f"{sys.executable} -m pip --python {scratch}"
    command = step.replace("python -m pip", pip).replace("/app/", f"{folder}/")
    subprocess.run([*shlex.split(command), "--no-compile"], check=True, capture_output=True)
    [site_packages] = scratch.glob("lib/python*/site-packages")
    paths = [path for path in site_packages.rglob("*") if path.is_file()]
    return {path.relative_to(site_packages).as_posix(): path.read_bytes() for path in paths}


def test_the_trainer_package_is_installed_without_an_index(build, index, tmp_path):
    """Not one of an index or of a folder with packages, which anyone could have uploaded."""
    images.write_wheel(index, "distlaunch_trainer", "99")
    images.write_wheel(index, "one")
    uri = build("one\n", program="from distlaunch_trainer import Run\n")
    files = images.files(uri, -2)
    installed = {
        path.removeprefix(f"{images.SITE_PACKAGES}/"): data
        for path, data in files.items()
        if path.startswith(f"{images.SITE_PACKAGES}/distlaunch_trainer")
    }
    for file in resources.trainer_package().glob("*.py"):
        assert installed[f"distlaunch_trainer/{file.name}"] == file.read_bytes()
    assert f"distlaunch_trainer-{__version__}.dist-info/RECORD" in installed
    assert installed == files_by_command(tmp_path / "project-0", tmp_path / "environment")
    [wheel] = [path for path in files if path.endswith(".whl")]
    assert wheel == f"app/.distlaunch/wheels/distlaunch_trainer-{__version__}-py3-none-any.whl"
    assert not [path for path in images.files(uri) if path.endswith(".whl")]


def test_cuda_libraries_have_symlinks_in_one_folder(build, push_base, index):
    images.write_wheel(index, "cublas", files={INNER: "", "nvidia/cublas/a.h": ""})
    base = push_base(config={"Env": ["PYTHON_VERSION=3.11.7"]})
    uri = build("cublas\n", base=base, cluster=T4)
    links = "usr/local/lib/nvidia-wheels"
    files = images.files(uri, -2)
    assert {path: target for path, target in files.items() if path.startswith(links)} == {
        f"{links}/libcublas.so.12": f"/{images.SITE_PACKAGES}/{INNER}",
    }
    env = images.image(uri).config["config"]["Env"]
    docker_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert f"PATH=/usr/local/nvidia/bin:{docker_path}" in env
    assert json.dumps(env).count("LD_LIBRARY_PATH=") == 1


# The Python of a base image, found in its layers

LIBC = {"lib/x86_64-linux-gnu/libc.so.6": b"... stable release version 2.31."}


@pytest.fixture
def python_of(registry):
    """Push an image of layers, and return its Python."""

    def find(*layers, path="/usr/local/bin:/usr/bin"):
        reference = images.fresh(registry, "base")
        packed = [layer if isinstance(layer, bytes) else images.tar_of(layer) for layer in layers]
        images.push(reference, layers=packed)
        with Registry(reference, policy=images.QUICK) as opened:
            return find_python(
                opened, opened.image(), {"PATH": path, "PYTHON_VERSION": "3.11.7"}, print
            )

    return find


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        (
            images.PYTHON_FILES,
            "/usr/bin:/usr/local/bin",
            ("3.11.7", "usr/local", images.SITE_PACKAGES, 36),
        ),
        (
            {"usr/bin/python3.12": b"", "usr/bin/python3.9": b"", **LIBC},
            "/usr/bin",
            ("3.12.0", "usr", "usr/local/lib/python3.12/dist-packages", 31),
        ),
        (
            {"opt/conda/bin/python3.10": b"", **images.PYTHON_FILES},
            "/opt/conda/bin/:/usr/local/bin",
            ("3.10.0", "opt/conda", "opt/conda/lib/python3.10/site-packages", 36),
        ),
    ],
    ids=["official", "debian", "conda"],
)
def test_the_first_python_on_path(python_of, files, path, expected):
    python = python_of(files, path=path)
    assert (python.version, python.prefix, python.library, python.glibc) == expected


def test_files_that_a_later_layer_removes_are_gone(python_of):
    removal = {f"{images.SITE_PACKAGES}/.wh.pip-24.0.dist-info": b"", "usr/bin/python3.12": b""}
    python = python_of(images.PYTHON_FILES, {**removal, "usr/local/bin/.wh..wh..opq": b""})
    assert python.program == "/usr/bin/python3.12"
    assert python_of(images.PYTHON_FILES, removal).installed == {"old": "1"}
    assert (
        python_of(images.PYTHON_FILES, {f"{images.SITE_PACKAGES}/.wh..wh..opq": b""}).installed
        == {}
    )


def test_installed_packages_have_normalised_names(python_of):
    names = ("Jinja2-3.1.dist-info", "a_b.c-1-py3.11.egg-info", "pip", "dist-info")
    installed = python_of(
        images.PYTHON_FILES, {f"{images.SITE_PACKAGES}/{name}/x": b"" for name in names}
    ).installed
    assert installed == {"pip": "24.0", "old": "1", "jinja2": "3.1", "a-b-c": "1"}


@pytest.mark.parametrize(
    ("layer", "error"),
    [
        ({"bin/sh": b"", **LIBC}, "has no Python 3 on its PATH"),
        ({"opt/python/bin/python3.12": b"", **LIBC}, "has no Python 3 on its PATH"),
        ({"lib/ld-musl-x86_64.so.1": b"", "usr/bin/python3.12": b""}, "does not use glibc"),
        (gzip.compress(b"no tar" * 1000), "cannot be read"),
        (b"\x28\xb5\x2f\xfd" + b"0" * 100, "cannot be read"),
    ],
    ids=["no Python", "not on PATH", "musl", "no tar", "zstd"],
)
def test_a_base_without_a_suitable_python_is_refused(python_of, layer, error):
    with pytest.raises(ImageError, match=error):
        python_of(layer)
