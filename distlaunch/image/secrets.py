"""Detect keys and other secrets by a file's name or content.

The formats are the published ones: PEM (RFC 7468), Google's service account keys and application
default credentials, and the prefixes of tokens. Encrypted secrets and secrets without a format are
not found.
"""

from __future__ import annotations

import base64
import re

SCANNED = 10 << 20  # bytes of a file that are scanned; larger files are data
OVERLAP = 1 << 13  # bytes by which scanned blocks overlap, more than any secret has

_REMEDY = (
    "exclude it in .dockerignore, and give the job a service_account "
    "or read the value from Secret Manager"
)
_IN_A_URL = "a password in a URL"
_REMEDIES = {
    _IN_A_URL: "read it from an environment variable or Secret Manager; for pip write ${NAME}, or "
    "put it into pip's configuration on this machine with 'pip config set global.index-url URL'"
}

# File names by kind; '*' is supported at the start and at the end only.
_FILES = {
    "variables, often with secrets": ".env .env.* *.env .envrc",
    "secrets": "secrets.toml .secrets.toml secrets.yaml secrets.yml secrets.json",
    "passwords": ".netrc _netrc .pgpass pgpass.conf .my.cnf .mylogin.cnf .htpasswd "
    ".git-credentials .pypirc rclone.conf *.kdbx",
    "an API key of Kaggle": "kaggle.json",
    "a token of Databricks": ".databrickscfg",
    "a token of Vault": ".vault-token",
    "a token of Terraform": ".terraformrc credentials.tfrc.json",
    "credentials of AWS": ".s3cfg",
    "credentials of Azure": "msal_token_cache.json",
    "credentials of Google Cloud": ".boto application_default_credentials.json credentials.db "
    "access_tokens.db",
    "credentials of Kubernetes": "*.kubeconfig",
    "a private key": "id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk *.p12 *.pfx "
    "*.jks *.keystore *.ppk",
}
NAMES = {name: kind for kind, names in _FILES.items() for name in names.split()}
_ENDINGS = {name[1:]: kind for name, kind in NAMES.items() if name.startswith("*")}
# Not patterns of the rendered .dockerignore, because folders may have these names.
_PATHS = {
    ".aws/credentials": "credentials of AWS",
    ".kube/config": "credentials of Kubernetes",
    "kubeconfig": "credentials of Kubernetes",
    "credentials": "credentials",
}
_EXAMPLE_KINDS = ("example", "sample", "template", "dist")
HARMLESS = tuple(
    name for kind in _EXAMPLE_KINDS for name in (f".env.{kind}", f"{kind}.env", f".{kind}.env")
)

ALLOW = "distlaunch: allow-secret"  # and a path, as a comment of an ignore file
_ALLOWED = re.compile(rf"^# {ALLOW} (.+)$", re.MULTILINE)


