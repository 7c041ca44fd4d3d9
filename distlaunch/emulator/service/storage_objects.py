"""Objects as the storage's JSON API tells of them, and the conditions that calls make.

https://cloud.google.com/storage/docs/json_api/v1/objects
"""

from __future__ import annotations

import base64
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.emulator.service.answers import Answer
from distlaunch.emulator.service.buckets import StorageRefused
from distlaunch.emulator.times import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.emulator.service.buckets import Buckets, Hashes, Stored

SETTABLE = (
    "contentType",
    "contentEncoding",
    "contentDisposition",
    "contentLanguage",
    "cacheControl",
    "customTime",
    "metadata",
)
"""What a client may say of an object beside its content."""

_NOT_MET = "At least one of the pre-conditions you specified did not hold."


class _NotModified(StorageRefused):
    """Nothing has changed; it is told without content."""

    def __init__(self) -> None:
        super().__init__(304, "notModified", "Not Modified")

    @property
    def answer(self) -> Answer:
        return Answer(b"", 304)


def resource(buckets: Buckets, stored: Stored, origin: str) -> dict[str, Any]:
    """Return an object's JSON."""
    hashes, attributes = buckets.hashes(stored), stored.attributes
    bucket, name = stored.bucket, quote(stored.name, safe="")
    generation = str(stored.generation)
    created = format_time(datetime.fromtimestamp(stored.generation / 1e6, timezone.utc))
    updated = format_time(datetime.fromtimestamp(attributes.updated / 1e6, timezone.utc))
    return {
        "kind": "storage#object",
        "id": f"{bucket}/{stored.name}/{generation}",
        "selfLink": f"{origin}/storage/v1/b/{bucket}/o/{name}",
        "mediaLink": f"{origin}/download/storage/v1/b/{bucket}/o/{name}"
        f"?generation={generation}&alt=media",
        "name": stored.name,
        "bucket": bucket,
        "generation": generation,
        "metageneration": str(attributes.metageneration),
        "storageClass": "STANDARD",
        "size": str(stored.size),
        "md5Hash": hashes.md5,
        "crc32c": hashes.crc32c,
        "etag": etag(stored),
        "timeCreated": created,
        "updated": updated,
        "timeStorageClassUpdated": created,
        **attributes.said,
        "contentType": stored.content_type,
    }


def etag(stored: Stored) -> str:
    """Return what changes with the object and with what is said of it."""
    made = f"{stored.generation}/{stored.attributes.metageneration}"
    return base64.b64encode(made.encode()).decode()


def settable(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an object's JSON a client may say.

    Raises
    ------
    StorageRefused
        If it is not said as text.
    """
    known = {key: value for key, value in said.items() if key in SETTABLE}
    for key, value in known.items():
        fits = isinstance(value, dict) if key == "metadata" else isinstance(value, str)
        if value is not None and not fits:
            raise StorageRefused(400, "invalid", f"Invalid value for: {key}")
    return known


def conditions(
    options: Mapping[str, str], *, of_source: bool = False
) -> Callable[[Stored | None], None]:
    """Return what raises where an object is not as the options of a call ask for it.

    Parameters
    ----------
    of_source
        Whether they are those of a copy's source.
    """
    before = "ifSource" if of_source else "if"
    asked = {
        name: _whole(options[f"{before}{name}"])
        for name in (
            "GenerationMatch",
            "GenerationNotMatch",
            "MetagenerationMatch",
            "MetagenerationNotMatch",
        )
        if f"{before}{name}" in options
    }

    def check(stored: Stored | None) -> None:
        generation = stored.generation if stored else 0
        metageneration = stored.attributes.metageneration if stored else 0
        if asked.get("GenerationMatch", generation) != generation:
            raise StorageRefused(412, "conditionNotMet", _NOT_MET)
        if asked.get("MetagenerationMatch", metageneration) != metageneration:
            raise StorageRefused(412, "conditionNotMet", _NOT_MET)
        if generation == asked.get("GenerationNotMatch"):
            raise _NotModified
        if metageneration == asked.get("MetagenerationNotMatch"):
            raise _NotModified

    return check


def of_generation(stored: Stored, options: Mapping[str, str], name: str = "generation") -> Stored:
    """Return an object if it is of the generation asked for, if one is.

    Raises
    ------
    StorageRefused
        If it is of another; older ones are not kept.
    """
    if name in options and _whole(options[name]) != stored.generation:
        text = f"No such object: {stored.bucket}/{stored.name}#{options[name]}"
        raise StorageRefused(404, "notFound", text)
    return stored


def check_hashes(hashes: Hashes, said: Mapping[str, Any]) -> None:
    """See to it that content is what its sender says by the hashes that came with it.

    Raises
    ------
    StorageRefused
        If it is not.
    """
    for name, key, made in (("CRC32C", "crc32c", hashes.crc32c), ("MD5", "md5Hash", hashes.md5)):
        if said.get(key, made) != made:
            text = f'Provided {name} "{said[key]}" doesn\'t match calculated {name} "{made}".'
            raise StorageRefused(400, "invalid", text)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise StorageRefused(400, "invalid", f"Invalid argument: {text!r} is no generation.")
    return int(text)
