"""An environment of wheels gives the image that Docker would build, or is refused."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import tarfile
import threading
import venv
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import images
import pytest
import windows

from distlaunch import __version__, resources
from distlaunch.cli import main
from distlaunch.errors import ImageError
from distlaunch.image import execute_plan, plan_image
from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.image.registry.client import Registry
from distlaunch.image.wheels import find_python
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.render import render

T4 = Cluster(Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)))
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
    assert any(each.startswith("uv: Installed 3 packages") for each in lines)


@pytest.mark.parametrize("step", ["RUN pip install two", "COPY trainer /x", "USER 1", "ENV A=1"])
def test_a_template_that_adds_a_step_is_refused(build, index, step):
    """Packages that the Dockerfile installs besides requirements.txt were left out."""
    template = (resources.templates() / "Dockerfile.j2").read_text(encoding="utf-8")
    changed = template.replace("\nWORKDIR", f"\n{step}\nWORKDIR")
    error = refusal(build, "", template=changed)
    assert error.startswith("Docker is needed for the project's templates/Dockerfile.j2; Docker ")
    assert images.files(build("", template=template))


def test_markers_are_those_of_the_bases_python_on_any_machine(build, index, push_base):
    files = {path.replace("3.11", "3.14"): data for path, data in images.PYTHON_FILES.items()}
    base = push_base(files, {"Env": ["PATH=/usr/local/bin"]})
    there = (
        "platform_system == 'Linux' and platform_machine == 'x86_64' and python_version > '3.13'"
    )
    for name in ("two", "three", "four"):
        images.write_wheel(index, name, tag="cp314-cp314-manylinux_2_28_x86_64")
    images.write_wheel(index, "one", requires=[f"two; {there}", "mac; platform_system == 'Darwin'"])
    extra = f"three; extra == 'extra' and {there}\nProvides-Extra: extra"
    images.write_wheel(index, "more", requires=[extra])
    uri = build(f"one\nmore[extra]\nfour; {there}\n", base=base)
    packages = images.SITE_PACKAGES.replace("3.11", "3.14")
    wanted = {f"{packages}/{name}/__init__.py" for name in ("one", "more", "two", "three", "four")}
    assert wanted < images.files(uri, -2).keys()


def test_a_layer_has_nothing_of_this_machine(build, index, push_base):
    """Packages name neither this Python nor times, so that any machine gives the same image."""
    images.write_wheel(index, "one", files={"one-1.data/scripts/go": "#!python\nprint(1)\n"})
    images.write_wheel(index, "two", scripts=["run-two"])
    files = images.files(build("one\ntwo\n", base=push_base()), -2)
    assert files["usr/local/bin/go"] == b"#!/usr/local/bin/python3.11\nprint(1)\n"
    compile(files["usr/local/bin/run-two"], "run-two", "exec")
    assert not any(sys.prefix.encode() in content for content in files.values())
    assert not any(path.endswith("uv_cache.json") for path in files)
    record = files[f"{images.SITE_PACKAGES}/one-1.dist-info/RECORD"].decode()
    assert "../../../bin/go,," in record
    assert "uv_cache" not in record


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
    assert "no wheels for Python 3.11.7 on linux/amd64: " in refusal(build, "old==2\n")
    error = refusal(build, "mac\n")
    assert (
        "mac==1 has no wheels with a matching platform tag (e.g., `manylinux_2_36_x86_64`)" in error
    )
    assert "; fix the requirements, or install Docker" in error


EVIL = "open({!r}, 'w')\nfrom setuptools import setup\nsetup(name='evil', version='1')\n"


@pytest.fixture
def evil(tmp_path, index):
    """The marker that building a package leaves, which is a folder and an archive of an index."""
    folder = tmp_path / "evil-1"
    folder.mkdir()
    (folder / "setup.py").write_text(EVIL.format(str(tmp_path / "marker")))
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    with tarfile.open(index / "evil-1.tar.gz", "w:gz") as archive:
        archive.add(folder, "evil-1")
    return tmp_path / "marker"


@pytest.mark.parametrize(
    "line",
    [
        "evil @ file://{index}/evil-1.tar.gz",
        "evil @ http://127.0.0.1:1/evil-1.tar.gz",
        "http://127.0.0.1:1/evil-1.tar.gz",
        "git+http://127.0.0.1:1/evil.git",
        "{index}/evil-1.tar.gz",
        "../evil-1",
        "-e ../evil-1",
        "--editable=../evil-1",
        "--no-binary :all:",
        "--no-binary=evil",
        "--config-settings a=b",
        "--find-links ../index",
        "--find-links file://{index}",
        "--index-url file://{index}",
        "-r http://127.0.0.1:1/more.txt",
        "six; extra == 'a\r-e ../evil-1\r'",  # which is a line's end for uv
    ],
)
def test_what_uv_could_build_here_is_refused_before_anything_starts(build, index, evil, line):
    with pytest.raises(ImageError) as caught:
        build(f"six\n{line.format(index=index)}\nevil\n")
    [problem] = caught.value.problems
    assert problem.where == "requirements.txt:2"
    assert problem.what.isprintable()
    assert "is in no package index; without Docker only wheels of one are installed" in problem.what
    assert "install Docker, or use Cloud Build" in problem.remedy
    assert not evil.exists()


def test_a_package_of_sources_is_not_built_here(build, evil, monkeypatch, tmp_path):
    monkeypatch.setenv("UV_NO_BINARY", "1")
    (tmp_path / "uv.toml").write_text("no-binary = true\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    assert "evil==1 has no usable wheels" in refusal(build, "evil\n")
    assert not evil.exists()


def test_hashes_are_verified(build, index):
    images.write_wheel(index, "one")
    digest = hashlib.sha256((index / "one-1-py3-none-any.whl").read_bytes()).hexdigest()
    assert build(f"one==1 \\\n  --hash=sha256:{digest}\n")
    assert "Hash mismatch" in refusal(build, f"one==1 --hash=sha256:{'0' * 64}\n")


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


def test_variables_reach_an_index_only_by_the_users_list(build, monkeypatch):
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("INDEX_TOKEN", "hunter2")
    monkeypatch.setenv("OTHER_TOKEN", "hunter3")
    seen = []

    class Index(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("Authorization"))
            self.send_error(404)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever).start()
        line = f"--index-url http://u:${{{{{{}}}}}}@127.0.0.1:{server.server_port}/simple\none\n"
        monkeypatch.setenv("DISTLAUNCH_BUILD_VARIABLES", "INDEX_TOKEN, UNUSED")
        with pytest.raises(ImageError) as caught:
            build(line.format("OTHER_TOKEN"))
        [problem] = caught.value.problems
        assert problem.where == "requirements.txt:1"
        assert "${OTHER_TOKEN} is not passed to builds" in problem.what
        assert "set DISTLAUNCH_BUILD_VARIABLES=OTHER_TOKEN" in problem.remedy
        assert seen == []
        error = refusal(build, line.format("INDEX_TOKEN"))
        assert "one was not found" in error
        assert "hunter2" not in error
        server.shutdown()
    assert base64.b64decode(seen[-1].removeprefix("Basic ")) == b"u:hunter2"


def test_no_module_of_the_project_runs_in_place_of_ours(build, index, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "pip").mkdir(parents=True)
    (project / "uv").mkdir()
    for name in ("json.py", "pip/__init__.py", "uv/__init__.py"):
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
    by_pip = files_by_command(tmp_path / "project-0", tmp_path / "environment")
    info = f"distlaunch_trainer-{__version__}.dist-info"
    assert by_pip.keys() - installed.keys() == {f"{info}/INSTALLER", f"{info}/REQUESTED"}
    del by_pip[f"{info}/RECORD"], installed[f"{info}/RECORD"]
    assert installed.items() <= by_pip.items()
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
