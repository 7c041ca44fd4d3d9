"""What is built, installed and imported, also without TensorFlow and by an old Python."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import pytest

import distlaunch
from distlaunch import resources

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import release_archives

sys.path.pop(0)

SOURCES = Path(distlaunch.__file__).parent
TRAINER = resources.trainer_package()


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(checkout, tmp_path_factory) -> Path:
    """The folder with an sdist and with the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "-o", folder, cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def bare(built, tmp_path_factory) -> Path:
    """An environment with the wheel, and with the packages here but TensorFlow; its `bin`.

    `make demo` and `make quick` install the dependencies alone.
    """
    folder = tmp_path_factory.mktemp("bare")
    (wheel,) = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "--python", "env", "install", "--no-deps", "-q", wheel]
    for words in ([sys.executable, "-m", "venv", "--without-pip", "env"], install):
        done = run(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
    [packages] = folder.glob("env/lib/python*/site-packages")
    without = "import sys; sys.modules.update(tensorflow=None, keras=None)"
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{without}\n")
    return folder / "env" / "bin"


def data_files() -> set[str]:
    """Return the files of projects and templates, by their paths from the checkout's folder."""
    skeleton, templates = resources.skeleton(), resources.templates()
    projects = {f"trainer_skeleton/{name}" for name in files_of(skeleton)}
    runtime = {name for name in projects if name.startswith("trainer_skeleton/runtime/")}
    return projects - runtime | {f"templates/{name}" for name in files_of(templates)}


def files_of(root: Path) -> set[str]:
    by_products = {"__pycache__", ".pytest_cache", ".distlaunch", ".records-index.json"}
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not by_products & set(path.parts)
    }


@pytest.mark.slow
def test_wheel_has_both_packages_skeleton_and_templates_only(built):
    (wheel,) = built.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    packages = (SOURCES, TRAINER)
    modules = {str(p.relative_to(root.parent)) for root in packages for p in root.rglob("*.py")}
    data = {f"distlaunch/{name}" for name in data_files()}
    lists = {"job/catalogue.json", "job/key_meanings.json", "price/list_prices.json"}
    others = {"py.typed", "skill/SKILL.md", *lists}
    packed = {name for name in packed if not name.startswith("distlaunch/site/")}
    assert packed == modules | data | {f"distlaunch/{name}" for name in others}


@pytest.mark.slow
def test_wheel_has_the_site_if_it_is_built(built, checkout, bare, tmp_path):
    is_built = (checkout / "build/site/topics.json").exists()  # CI runs `make docs` first
    address = run(bare / "distlaunch", "docs", "--print", "index", cwd=tmp_path).stdout
    assert address.startswith("file://" if is_built else "https://")
    (wheel,) = built.glob("*.whl")
    site = [name for name in zipfile.ZipFile(wheel).namelist() if "distlaunch/site/" in name]
    assert ("distlaunch/site/search/search_index.js" in site) == is_built
    assert not [name for name in site if name.endswith((".map", "search_index.json"))]


@pytest.mark.slow
def test_sdist_has_every_tracked_file(built, checkout):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run("git", "ls-files", cwd=checkout).stdout  # nothing outside a clone
    assert set(tracked.splitlines()) <= packed
    assert data_files() <= packed
    assert {"LICENSE", "Makefile", ".ci/run", "tests/test_package.py"} <= packed


@pytest.mark.slow
def test_release_check_accepts_the_archives_and_finds_mistakes(built):
    for path in built.iterdir():
        assert list(release_archives.archive_problems(path, distlaunch.__version__)) == []
        problems = release_archives.archive_problems(path, "2")
        assert list(problems) == [f"version {distlaunch.__version__}, not 2"]
    wrong = built.parent / "a-1-py3-none-any.whl"
    text = "Metadata-Version: 2.4\nName: a\nVersion: 1\nLicense-Expression: MIT\n\n[a](docs/a.md)"
    with zipfile.ZipFile(wrong, "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", text)
        archive.writestr("a/ATTRIBUTION.md", "Licence: CC BY 4.0")
    problems = " ".join(release_archives.archive_problems(wrong, "1"))
    parts = (
        "readme: docs/a.md",
        "no URL: Source",
        "Python 3.13",
        "licence files: {}",
        ": a/ATTRIBUTION",
    )
    assert [part for part in parts if part not in problems] == []


