from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distlaunch.errors import ImageError
from distlaunch.image.requirements import (
    EXPORTS,
    RequirementLine,
    find_unread,
    for_cluster,
    read_requirements,
    sed_script,
)
from distlaunch.job.model import Cluster, Machine, Pool

HASHED = "tensorflow-cpu==2.21.0 \\\n    --hash=sha256:0123\n"
# A line, what it is for CPUs and what it is for GPUs.
LINES = [
    ("tensorflow==2.21.0", "tensorflow-cpu==2.21.0", "tensorflow[and-cuda]==2.21.0"),
    ("tensorflow-cpu==2.21.0", "tensorflow-cpu==2.21.0", "tensorflow[and-cuda]==2.21.0"),
    ("tensorflow_cpu~=2.21", "tensorflow-cpu~=2.21", "tensorflow[and-cuda]~=2.21"),
    ("TensorFlow [and-cuda]", "tensorflow-cpu", "tensorflow[and-cuda]"),
    ("  tensorflow >=2.21,<3", "  tensorflow-cpu >=2.21,<3", "  tensorflow[and-cuda] >=2.21,<3"),
    ("tensorflow (>=2.21)", "tensorflow-cpu (>=2.21)", "tensorflow[and-cuda] (>=2.21)"),
    (
        "tensorflow==2.21.0; sys_platform == 'linux'  # why",
        "tensorflow-cpu==2.21.0; sys_platform == 'linux'  # why",
        "tensorflow[and-cuda]==2.21.0; sys_platform == 'linux'  # why",
    ),
    ("tensorflow\r", "tensorflow-cpu\r", "tensorflow[and-cuda]\r"),
]
LEFT_ALONE = [
    "",
    "keras>=3.12,<3.16",
    "tensorflow-datasets==4.9",
    "tensorflow-cpu-aws",
    "# tensorflow==2.21.0",
    "tensorflow @ https://host.example/tensorflow.whl",
    "tensorflow[other]==2.21.0",
    "tensorflow==2.21.0 --hash=sha256:0123",
    "tensorflow==2.21.0 \\",
    "--index-url https://host.example/tensorflow",
]


def test_tensorflow_is_the_build_for_the_machines():
    for line, cpu, gpu in LINES:
        assert (for_cluster(line, gpu=False), for_cluster(line, gpu=True)) == (cpu, gpu)
    for line in LEFT_ALONE:
        assert for_cluster(line, gpu=False) == for_cluster(line, gpu=True) == line


PIECES = ("tensorflow", "TensorFlow", "-cpu", "_cpu", "[and-cuda]", "[ and-cuda ]", "==2.21", " ")
MORE = ("\t", "\r", ";", "#", "@", "x", "\\", "--hash=x", "~=", "(", "/", "'", "é", "")
pieces = st.sampled_from(PIECES + MORE)
lines = st.lists(pieces, max_size=7).map("".join)


@given(lines, st.booleans())
def test_for_cluster_is_idempotent_and_reversible(line, gpu):
    once = for_cluster(line, gpu=gpu)
    assert for_cluster(once, gpu=gpu) == once
    assert for_cluster(for_cluster(line, gpu=not gpu), gpu=gpu) == once


@pytest.mark.skipif(
    subprocess.run(["sed", "--version"], capture_output=True, check=False).returncode != 0,
    reason="this sed is not GNU's, which the image has",
)
@settings(max_examples=40)
@given(st.lists(lines, min_size=20, max_size=60), st.booleans())
@example([*(line for line, _, _ in LINES), *LEFT_ALONE], True)
@example([*(line for line, _, _ in LINES), *LEFT_ALONE], False)
def test_sed_does_the_same(listed, gpu):
    text = "\n".join(listed)
    done = subprocess.run(
        [shutil.which("sed"), "-E", sed_script(gpu=gpu)],
        input=f"{text}\n".encode(),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == for_cluster(text, gpu=gpu) + "\n"


def test_a_file_is_read_with_all_that_it_includes(tmp_path):
    (tmp_path / "pip/deep").mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text(
        "-r pip/base.txt  # the base\n--constraint=pip/deep/limits.txt\ntensorflow\n"
        "-r https://host.example/x.txt\n"
    )
    (tmp_path / "pip/base.txt").write_text("-r./deep/limits.txt\n-r ../requirements.txt\n")
    (tmp_path / "pip/deep/limits.txt").write_bytes(b"\xef\xbb\xbftensorflow-cpu<3\n")
    read = read_requirements(tmp_path, "./requirements.txt", gpu=True)
    assert read.name == "requirements.txt"
    assert list(read.files) == ["requirements.txt", "pip/deep/limits.txt", "pip/base.txt"]
    assert read.files["requirements.txt"].splitlines()[2] == "tensorflow[and-cuda]"
    assert read.files["pip/deep/limits.txt"] == "tensorflow[and-cuda]<3\n"
    assert read.changed == ("requirements.txt", "pip/deep/limits.txt")
    lines = [(line.location, line.name, line.is_constraint) for line in read.lines()]
    assert ("requirements.txt:3", "tensorflow", False) in lines
    assert ("pip/deep/limits.txt:1", "tensorflow", True) in lines


@pytest.mark.parametrize(
    ("text", "location", "name", "specifier"),
    [
        ("\n\n# why\nNumPy.x==2  # why\n", 4, "numpy-x", "==2"),
        ("numpy \\\n  ==2 \\\n  --hash=sha256:01\n", 1, "numpy", "==2"),
        ("tensorflow~=2.21\n", 1, "tensorflow-cpu", "~=2.21"),
        ("numpy @ https://host.example/x.tar.gz\n", 1, "numpy", ""),
        ("git+https://host.example/x.git#egg=acme\n", 1, "acme", None),
        ("https://host.example/acme-1.0-py3-none-any.whl\n", 1, "acme", None),
        ("https://host.example/x.zip\n", 1, "", None),
        ("-i https://host.example/simple\n", 1, "", None),
        ("numpy==${VERSION}\n", 1, "", None),
        ("-e git+https://host.example/x.git#egg=acme&subdirectory=a\n", 1, "acme", None),
    ],
)
def test_lines_are_read_with_their_numbers(tmp_path, text, location, name, specifier):
    (tmp_path / "a.txt").write_text(text)
    (line,) = read_requirements(tmp_path, "a.txt", gpu=False).lines()
    assert (line.location, line.name, line.is_readable) == (f"a.txt:{location}", name, True)
    assert (line.requirement and str(line.requirement.specifier)) == specifier


@pytest.mark.parametrize("line", ["numpy=2.3", "numpy 2.3", "import numpy", "tensorflow=2.19"])
def test_a_line_that_pip_cannot_read_is_kept_as_written(tmp_path, line):
    (tmp_path / "a.txt").write_text(line)
    (read,) = read_requirements(tmp_path, "a.txt", gpu=True).lines()
    assert (read.text, read.is_readable) == (line, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"-r more.txt\n", "more.txt: cannot be read (no such file or directory); fix it, or"),
        (b"keras\n-r ../x.txt\n", "pip.txt:2: ../x.txt: expected a file in the project's"),
        (b"-c /etc/limits.txt\n", "pip.txt:1: /etc/limits.txt: expected a file in the "),
        (b"-r folder\n", "folder: cannot be read (is a directory)"),
        (b"keras\xff", "pip.txt: not UTF-8 text; "),
    ],
)
def test_files_that_cannot_be_in_the_image_are_refused(tmp_path, text, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "pip.txt").write_bytes(text)
    with pytest.raises(ImageError) as refusal:
        read_requirements(tmp_path, "pip.txt", gpu=False)
    assert str(refusal.value).startswith(message)


