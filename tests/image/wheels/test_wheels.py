"""An environment of wheels: found out, installed and laid over a base, without any engine."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import os
import tarfile
import zipfile
from textwrap import dedent

import pytest
import registries
from registries import QUICK, Recipe, tar_of

from distlaunch.errors import ImageError
from distlaunch.image import wheels
from distlaunch.image.reference import Reference
from distlaunch.image.registry.append import append
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.config import Settings
from distlaunch.image.wheels import environment_layer
from distlaunch.image.wheels.interpreter import Interpreter, distribution, find_interpreter

PYTHON = "usr/local/lib/python3.12/site-packages"
LIBC = b"... stable release version 2.36."
ON_PATH = {"Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHON_VERSION=3.12.4"]}
OF_BASE = {
    "usr/local/bin/python3.12": b"",
    "usr/lib/x86_64-linux-gnu/libc.so.6": LIBC,
    f"{PYTHON}/pip/__init__.py": b"",
    f"{PYTHON}/pip-24.0.dist-info/METADATA": b"",
    f"{PYTHON}/old/__init__.py": b"",
    f"{PYTHON}/old/gone.py": b"",
    f"{PYTHON}/old-1.dist-info/METADATA": b"",
}


def wheel(folder, name, version="1", *, requires=(), tag="py3-none-any", files=None, scripts=()):
    """Write a wheel as the specification of the format has it."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Requires-Dist: {each}" for each in requires]
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""]
    content = {f"{name}/__init__.py": f"VERSION = {version!r}\n", **(files or {})}
    content[f"{info}/METADATA"] = "\n".join(metadata)
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        lines = [f"{each} = {name}:main" for each in scripts]
        content[f"{info}/entry_points.txt"] = "\n".join(["[console_scripts]", *lines])
    rows = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)


