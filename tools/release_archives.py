"""Checks of sdists, wheels and installed packages: metadata, files, licences."""

from __future__ import annotations

import re
import tarfile
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from package_readme import LINK
from packaging.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

# The licence of a file by its words, as an SPDX identifier.
LICENCES = {
    "Apache License": "Apache-2.0",
    "CC BY 4.0": "CC-BY-4.0",
    "CC0 1.0": "CC0-1.0",
    "Permission is hereby granted": "MIT",
    "Redistribution and use in source": "BSD-3-Clause",
}
IS_LICENCE = re.compile("LICEN[CS]E|ATTRIBUTION|NOTICE|COPYING", re.IGNORECASE)
# What a dependency may be licensed under: permissive, or copyleft of its own files only.
ALLOWED = {"Apache", "BSD", "LGPL", "MIT", "MPL", "PSF"}


def contents(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel or an sdist, an sdist's without its top folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(path) as sdist:
        streams = {each.name.partition("/")[2]: sdist.extractfile(each) for each in sdist}
        return {name: stream.read() for name, stream in streams.items() if stream}


def archive_problems(path: Path, version: str) -> Iterator[str]:
    """Give what is wrong with an sdist or a wheel. Invalid metadata are an error."""
    files = contents(path)
    [name] = [name for name in files if re.fullmatch(r"[^/]+\.dist-info/METADATA|PKG-INFO", name)]
    metadata = Metadata.from_email(files[name], validate=True)
    if str(metadata.version) != version:
        yield f"version {metadata.version}, not {version}"
    for _, link in LINK.findall(metadata.description or ""):
        yield f"relative link in the readme: {link}"
    for url in {"Documentation", "Source", "Issues"} - (metadata.project_urls or {}).keys():
        yield f"no URL: {url}"
    named_pythons = {each[-4:] for each in metadata.classifiers or ()}
    for python in {"3.10", "3.11", "3.12", "3.13"} - named_pythons:
        yield f"no classifier of Python {python}"
    folder = PurePosixPath(name).parent / ("licenses" if path.suffix == ".whl" else "")
    named = [str(folder / each) for each in metadata.license_files or ()]
    licences = {each: licence_of(files.get(each, b"")) for each in named}
    expression = set((metadata.license_expression or "").split(" AND "))
    if set(licences.values()) != expression:
        yield f"the licence is {sorted(expression)}, the licence files: {licences}"
    texts = [files.get(each) for each in named]
    for other, text in files.items():
        if IS_LICENCE.search(PurePosixPath(other).name) and text not in texts:
            yield f"not in license-files: {other}"


def licence_of(text: bytes) -> str:
    """Return the licence of a licence file."""
    return next((spdx for words, spdx in LICENCES.items() if words in text.decode()), "unknown")


def dependency_problems(folder: Path, document: str) -> Iterator[str]:
    """Give what is wrong with licences of installed packages, by docs/dependencies.md."""
    table = document.partition("\n## Licences")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    documented = {name: licence for licence, names in rows for name in names.split(", ")}
    for package in distributions(path=[str(folder)]):
        name = package.name.lower().replace("_", "-")
        licence, stated = documented.get(name), stated_licence(package)
        if name in {"distlaunch", "pip"}:
            continue
        if licence not in ALLOWED:
            yield f"{name} is not in docs/dependencies.md; it states {stated!r}"
        elif not re.search(rf"\b{licence}", stated) or re.search(r"\bA?GPL", stated):
            yield f"{name} is documented as {licence}, and states {stated!r}"


def stated_licence(package: Distribution) -> str:
    """Return a package's licence by its metadata, otherwise by its licence file."""
    fields = package.metadata.json
    if expression := fields.get("license_expression"):
        return str(expression)
    classifiers = [each for each in fields.get("classifier", ()) if "License" in each]
    files = [file for file in package.files or () if IS_LICENCE.search(file.name)]
    stated = " ".join([str(fields.get("license", ""))[:100], *classifiers]).strip()
    stated = stated or " ".join(file.read_text()[:100] for file in files)
    return stated.replace("Python Software Foundation", "PSF")
