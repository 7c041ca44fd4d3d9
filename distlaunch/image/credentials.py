"""Who we are to a registry: by Docker's configuration, and by google-auth for Google's."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name with a password, or a token that stands for both.

    Parameters
    ----------
    identity_token
        What OAuth calls a refresh token; with one there is neither name nor password.
    source
        Where they are from, as ``/home/ann/.docker/config.json``; for messages.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    source: str = ""


def credentials(host: str) -> Credentials | None:
    """Find out who we are to a registry, None for nobody in particular.

    Docker's configuration is read as Docker reads it (``DOCKER_CONFIG``, ``auths``, ``credHelpers``,
    ``credsStore``). For ``*.pkg.dev`` and ``gcr.io`` google-auth comes before Docker's helpers.

    Parameters
    ----------
    host
        The registry, as `Reference.host` says it.

    Raises
    ------
    ImageError
        If Docker's configuration cannot be read, or its credential helper is broken.
    """
    raise NotImplementedError
