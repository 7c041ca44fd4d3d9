"""Adds the site that `make docs` has built to the wheel and the sdist; without one, nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What a site in English that is opened from a file does not need.
UNNEEDED = ("**/*.map", "assets/javascripts/lunr/**/*", "search/search_index.json")


class SiteHook(BuildHookInterface):
    """Adds the site."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        site = Path(self.root, "build", "site")
        if version == "editable" or not (site / "topics.json").is_file():
            return
        unneeded = {path for pattern in UNNEEDED for path in site.glob(pattern)}
        folder = "distlaunch/site" if self.target_name == "wheel" else "build/site"
        for path in {path for path in site.rglob("*") if path.is_file()} - unneeded:
            name = f"{folder}/{path.relative_to(site).as_posix()}"
            build_data["force_include"][str(path)] = name
