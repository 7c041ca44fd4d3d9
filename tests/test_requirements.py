"""The versions that make installs satisfy pyproject.toml on every Python and platform."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parent.parent
PYPROJECT = ProjectMetadata(str(ROOT), PluginManager()).core
EXTRAS = {"demo": {"local"}, "test": {"local", "dev", "debug", "tensorboard", "tune"}, "quick": ()}
PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
ENVIRONMENTS = [
    {"python_version": python, "python_full_version": f"{python}.1", "extra": ""}
    | {"sys_platform": platform, "platform_machine": machine, "os_name": "posix"}
    for python in ("3.10", "3.11", "3.12", "3.13")
    for platform, machine in PLATFORMS
]


def required(target: str) -> list[str]:
    """Return what pyproject.toml and a target's own list name."""
    lines = (ROOT / "requirements" / f"{target}.in").read_text().splitlines()
    lines += [line for extra in EXTRAS[target] for line in PYPROJECT.optional_dependencies[extra]]
    lines += PYPROJECT.dependencies
    return [line for line in lines if not line.startswith("distlaunch[")]


@cache
def entries(target: str) -> list[tuple[Requirement, list[str]]]:
    """Return the requirements of a lock file, each with its hashes."""
    text = re.sub("^#.*\n", "", lock_file(target), flags=re.MULTILINE).replace(" \\\n    ", "\t")
    lines = [line.split("\t") for line in text.splitlines()]
    return [(Requirement(line), hashes) for line, *hashes in lines]


def lock_file(target: str) -> str:
    return (ROOT / "requirements" / f"{target}.txt").read_text()


def applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


def locked(target: str, environment: dict[str, str]) -> dict[str, str]:
    """Return what an environment gets: versions by name."""
    applicable = [each for each, _ in entries(target) if applies(each, environment)]
    versions = {canonicalize_name(each.name): str(each.specifier)[2:] for each in applicable}
    assert len(versions) == len(applicable), "two versions of one package"
    return versions


def unsatisfied(lines: Iterable[str], target: str, environment: dict[str, str]) -> list[str]:
    """Return those of some requirements that the locked versions do not satisfy."""
    versions = locked(target, environment)
    applicable = [each for each in map(Requirement, lines) if applies(each, environment)]
    assert len(applicable) > 14
    names = {each: canonicalize_name(each.name) for each in applicable}
    return [
        f"{each}: {versions.get(name)}"
        for each, name in names.items()
        if not (name in versions and each.specifier.contains(versions[name], prereleases=True))
    ]


@pytest.mark.parametrize("target", EXTRAS)
def test_locked_versions_are_in_the_ranges_of_pyproject(target):
    for environment in ENVIRONMENTS:
        assert unsatisfied(required(target), target, environment) == [], "run make lock UPGRADE="


@pytest.mark.parametrize("target", EXTRAS)
def test_locked_packages_have_what_they_require(target):
    here = {"extra": ""}
    lines = [line for name in locked(target, here) for line in metadata.requires(name) or ()]
    missing = unsatisfied(lines, target, here)
    assert [line for line in missing if not line.startswith("tensorflow<")] == []  # tensorflow-cpu


@pytest.mark.parametrize("target", EXTRAS)
def test_files_of_locked_versions_have_hashes_and_no_address(target):
    hashes = {each.name: hashes for each, hashes in entries(target)}
    assert all(hashes.values())
    assert len(hashes["pyyaml"]) > 60  # Linux, macOS and Windows, each with four Pythons
    pattern = re.compile("--hash=sha256:[0-9a-f]{64}")
    assert all(pattern.fullmatch(each) for lines in hashes.values() for each in lines)
    assert "://" not in lock_file(target)


def test_targets_share_their_versions():
    for environment in ENVIRONMENTS:
        tested = locked("test", environment).items()
        assert locked("demo", environment).items() <= tested
        assert locked("quick", environment).items() <= tested
