"""A repository of images, spoken to without any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

    from distlaunch.image.reference import Reference


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """An image for linux/amd64 as a registry has it.

    Parameters
    ----------
    digest
        ``sha256:…`` of its manifest.
    manifest, config
        Both as plain data, in Docker's or OCI's words.
    """

    digest: str
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]


class Registry:
    """The images of one repository; a context manager that keeps its connections.

    Parameters
    ----------
    repository
        A reference; its tag or digest is what is meant where a method is not told another.

    Attributes
    ----------
    sent
        Bytes of blobs and manifests sent so far.
    """

    def __init__(self, repository: Reference) -> None:
        self.repository = repository
        self.sent = 0

    def digest(self, identifier: str | None = None) -> str | None:
        """Return the digest of the image for linux/amd64, None where there is no such image.

        Parameters
        ----------
        identifier
            A tag or a digest.

        Raises
        ------
        ImageError
            If the registry refuses or cannot be reached.
        """
        raise NotImplementedError

    def image(self, identifier: str | None = None) -> RemoteImage:
        """Return the image for linux/amd64 with its config; every digest is verified.

        Raises
        ------
        ImageError
            If there is no such image, or the registry refuses or cannot be reached.
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass
