"""Keys and other secrets, known by a file's name or by what is in it.

The shapes are those that their makers publish: PEM (RFC 7468), Google's service account keys and
application default credentials, and the prefixes that token issuers chose so that a leaked token
can be found. What is encrypted, or has no shape of its own, is not found.
"""

from __future__ import annotations

import re

SCANNED = 1 << 20  # bytes of a file that are looked at; what is larger is data

_REMEDY = (
    "leave it out in .dockerignore, and give the job a service_account "
    "or let the program ask Secret Manager"
)
_IN_A_URL = "a password in a URL"
_REMEDIES = {
    _IN_A_URL: "write ${NAME} for it, or leave it to pip's own configuration on this machine, "
    "as 'pip config set global.index-url URL' makes it"
}

# Files by name, as patterns: of a '*' at the start or at the end no more is asked.
NAMES = {
    ".env": "variables with secrets, as a rule",
    ".env.*": "variables with secrets, as a rule",
    ".netrc": "passwords",
    "_netrc": "passwords",
    ".pgpass": "passwords",
    ".git-credentials": "passwords",
    ".pypirc": "passwords",
    ".boto": "credentials of Google Cloud",
    "application_default_credentials.json": "credentials of Google Cloud",
    "credentials.db": "credentials of Google Cloud",
    "access_tokens.db": "credentials of Google Cloud",
    "id_rsa": "a private key",
    "id_dsa": "a private key",
    "id_ecdsa": "a private key",
    "id_ed25519": "a private key",
    "*.p12": "a private key",
    "*.pfx": "a private key",
    "*.jks": "a private key",
    "*.ppk": "a private key",
}
_ENDINGS = {name[1:]: what for name, what in NAMES.items() if name.startswith("*")}
HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist")

_TOKENS = {
    rb"AKIA[0-9A-Z]{16}": "an access key of AWS",
    rb"gh[pousr]_[A-Za-z0-9]{36}": "a token of GitHub",
    rb"github_pat_[A-Za-z0-9_]{60}": "a token of GitHub",
    rb"glpat-[A-Za-z0-9_-]{20}": "a token of GitLab",
    rb"xox[abprs]-[A-Za-z0-9-]{20}": "a token of Slack",
    rb"AIza[A-Za-z0-9_-]{35}": "an API key of Google",
    rb"GOCSPX-[A-Za-z0-9_-]{28}": "an OAuth client's secret of Google",
    rb"ya29\.[A-Za-z0-9_-]{40}": "an access token of Google",
    rb"hf_[A-Za-z]{34}": "a token of Hugging Face",
    rb"npm_[A-Za-z0-9]{36}": "a token of npm",
    rb"pypi-AgE[A-Za-z0-9_-]{50}": "a token of PyPI",
    rb"sk_live_[A-Za-z0-9]{24}": "a key of Stripe",
    rb"sk-(?:proj|ant|svcacct)-[A-Za-z0-9_-]{32}": "an API key",
}
_TOKEN = re.compile(
    rb"(?<![A-Za-z0-9_-])(?:" + b"|".join(b"(%s)" % shape for shape in _TOKENS) + rb")"
)
_KINDS = tuple(_TOKENS.values())
_LONG = b"\1" * 20  # the shortest of them, behind `_IN_TOKENS`
_IN_TOKENS = bytes(bytes([byte]).isalnum() or byte in b"_-" for byte in range(256))

_PEM = b"PRIVATE KEY"
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:[^-]|-(?!----)){0,400}?[A-Za-z0-9+/]{40}"  # its headers, if any, and what follows them
)
_GOOGLE = re.compile(rb'"type"\s*:\s*"(service_account|authorized_user)"')
_GOOGLES_SECRET = re.compile(rb'"(?:private_key|refresh_token)"\s*:\s*"[^"]{20}')
_PASSWORD_IN_URL = re.compile(rb"https?://[^\s/:@]+:(?!\$\{)[^\s/@]+@")
_REGISTRY_LOGIN = re.compile(rb'"auth"\s*:\s*"[A-Za-z0-9+/]{8,}={0,2}"')
_NPM_LOGIN = re.compile(rb"_(?:authToken|auth|password)\s*=\s*(?!\$\{)\S{8}")


def by_name(path: str) -> str | None:
    """Say what a file of this name holds, if that is a secret.

    Parameters
    ----------
    path
        Posix.
    """
    folder, _, name = path.lower().rpartition("/")
    if name in HARMLESS:
        return None
    if name.startswith(".env."):
        return NAMES[".env.*"]
    if name == "credentials" and folder.endswith(".aws"):
        return "credentials of AWS"
    return NAMES.get(name) or _ENDINGS.get(name[name.rfind(".") :])


def by_content(path: str, content: bytes) -> str | None:
    """Say what secret stands in a file, if one does.

    Parameters
    ----------
    path
        Posix; some files are only asked for what can be in them.
    content
        The first `SCANNED` bytes, or all.
    """
    if _PEM in content and (_PRIVATE_KEY.search(content) or _is_googles(content)):
        return "a service account's key" if _is_googles(content) else "a private key"
    if b"\0" in content:
        return None  # no text
    if b"refresh_token" in content and _is_googles(content):
        return "credentials of Google Cloud"
    return _token(content) or _login(path.rpartition("/")[2], content)


def remedy(what: str) -> str:
    """Return what to do about what `by_name` or `by_content` found."""
    return _REMEDIES.get(what, _REMEDY)


def _is_googles(content: bytes) -> bool:
    return bool(_GOOGLE.search(content) and _GOOGLES_SECRET.search(content))


def _token(content: bytes) -> str | None:
    """Look for tokens; few texts hold words that are as long as one, and those are told quickly."""
    if _LONG not in content.translate(_IN_TOKENS):
        return None
    found = _TOKEN.search(content)
    return _KINDS[found.lastindex - 1] if found and found.lastindex else None


def _login(name: str, content: bytes) -> str | None:
    """Look for passwords in the files in which tools keep them."""
    if name in ("pip.conf", "pip.ini", ".condarc") or name.endswith((".txt", ".in")):
        return _IN_A_URL if _PASSWORD_IN_URL.search(content) else None
    if name in ("config.json", ".dockercfg", ".dockerconfigjson"):
        return "a registry's password" if _REGISTRY_LOGIN.search(content) else None
    if name == ".npmrc":
        return "a password" if _NPM_LOGIN.search(content) else None
    return None