def _in_base64(*starts: bytes) -> bytes:
    """Return a pattern for the base64 encoding of what begins with one of these."""
    encodings = [base64.b64encode(start[: len(start) // 3 * 3]) for start in starts]
    return rb"(?:%s)[A-Za-z0-9+/\s\\]{40}" % b"|".join(encodings).replace(b"+", rb"\+")


# Each matches at the beginning of a word of at least 20 letters, digits, '_' and '-'.
_TOKENS = {
    # AWS, "IAM identifiers", docs.aws.amazon.com
    rb"A(?:KIA|SIA)[A-Z2-7]{16}(?![A-Za-z0-9_-])": "an access key of AWS",
    # GitHub, "Behind GitHub's new authentication token formats", github.blog
    rb"gh[pousr]_[A-Za-z0-9]{36}": "a token of GitHub",
    rb"github_pat_[A-Za-z0-9_]{60}": "a token of GitHub",
    # GitLab, "Token overview", docs.gitlab.com
    rb"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat)-[A-Za-z0-9_-]{20}": "a token of GitLab",
    # Slack, "Token types", docs.slack.dev
    rb"xox[abeoprs]-[A-Za-z0-9-]{20}": "a token of Slack",
    rb"xapp-[0-9]-[A-Za-z0-9-]{20}": "a token of Slack",
    # Google, "Supported secret scanning patterns", docs.github.com
    rb"AIza[A-Za-z0-9_-]{35}": "an API key of Google",
    rb"GOCSPX-[A-Za-z0-9_-]{28}": "an OAuth client's secret of Google",
    rb"(?<=ya29\.)[A-Za-z0-9_-]{40}": "an access token of Google",
    # Hugging Face, "User access tokens", huggingface.co
    rb"(?:hf|api_org)_[A-Za-z0-9]{34}": "a token of Hugging Face",
    # PyPI, "API tokens" in its help: a macaroon that begins with the index's host name
    rb"pypi-AgE[A-Za-z0-9_-]{50}": "a token of PyPI",
    # Anthropic and OpenAI, in the form of their consoles (T3BlbkFJ is 'OpenAI' in base64)
    rb"sk-ant-[A-Za-z0-9_-]{32}": "an API key of Anthropic",
    rb"sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32}|[A-Za-z0-9]{20}T3BlbkFJ)": (
        "an API key of OpenAI"
    ),
    # NVIDIA NGC, "Generating API keys", docs.nvidia.com
    rb"nvapi-[A-Za-z0-9_-]{60}": "an API key of NVIDIA",
    # Databricks, "Personal access tokens", docs.databricks.com
    rb"dapi[0-9a-f]{32}(?![A-Za-z0-9_])": "a token of Databricks",
    _in_base64(
        *(b"-----BEGIN %sPRIVATE KEY" % kind for kind in (b"", b"RSA ", b"EC ", b"DSA ")),
        b"-----BEGIN OPENSSH PRIVATE KEY",
        b"-----BEGIN ENCRYPTED PRIVATE KEY",
    ): "a private key in base64",
    _in_base64(
        b'{\n  "type": "service_account"',
        b'{"type": "service_account"',
        b'{"type":"service_account"',
    ): "a service account's key in base64",
}
_TOKEN = re.compile(b"|".join(b"(%s)" % pattern for pattern in _TOKENS))
_KINDS = tuple(_TOKENS.values())
_LONG = b"\1" * 20  # the shortest of them, behind `_IN_TOKENS`
_IN_TOKENS = bytes(bytes([byte]).isalnum() or byte in b"_-" for byte in range(256))

# Values without a format are found by their names: the file must contain one of some lower-case
# words (a quick test), and match the pattern of name and value.
_IS = rb"[\s\"'\])(:=,>]{1,12}"
_NAMED_VALUES = [
    (  # AWS, "Manage access keys", docs.aws.amazon.com
        (b"aws_secret", b"aws-secret", b"secret_access_key", b"secretaccesskey"),
        rb"(?:aws[_-]?secret(?:[_-]?access)?(?:[_-]?key)?|secret_?access_?key)"
        rb"%s[A-Za-z0-9/+]{40}(?![\w/+=])" % _IS,
        "a secret access key of AWS",
    ),
    (  # Weights & Biases, "Environment variables", docs.wandb.ai
        (b"wandb",),
        rb"wandb(?:[\w.-]{0,20}(?:key|token)|\.login\((?:\s*key\s*=)?|\.ai\s+login\s+\w+\s+password)"
        rb"%s(?:[0-9a-f]{40}(?!\w)|wandb_v1_\w{20})" % _IS,
        "an API key of Weights & Biases",
    ),
    (  # Azure, "Configure connection strings", learn.microsoft.com
        (b"accountkey=",),
        rb"AccountKey=[A-Za-z0-9+/]{86}==",
        "a key of Azure Storage",
    ),
    (  # Slack, "Sending messages using incoming webhooks", docs.slack.dev
        (b"hooks.slack.com",),
        rb"://hooks\.slack\.com/(?:services|workflows)/T\w{5,}/\w{6,}/\w{18}",
        "a webhook of Slack",
    ),
    (  # Docker's configuration
        (b'"auths"',),
        rb'"auth"\s*:\s*"[A-Za-z0-9+/]{8,}={0,2}"',
        "a registry's password",
    ),
    (  # a token as the user of an index or a repository; Google's fixed word is none
        (b"-url", b"_url", b"find", b"-i", b"-f", b"git+"),
        rb"(?:index.url|find.links|\B-[if]|git\+)[\s\"'=:]{0,3}https?://(?!oauth2)(?=[\w-]*\d)[\w-]{16,}@",
        _IN_A_URL,
    ),
    (  # Kubernetes
        (b"kind: config\n",),
        rb"(?m)^[ \t-]+(?:token|password):[ \t]*[\"']?[^\s\"'<$]{8}",
        "credentials of Kubernetes",
    ),
]

_PEM = b"PRIVATE KEY"
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:[^-]|-(?!----)){0,400}?[A-Za-z0-9+/]{40}"  # optional headers, and the key
)
_GOOGLE = re.compile(rb'"type"\s*:\s*"(service_account|authorized_user)"')
_GOOGLE_SECRET = re.compile(rb'"(?:private_key|refresh_token)"\s*:\s*"[^"]{20}')
_URL = re.compile(rb"://([^\s/:@(\[\"'`\\]{0,100}):([^\s/@\"'`\\]{1,200})@(?!sha256:)")
_NO_PASSWORD = b"x-oauth-basic"  # GitHub's; the user is the token
# Placeholders of shells, Python, templates and documents are not passwords.
_VARIABLE = re.compile(
    rb"\$\w+|[#$]*\{.*\}|\$\(.*\)|%[sr]|%\(\w+\)s|%\w+%|<.*>|\[.*\]|[A-Z_]+|x+|\*+|\.+|\xe2\x80\xa6"
)


def by_name(path: str) -> str | None:
    """Return the kind of secret that a file of this name contains, None if there is none."""
    folder, _, name = path.lower().rpartition("/")
    if name in HARMLESS:
        return None
    if name.startswith(".env."):
        return NAMES[".env.*"]
    in_folder = f"{folder.rpartition('/')[2]}/{name}"
    kind = _PATHS.get(in_folder) or _PATHS.get(name) or NAMES.get(name)
    return kind or _ENDINGS.get(name[name.rfind(".") :])


def by_content(content: bytes) -> str | None:
    """Return the kind of secret in a file's content or a part of it, None if there is none."""
    if _PEM in content and (_PRIVATE_KEY.search(content) or _is_google_key(content)):
        return "a service account's key" if _is_google_key(content) else "a private key"
    if kind := _token(content):
        return kind
    if b"\0" in content:
        return None  # not a text
    if b"refresh_token" in content and _is_google_key(content):
        return "credentials of Google Cloud"
    if kind := _named_value(content):
        return kind
    logins = _URL.findall(content) if b"://" in content else ()
    passwords = (user if password == _NO_PASSWORD else password for user, password in logins)
    return _IN_A_URL if not all(map(_VARIABLE.fullmatch, passwords)) else None


def allowed(ignore: str) -> frozenset[str]:
    """Return the paths that an ignore file allows to contain secrets."""
    return frozenset(_ALLOWED.findall(ignore))


def remedy(kind: str) -> str:
    """Return how to fix a kind of secret that `by_name` or `by_content` returned."""
    return (
        f"{_REMEDIES.get(kind, _REMEDY)}; if it belongs in the image, add it to image.allow_secrets"
    )


def _is_google_key(content: bytes) -> bool:
    return bool(_GOOGLE.search(content) and _GOOGLE_SECRET.search(content))


def _token(content: bytes) -> str | None:
    """Search for tokens, only at the beginning of long words, because few texts have many."""
    words = content.translate(_IN_TOKENS)
    at = words.find(_LONG)
    while at >= 0:
        match = _TOKEN.match(content, at)
        if match and match.lastindex and not _is_placeholder(match[0]):
            return _KINDS[match.lastindex - 1]
        end = words.find(b"\0", at)
        at = words.find(_LONG, end) if end >= 0 else -1
    return None


def _named_value(content: bytes) -> str | None:
    lowered = content.lower()
    for words, pattern, kind in _NAMED_VALUES:
        if any(word in lowered for word in words):
            matches = re.finditer(pattern, content, re.IGNORECASE)
            if not all(_is_placeholder(match[0]) for match in matches):
                return kind
    return None


def _is_placeholder(token: bytes) -> bool:
    """Return whether a token is an example like AKIAIOSFODNN7EXAMPLE or ``ghp_xxxxxxxx``."""
    return b"EXAMPLE" in token.upper() or len(set(token[-16:])) <= 4