def _digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The folder that pip finds its wheels in, and nowhere else."""
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def base(registry):
    """Push a base image of some files."""

    def push(files=OF_BASE, config=ON_PATH, more=()):
        reference = registries.fresh(registry, "base")
        Recipe(layers=[tar_of(files), *map(tar_of, more)], config=config).push(reference)
        return reference

    return push


def interpreter(reference):
    with Registry(reference, patience=QUICK) as registry:
        return find_interpreter(registry, registry.image())


def files_of(layer):
    with tarfile.open(layer.file) as tar:
        return {each.name: each.isreg() and tar.extractfile(each).read() for each in tar}


def test_what_pip_installs_lies_where_the_bases_python_looks(base, index, tmp_path):
    wheel(index, "one", requires=["two>=2"], scripts=["run-one"])
    wheel(index, "two", "1")
    wheel(index, "two", "2", tag="cp312-cp312-manylinux_2_28_x86_64")
    lines = []
    layer = environment_layer(base(), "one\n", tmp_path / "layer", progress=lines.append)
    files = files_of(layer)
    assert files[f"{PYTHON}/one/__init__.py"] == b"VERSION = '1'\n"
    assert files[f"{PYTHON}/two/__init__.py"] == b"VERSION = '2'\n"
    assert f"{PYTHON}/one-1.dist-info/METADATA" in files
    assert not any(".wh." in path or path.endswith(".pyc") for path in files)
    assert files["usr/local/bin/run-one"].startswith(b"#!/usr/local/bin/python3.12\n")
    with tarfile.open(layer.file) as tar:
        assert tar.getmember("usr/local/bin/run-one").mode == 0o755
        assert tar.getmember(f"{PYTHON}/one/__init__.py").mode == 0o644
        assert "usr/local" not in tar.getnames()  # folders of the base stay as they are
    assert any(each.startswith("pip: Successfully installed") for each in lines)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("wheels-")] == []


def test_no_module_of_the_project_runs_in_place_of_pips(index, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "pip").mkdir(parents=True)
    for name in ("json.py", "pip/__init__.py"):
        (project / name).write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    monkeypatch.chdir(project)
    wheel(index, "one")
    python = Interpreter("3.12.4", "usr/local", PYTHON, 36)
    wheels._install(["one"], tmp_path / "target", python, progress=print)
    assert (tmp_path / "target/one/__init__.py").exists()
    assert not (tmp_path / "marker").exists()


def test_the_same_wheels_give_the_same_layer(base, index, tmp_path):
    wheel(index, "one", scripts=["run-one"])
    image = base()
    first = environment_layer(image, "one\n", tmp_path / "a")
    assert first.digest == environment_layer(image, "one\n", tmp_path / "b").digest


def test_markers_are_answered_by_the_image_and_not_by_this_python(base, index, tmp_path):
    requires = [
        'newer; python_version >= "3.12"',
        'older; python_version < "3.12"',
        'exactly; python_full_version == "3.12.4"',
        'elsewhere; sys_platform != "linux" or platform_machine != "x86_64"',
    ]
    for name in ("newer", "older", "exactly", "elsewhere"):
        wheel(index, name)
    wheel(index, "one", requires=requires)
    files = files_of(environment_layer(base(), "one\n", tmp_path / "layer"))
    names = ("newer", "older", "exactly", "elsewhere")
    assert [each for each in names if f"{PYTHON}/{each}/__init__.py" in files] == [
        "newer",
        "exactly",
    ]


def test_another_version_in_the_base_is_taken_away(base, index, tmp_path):
    wheel(index, "old", "2")
    files = files_of(environment_layer(base(), "old\n", tmp_path / "layer"))
    names = list(files)
    assert f"{PYTHON}/.wh.old-1.dist-info" in files
    assert names.index(f"{PYTHON}/old/.wh..wh..opq") < names.index(f"{PYTHON}/old/__init__.py")
    assert not any("pip" in path for path in files)


def test_what_lies_beside_the_packages_goes_beside_them(base, index, tmp_path):
    wheel(index, "one", files={"one-1.data/data/share/one/a.txt": "a"})
    files = files_of(environment_layer(base(), "one\n", tmp_path / "layer"))
    assert files["usr/local/share/one/a.txt"] == b"a"


def test_cuda_libraries_have_symlinks_in_one_folder(base, index, tmp_path):
    wheel(index, "cublas", files={"nvidia/cublas/lib/libcublas.so.12": "", "nvidia/cublas/a.h": ""})
    wheel(index, "cudnn", files={"nvidia/cudnn/lib/libcudnn.so.9": "", "nvidia/cudnn/b.so": ""})
    library = "opt/conda/lib/python3.12/site-packages"
    files = {
        "opt/conda/bin/python3.12": b"",
        f"{library}/nvidia/nccl/lib/libnccl.so.2": b"",
        f"{library}/nvidia/cublas/lib/libcublas.so.12": b"",
        f"{library}/nvidia/old/lib/libold.so.1": b"",
    }
    removed = {f"{library}/nvidia/.wh.old": b""}
    image = base(files, {"Env": ["PATH=/opt/conda/bin"]}, more=[removed])
    layer = environment_layer(image, "cublas\ncudnn\n", tmp_path / "layer", link_cuda=True)
    with tarfile.open(layer.file) as tar:
        links = {each.name: each.linkname for each in tar if each.issym()}
    folder = "usr/local/lib/nvidia-wheels"
    assert links == {
        f"{folder}/libcublas.so.12": f"/{library}/nvidia/cublas/lib/libcublas.so.12",
        f"{folder}/libcudnn.so.9": f"/{library}/nvidia/cudnn/lib/libcudnn.so.9",
        f"{folder}/libnccl.so.2": f"/{library}/nvidia/nccl/lib/libnccl.so.2",
    }


def test_the_folder_for_cuda_libraries_is_made_without_any(base, index, tmp_path):
    layer = environment_layer(base(), "# nothing\n", tmp_path / "layer", link_cuda=True)
    with tarfile.open(layer.file) as tar:
        (folder,) = tar
    assert (folder.name, folder.isdir()) == ("usr/local/lib/nvidia-wheels", True)


def test_nothing_to_install_is_an_empty_layer(base, index, tmp_path):
    assert files_of(environment_layer(base(), "# nothing\n", tmp_path / "layer")) == {}


def test_files_that_are_included_count_too(base, index, tmp_path):
    for name in ("one", "two", "three"):
        wheel(index, name)
        wheel(index, name, "2")
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.txt").write_text("one # x\n-r inner/b.txt\n-c c.txt\n")
    (tmp_path / "inner/b.txt").write_text("-r ../a.txt\ntwo \\\n  ==1\n--requirement=d.txt\n")
    (tmp_path / "inner/d.txt").write_text("three\n")
    (tmp_path / "c.txt").write_text("one==1\n")
    layer = environment_layer(base(), f"-r {tmp_path}/a.txt\n", tmp_path / "layer")
    files = files_of(layer)
    found = {each: files[f"{PYTHON}/{each}/__init__.py"] for each in ("one", "two", "three")}
    assert {name: text[-3:-2] for name, text in found.items()} == {
        "one": b"1",
        "two": b"1",
        "three": b"2",
    }
    with pytest.raises(ImageError, match=f"^{tmp_path}/absent.txt: requirements that cannot be"):
        environment_layer(base(), f"-r {tmp_path}/absent.txt\n", tmp_path / "layer")


def test_all_packages_without_a_wheel_are_named(base, index, tmp_path):
    wheel(index, "one")
    wheel(index, "mac", tag="cp312-cp312-macosx_11_0_arm64")
    wheel(index, "newer", tag="cp313-cp313-manylinux_2_17_x86_64")
    wheel(index, "glibc", tag="cp312-cp312-manylinux_2_39_x86_64")
    requirements = "one\nmac\nNewer >=0, <9\nglibc[x] == 1; python_version > '3'\n"
    with pytest.raises(ImageError) as caught:
        environment_layer(base(), requirements, tmp_path / "layer")
    text = str(caught.value)
    assert text.startswith("no wheel of ")
    assert all(each in text for each in ("mac", "glibc", "ewer"))
    assert "one," not in text
    assert text.endswith(
        "for Python 3.12 on linux/amd64, which needs an engine; install Docker and start it, or "
        "ask for a version that has a wheel"
    )


@pytest.mark.parametrize(
    "line",
    [
        "./mine",
        "-e .",
        "../mine",
        "/mine",
        "git+https://example.invalid/a.git",
        "mine @ git+ssh://git@example.invalid/a.git@main",
        "mine @ file:///mine",
        "https://example.invalid/mine-1.tar.gz",
        "mine @ https://example.invalid/mine-1.zip#sha256=0",
    ],
)
def test_what_pip_would_build_here_is_refused(line, tmp_path):
    nowhere = Reference.parse("127.0.0.1:1/a")  # it is known before anybody is asked
    with pytest.raises(ImageError) as caught:
        environment_layer(nowhere, f"one\n{line}\n", tmp_path / "layer")
    assert str(caught.value).startswith(
        f"no wheel of {line}, but its source, which needs an engine"
    )


@pytest.mark.parametrize(
    "line",
    [
        "mine @ https://example.invalid/mine-1-py3-none-any.whl",
        "https://example.invalid/mine-1-py3-none-any.whl#sha256=0",
        "--index-url https://example.invalid/simple",
        "--find-links ./wheels",
    ],
)
def test_what_is_a_wheel_is_not_refused_for_its_address(line, tmp_path):
    nowhere = Reference.parse("127.0.0.1:1/a")
    with pytest.raises(ImageError, match="nothing listens at"):
        environment_layer(nowhere, f"{line}\n", tmp_path / "layer")


@pytest.mark.parametrize(
    ("requirements", "told"),
    [
        (
            "one==1\none==2\n",
            "pip cannot install the requirements (Cannot install one==1 and one==2 ",
        ),
        ("--no-such-option\n", "pip cannot install the requirements "),
        (
            "one<2\ntwo\n",
            "pip cannot install the requirements (Cannot install two and one<2 because ",
        ),
    ],
)
def test_what_pip_says_is_told(base, index, tmp_path, requirements, told):
    wheel(index, "one")
    wheel(index, "two", requires=["one>2"])
    with pytest.raises(ImageError) as caught:
        environment_layer(base(), requirements, tmp_path / "layer")
    assert str(caught.value).startswith(told)
    assert len(str(caught.value).splitlines()) == 1


def test_an_index_that_is_not_there_is_told(base, index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.delenv("PIP_NO_INDEX")
    requirements = "--index-url http://127.0.0.1:1/simple\none\n"
    with pytest.raises(ImageError, match=r"^pip does not reach its index \(Could not find"):
        environment_layer(base(), requirements, tmp_path / "layer")


@pytest.mark.parametrize(
    ("files", "config", "told"),
    [
        ({"bin/sh": b""}, {}, "has no Python 3 on its PATH"),
        ({"opt/python/bin/python3.12": b""}, {}, "has no Python 3 on its PATH"),
        ({"lib/ld-musl-x86_64.so.1": b"", **OF_BASE}, {}, None),
        ({"lib/ld-musl-x86_64.so.1": b"", "usr/bin/python3.12": b""}, {}, "has musl"),
    ],
)
def test_a_base_that_cannot_be_laid_over(base, files, config, told):
    with pytest.raises(ImageError, match=told) if told else contextlib.nullcontext():
        interpreter(base(files, config))


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        (OF_BASE, "/usr/local/bin:/usr/bin", ("3.12.4", "usr/local", PYTHON, 36)),
        (
            {"usr/bin/python3.11": b"", "lib/x86_64-linux-gnu/libc.so.6": LIBC},
            "/usr/bin",
            ("3.11.0", "usr", "usr/local/lib/python3.11/dist-packages", 36),
        ),
        (
            {
                "opt/conda/bin/python3.10": b"",
                "opt/conda/lib/python3.10/site-packages/a.py": b"",
                **OF_BASE,
            },
            "/opt/conda/bin/:/usr/local/bin",
            ("3.10.0", "opt/conda", "opt/conda/lib/python3.10/site-packages", 36),
        ),
        (
            {"usr/bin/python3.11": b"", "usr/bin/python3.9": b""},
            "/usr/bin",
            ("3.11.0", "usr", "usr/local/lib/python3.11/dist-packages", 17),
        ),
    ],
    ids=["official", "debian", "conda", "two"],
)
def test_the_python_that_is_first_on_path(base, files, path, expected):
    found = interpreter(base(files, {"Env": [f"PATH={path}", "PYTHON_VERSION=3.12.4"]}))
    assert (found.version, found.prefix, found.library, found.glibc) == expected


def test_what_a_later_layer_takes_away_is_not_there(base):
    later = {
        f"{PYTHON}/.wh.pip-24.0.dist-info": b"",
        f"{PYTHON}/new.py": b"",
        "usr/local/bin/.wh..wh..opq": b"",
        "usr/bin/python3.12": b"",
    }
    found = interpreter(base(more=[later]))
    assert found.entries == frozenset()
    assert found.program == "/usr/bin/python3.12"
    found = interpreter(base(more=[{f"{PYTHON}/.wh.pip": b""}]))
    assert found.entries == {"pip-24.0.dist-info", "old", "old-1.dist-info"}
    found = interpreter(base(more=[{f"{PYTHON}/.wh..wh..opq": b"", f"{PYTHON}/new.py": b""}]))
    assert found.entries == {"new.py"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (gzip.compress(b"no tar" * 1000), "cannot be read"),
        (b"\x1f\x8b\x08broken" * 100, "cannot be read"),
        (b"\x28\xb5\x2f\xfd" + b"0" * 100, "packed with zstd"),
    ],
    ids=["no tar", "broken", "zstd"],
)
def test_a_layer_that_cannot_be_read(registry, data, told):
    reference = registries.fresh(registry, "base")
    Recipe(layers=[data]).push(reference)
    with pytest.raises(ImageError, match=told):
        interpreter(reference)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("pip-24.0.dist-info", "pip"),
        ("Jinja2-3.1.dist-info", "jinja2"),
        ("a_b.c-1.egg-info", "a-b-c"),
        ("pip", None),
        ("dist-info", None),
    ],
)
def test_whose_a_dist_info_is(entry, name):
    assert distribution(entry) == name


@pytest.mark.slow
def test_such_an_image_runs(engine, index, tmp_path):
    """A program of a wheel's is found and runs, with another wheel that the base has too."""
    source = dedent("""
        def main():
            import importlib.metadata, pip, sys, two
            print(two.VERSION, importlib.metadata.version("pip"), pip.VERSION, sys.argv[1:])
    """)
    wheel(index, "one", requires=["two"], scripts=["run-one"], files={"one/__init__.py": source})
    wheel(index, "two", "2")
    wheel(index, "pip", "999")
    base = Reference.parse(engine.base)
    layer = environment_layer(base, "one\npip\n", tmp_path / "layer")
    target = Reference.parse(f"{engine.repository('wheels')}:env")
    append(base, target, [layer], Settings(entrypoint=("run-one",)))
    done = engine.docker("run", "--rm", str(target), "a b")
    assert done.stdout == "2 999 999 ['a b']\n", done.stderr
    engine.docker("image", "rm", str(target))
