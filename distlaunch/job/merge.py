"""Deep merging of plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def deep_merge(
    base: Mapping[str, Any], override: Mapping[str, Any], *, drop_none: bool = False
) -> dict[str, Any]:
    """Return `base` with `override` merged into it; with `drop_none`, None removes a key."""
    merged = dict(base)
    for key, value in override.items():
        below = merged.get(key)
        if isinstance(value, dict) and (isinstance(below, dict) or drop_none):
            merged[key] = deep_merge(
                below if isinstance(below, dict) else {}, value, drop_none=drop_none
            )
        elif value is None and drop_none:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged
