"""A package index in a folder, and base images for its wheels."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SITE_PACKAGES = "usr/local/lib/python3.11/site-packages"
ON_PATH = {"Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHON_VERSION=3.11.7"]}
BASE_FILES = {
    "usr/local/bin/python3.11": b"",
    "usr/lib/x86_64-linux-gnu/libc.so.6": b"... stable release version 2.36.",
    f"{SITE_PACKAGES}/pip-24.0.dist-info/METADATA": b"",
    f"{SITE_PACKAGES}/old-1.dist-info/METADATA": b"",
}


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1",
    *,
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
    files: dict[str, str | bytes] | None = None,
    scripts: tuple[str, ...] = (),
) -> None:
    """Write a wheel."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Requires-Dist: {each}" for each in requires]
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""]
    content: dict[str, str | bytes] = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        **(files or {}),
    }
    content[f"{info}/METADATA"] = "\n".join(metadata)
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        lines = [f"{each} = {name}:main" for each in scripts]
        content[f"{info}/entry_points.txt"] = "\n".join(["[console_scripts]", *lines])
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)


def _digest(data: str | bytes) -> str:
    digest = hashlib.sha256(data.encode() if isinstance(data, str) else data).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
