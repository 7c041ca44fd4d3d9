"""The versions that make installs satisfy pyproject.toml on every Python and platform."""

import re
from functools import cache
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
EXTRAS = {
    "demo": {"local"},
    "test": {"local", "dev", "debug", "tensorboard", "tune"},
    "quick": (),
    "docs": {"docs"},
}
ENVIRONMENTS = [
    {"python_version": python, "python_full_version": f"{python}.1", "extra": ""}
    | {"sys_platform": platform, "platform_machine": machine, "os_name": "posix"}
    for python in ("3.10", "3.11", "3.12", "3.13")
    for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
]


@cache
def hashes(target: str) -> dict[Requirement, list[str]]:
    text = (ROOT / f"requirements/{target}.txt").read_text().replace(" \\\n    ", "\t")
    lines = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return {Requirement(line): rest for line, *rest in lines}


def required(target: str) -> list[str]:
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    lines = (ROOT / f"requirements/{target}.in").read_text().splitlines() + core.dependencies
    lines += [line for extra in EXTRAS[target] for line in core.optional_dependencies[extra]]
    return [line.partition("#")[0] for line in lines if not line.startswith("distlaunch[")]


def locked(target: str, environment: dict[str, str]) -> dict[str, str]:
    found = [
        each for each in hashes(target) if not each.marker or each.marker.evaluate(environment)
    ]
    versions = {canonicalize_name(each.name): str(each.specifier)[2:] for each in found}
    assert len(versions) == len(found), "two versions of one package"
    return versions


@pytest.mark.parametrize("target", EXTRAS)
def test_lock_has_hashed_versions_within_the_ranges_of_pyproject(target):
    lines = [Requirement(line) for line in required(target)]
    for environment in ENVIRONMENTS:
        versions = locked(target, environment)
        applicable = [
            each for each in lines if not each.marker or each.marker.evaluate(environment)
        ]
        assert len(applicable) > 14
        for each in applicable:
            version = versions.get(canonicalize_name(each.name), "0.dev0")
            assert version in each.specifier, f"{each}: run make lock UPGRADE="
        tested = locked("test", environment)
        assert {
            name for name in versions if tested.get(name, versions[name]) != versions[name]
        } == set()
    by_name = {requirement.name: each for requirement, each in hashes(target).items()}
    assert len(by_name["pyyaml"]) > 60  # Linux, macOS and Windows, each with four Pythons
    assert all(by_name.values())
    lines = [line for each in by_name.values() for line in each]
    assert [line for line in lines if not re.fullmatch("--hash=sha256:[0-9a-f]{64}", line)] == []