@pytest.mark.slow
def test_init_and_render_from_a_wheel_as_from_a_checkout(bare, cli, tmp_path):
    wheel, checkout = tmp_path / "wheel/digits", tmp_path / "checkout/digits"
    for words in (("init",), ("render", "--output", "rendered")):
        for folder, command in ((wheel, partial(run, bare / "distlaunch")), (checkout, cli)):
            folder.mkdir(parents=True, exist_ok=True)
            assert command(*words, cwd=folder).returncode == 0
    files = files_of(checkout)
    assert len(files) > 20
    assert files == files_of(wheel)
    for name in files:
        assert (wheel / name).read_bytes() == (checkout / name).read_bytes()


@pytest.mark.slow
def test_local_without_tensorflow_names_the_packages_to_install(bare, tmp_path):
    assert run(bare / "distlaunch", "--help", cwd=tmp_path).returncode == 0
    done = run(bare / "python", "-m", "distlaunch", "--version", cwd=tmp_path)
    assert done.stdout == f"distlaunch {distlaunch.__version__}\n"
    run(bare / "distlaunch", "init", cwd=tmp_path)
    done = run(bare / "distlaunch", "local", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("distlaunch: error: ")
    assert "run pip install 'keras>=3.12,<3.16' 'tensorflow" in done.stderr
    assert done.stderr.count("\n") == 1


def imported_names(source: Path) -> set[str]:
    """Return the packages that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def test_both_packages_have_one_version():
    text = (TRAINER / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{distlaunch.__version__}"' in text


@pytest.mark.parametrize(
    ("folder", "names"),
    [(SOURCES, {"tensorflow", "keras", "numpy"}), (resources.skeleton(), {"distlaunch"})],
)
def test_the_command_imports_no_tensorflow_and_the_skeleton_no_distlaunch(folder, names):
    importing = [path for path in folder.rglob("*.py") if names & imported_names(path)]
    assert importing == []


@pytest.mark.parametrize("version", [(3, 9), (3, 14), (2, 7)])
@pytest.mark.parametrize("start", ["runpy.run_module('distlaunch', run_name='__main__')", "script"])
def test_another_python_is_refused_in_one_line(version, start):
    if start == "script":
        start = "from distlaunch.__main__ import main; sys.exit(main())"
    code = f"import runpy, sys; sys.version_info = {(*version, 0, 'final', 0)}; {start}"
    done = run(sys.executable, "-c", code, cwd=Path.cwd())
    assert done.returncode == 1
    needed = f"needs Python 3.10 to 3.13, and this is Python {version[0]}.{version[1]} ("
    assert done.stderr.startswith(f"distlaunch: error: {needed}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_first_modules_can_be_parsed_by_an_old_python(name):
    tree = ast.parse((SOURCES / name).read_text(), feature_version=(3, 6))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "annotations" not in {alias.name for node in imported for alias in node.names}


def test_remedies_name_packages_as_the_extras_do(checkout):
    text = (checkout / "pyproject.toml").read_text()
    known = {name.strip() for name in re.findall(r'"([^";]+)', text)}
    sources = [
        path.read_text()
        .replace("{KERAS}", resources.KERAS)
        .replace("{TENSORFLOW}", resources.TENSORFLOW)
        for path in (checkout / "distlaunch").rglob("*.py")
    ]
    assert not [text for text in sources if "distlaunch[" in text]
    named = {
        requirement
        for text in sources
        for words in re.findall(r"pip install (?:\"\s*f?\")?('[^\"]*')", text)
        for requirement in re.findall(r"'([a-z]+[^' ]*)'", words)
    }
    assert {"optuna>=4,<6", "tensorflow>=2.21,<2.22"} <= named
    assert named <= known


def test_lines_to_look_for_in_the_first_job_are_printed_by_the_sources(checkout):
    page = (checkout / "docs/release.md").read_text().partition("## The first job")[2]
    table = "".join(re.findall(r"^\|[^|]*\| ([^|]*)\|", page.partition("\n## ")[0], re.MULTILINE))
    starts = re.findall("`((?:no GPU, |[a-z ])+:?)[^`]*`", table)  # up to the first value
    assert len(starts) > 9
    modules = [path for folder in (SOURCES, TRAINER) for path in folder.rglob("*.py")]
    source = "".join(path.read_text() for path in modules)
    assert [start for start in starts if f'"{start}' not in source] == []