LOCAL = [
    *("./x.whl", ".", ".[train]", "-e .", "-e ../x", "--editable=.", "/home/me/x", "wheels/x.whl"),
    *("x-1.0-py3-none-any.whl", "x.tar.gz ; python_version > '3'", "file:///x", "-e file:///x"),
    *("x @ file:///croot/x_1/work", "-f wheels", "--find-links=wheels/", "-i file:///index"),
]
ELSEWHERE = [
    *("x", "x==1.0", "x @ https://h/x-1.0.whl", "https://h/x/y.whl", "git+https://h/x/y#egg=a"),
    *("-e git+ssh://git@h/x.git#egg=x", "git+git@h:x/y", "-f https://h/x", "-i https://h/simple"),
    *(
        "--pre",
        "--no-binary=:all:",
        "${WHEELS}/x.whl",
        "x @ file://${WHEELS}/x",
        "x~=1; a == 'b/c'",
    ),
]


@pytest.mark.parametrize("line", [*LOCAL, *ELSEWHERE])
def test_paths_of_this_machine_are_known(tmp_path, line):
    (tmp_path / "a.txt").write_text(line)
    (read,) = read_requirements(tmp_path, "a.txt", gpu=True).lines()
    assert read.is_local == (line in LOCAL)


@given(st.text(max_size=30))
def test_any_text_is_local_or_not(text):
    assert RequirementLine("a.txt:1", text, False, None).is_local in (True, False)


@pytest.mark.parametrize("name", ["pyproject.toml", "sub/uv.lock", "environment.yml"])
def test_files_of_other_tools_are_refused_with_the_command(tmp_path, name):
    with pytest.raises(ImageError) as refusal:
        read_requirements(tmp_path, name, gpu=True)
    command = EXPORTS[name.rpartition("/")[2]]
    assert f"{name} is not a requirements file of pip; run '{command}'" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "text", "is_found"),
    [
        ("pyproject.toml", '[project]\ndependencies = [\n  "numpy",\n]\n', True),
        ("pyproject.toml", "[tool.poetry.dependencies]\nnumpy = '*'\n", True),
        ("pyproject.toml", "[tool.ruff]\nline-length = 100\n", False),
        ("pyproject.toml", "[project]\ndependencies = []\n", False),
        ("uv.lock", 'version = 1\n\n[[package]]\nname = "numpy"\n', True),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=['numpy'])\n", True),
        ("setup.py", "from setuptools import setup\nsetup(name='x')\n", False),
        ("environment.yml", "name: x\ndependencies:\n  - numpy\n", True),
        ("Pipfile", '[packages]\nnumpy = "*"\n', True),
    ],
)
def test_a_file_of_another_tool_is_found_if_it_has_dependencies(tmp_path, name, text, is_found):
    (tmp_path / name).write_text(text)
    assert find_unread(tmp_path) == (name if is_found else None)


@pytest.mark.parametrize(("kind", "gpu"), [(None, False), ("TPU_V3", False), ("NVIDIA_L4", True)])
def test_a_cluster_has_gpus_if_one_machine_has_some(kind, gpu):
    workers = Pool(Machine("n1-standard-4", kind, 1 if kind else 0))
    assert Cluster(Pool(Machine("n1-standard-4")), workers).has_gpus is gpu
