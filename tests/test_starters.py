"""Every starter is a whole project with a job file that can be launched."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from distlaunch.image.requirements import read_requirements
from distlaunch.job.load import load_job_file
from distlaunch.job.model import Machine
from distlaunch.resources import FACTS, starters
from distlaunch.scaffold import plan

KEYS = {
    *("description", "extends", "args", "env", "include", "requirements", "cluster", "script"),
}
CLUSTER = {"machine", "accelerator", "workers", "parameter_servers", "evaluator"}


@pytest.mark.parametrize("name", starters())
def test_facts_are_of_the_known_keys(name):
    facts = starters()[name]
    assert facts.keys() <= KEYS, FACTS
    assert facts.get("cluster", {}).keys() <= CLUSTER
    assert "\n" not in facts["description"]


@pytest.mark.parametrize("name", starters())
def test_a_starter_is_a_whole_project(name, tmp_path):
    project = plan(tmp_path / "some-name", name)
    project.write(tmp_path)
    job = load_job_file(tmp_path / "distlaunch.yaml")
    program = job.script or f"{job.module.replace('.', '/')}.py"
    assert (tmp_path / program).is_file()
    assert all((tmp_path / included).exists() for included in job.image.include)
    requirements = read_requirements(tmp_path, "requirements.txt", gpu=None)
    assert all(line.requirement for line in requirements.lines())
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Expected" in readme
    assert len(readme.splitlines()) < 120
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert not path.name.endswith((".j2", ".pyc", ".part", "starter.yaml", "ABOUT.md"))
        assert b"{{" not in path.read_bytes()
        if path.suffix == ".py":
            ast.parse(path.read_text(encoding="utf-8"), str(path))


def test_a_job_file_has_the_facts_of_its_starter(tmp_path, monkeypatch):
    facts = {
        "description": "x",
        "args": ["--epochs=3", "--sync-batch-norm"],
        "env": {"A": "1"},
        "requirements": ["six>=1.16"],
        "cluster": {
            "machine": "n1-standard-8",
            "accelerator": {"type": "NVIDIA_TESLA_T4", "count": 4},
            "workers": 3,
            "parameter_servers": 2,
            "evaluator": True,
        },
    }
    monkeypatch.setattr("distlaunch.resources.starters", lambda: {"digits": facts})
    plan(tmp_path, "digits").write(tmp_path)
    job = load_job_file(tmp_path / "distlaunch.yaml")
    assert job.args == ("--epochs=3", "--sync-batch-norm")
    assert job.env == {"A": "1"}
    assert job.image.include == ()
    assert (
        job.cluster.describe() == "7 tasks: chief + 3 workers + 2 parameter servers + 1 evaluator"
    )
    machine = Machine("n1-standard-8", "NVIDIA_TESLA_T4", 4)
    assert job.cluster.chief.machine == job.cluster.workers.machine == machine
    assert (tmp_path / "requirements.txt").read_text().endswith("\nsix>=1.16\n")
    monkeypatch.setattr(
        "distlaunch.resources.starters", lambda: {"digits": {"cluster": {"workers": 0}}}
    )
    plan(tmp_path, "digits").write(tmp_path, overwrite=True)
    assert load_job_file(tmp_path / "distlaunch.yaml").cluster.describe() == "1 task: chief"


def installed_by(requirements: list[Requirement]) -> set[str]:
    """Return the names of the distributions that pip installs, from the metadata of those here."""
    found: set[tuple[str, str]] = set()
    waiting = [(each, "") for each in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {(name, each) for each in ("", *requirement.extras)} - found:
            found.add(wanted)
            # Not here: another build of TensorFlow, or what the tests do not need.
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                more = importlib.metadata.requires(name) or ()
                waiting += [(Requirement(each), wanted[1]) for each in more]
    return {name for name, _ in found}


def modules_of(source: Path) -> set[str]:
    """Return the top-level modules that a file imports at once, or lazily by a with block."""
    nodes = ast.parse(source.read_text(encoding="utf-8")).body
    blocks = [child for node in nodes if isinstance(node, ast.With) for child in node.body]
    modules = set()
    for node in (*nodes, *blocks):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
    return {module.partition(".")[0] for module in modules}


TFDS = [name for name, facts in starters().items() if "datasets" in str(facts.get("requirements"))]


@pytest.mark.parametrize("name", TFDS)
def test_a_starter_installs_what_tfds_imports_for_a_download(name, tmp_path):
    plan(tmp_path, name).write(tmp_path)
    listed = read_requirements(tmp_path, "requirements.txt", gpu=None).lines()
    names = installed_by([line.requirement for line in listed if line.requirement])
    core = Path(find_spec("tensorflow_datasets").submodule_search_locations[0], "core")
    sources = [core / "dataset_builder.py", core / "dataset_info.py", *core.glob("download/*.py")]
    imported = {
        module
        for source in sources
        if not source.stem.endswith("_test")
        for module in modules_of(source)
    }
    assert {"importlib_resources", "absl", "promise"} <= imported
    distributions = importlib.metadata.packages_distributions()
    missing = {
        module
        for module in imported - sys.stdlib_module_names - {"tensorflow_datasets"}
        if names.isdisjoint(map(canonicalize_name, distributions.get(module, [module])))
    }
    assert not missing


def test_every_starter_is_documented(checkout):
    text = (checkout / "docs/look-up/starters.md").read_text(encoding="utf-8")
    assert not [name for name in starters() if name not in text]
