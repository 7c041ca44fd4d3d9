"""Makes relative links of README.md absolute in a package's metadata; hatchling runs it."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# ](docs/page.md), src="docs/picture.svg": neither an address nor an anchor of the page itself
LINK = re.compile(r"""(\]\(|\b(?:src|srcset|href)=")(?![a-z]+:|#)([^)"\s]+)""")
PICTURES = (".gif", ".jpg", ".png", ".svg", ".webp")


class ReadmeHook(MetadataHookInterface):
    """Adds the readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        def absolute(link: re.Match[str]) -> str:
            view = "raw" if link[2].endswith(PICTURES) else "blob"  # on GitHub
            return f"{link[1]}{metadata['urls']['Source']}/{view}/v{metadata['version']}/{link[2]}"

        text = LINK.sub(absolute, Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
