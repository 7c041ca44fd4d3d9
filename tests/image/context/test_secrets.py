"""What is taken for a secret, by name and by content, and what is not."""

from __future__ import annotations

import base64
import json
import random
import string

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.errors import ContextError
from distlaunch.image.context import read_context
from distlaunch.image.context.secrets import NAMES, by_content, by_name, remedy

ALPHABET = string.ascii_letters + string.digits
noise = random.Random(5)  # noqa: S311 - no secret is made


def letters(count: int, of: str = ALPHABET) -> str:
    return "".join(noise.choices(of, k=count))


def pem(form: serialization.PrivateFormat, password: bytes | None = None) -> bytes:
    hidden = serialization.BestAvailableEncryption(password) if password else None
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, form, hidden or serialization.NoEncryption()
    )


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
RSA_KEY = RSA.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.TraditionalOpenSSL,
    serialization.NoEncryption(),
)
PUBLIC_KEY = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
FORMS = serialization.PrivateFormat
SERVICE_ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": letters(40, "0123456789abcdef"),
        "private_key": pem(FORMS.PKCS8).decode(),
        "client_email": "trainer@my-project.iam.gserviceaccount.com",
    },
    indent=2,
).encode()
LOGIN = json.dumps(
    {"client_id": "x", "refresh_token": f"1//{letters(60)}", "type": "authorized_user"}
).encode()

SECRETS = {
    "key.json": (SERVICE_ACCOUNT, "a service account's key"),
    "compact.json": (SERVICE_ACCOUNT.replace(b"\n ", b""), "a service account's key"),
    "embedded.py": (b"KEY = '''" + SERVICE_ACCOUNT + b"'''\n", "a service account's key"),
    "login.json": (LOGIN, "credentials of Google Cloud"),
    "rsa.pem": (RSA_KEY, "a private key"),
    "pkcs8.pem": (pem(FORMS.PKCS8), "a private key"),
    "encrypted.pem": (pem(FORMS.PKCS8, b"x"), "a private key"),
    "ec.key": (pem(FORMS.TraditionalOpenSSL), "a private key"),
    "traditional.key": (pem(FORMS.TraditionalOpenSSL, b"x"), "a private key"),
    "openssh": (pem(FORMS.OpenSSH), "a private key"),
    "one-line.py": (b"KEY = " + repr(pem(FORMS.PKCS8)).encode(), "a private key"),
    "windows.pem": (pem(FORMS.PKCS8).replace(b"\n", b"\r\n"), "a private key"),
    "bundle.bin": (b"\0" * 5000 + pem(FORMS.PKCS8), "a private key"),
    "behind.txt": (b"x\n" * 400_000 + pem(FORMS.PKCS8), "a private key"),
    "aws.py": (f"k = 'AKIA{letters(16, string.ascii_uppercase)}'".encode(), "an access key of AWS"),
    "gh.sh": (f"export T=ghp_{letters(36)}".encode(), "a token of GitHub"),
    "gh2.sh": (f"T=github_pat_{letters(82)}".encode(), "a token of GitHub"),
    "lab.yaml": (f"token: glpat-{letters(20)}\n".encode(), "a token of GitLab"),
    "slack.py": (f"'xoxb-{letters(24, string.digits)}'".encode(), "a token of Slack"),
    "maps.js": (f'"AIza{letters(35)}"'.encode(), "an API key of Google"),
    "oauth.json": (
        f'"GOCSPX-{letters(28)}"'.encode(),
        "an OAuth client's secret of Google",
    ),
    "token": (f"ya29.{letters(120)}".encode(), "an access token of Google"),
    "hub.py": (
        f"login('hf_{letters(34, string.ascii_letters)}')".encode(),
        "a token of Hugging Face",
    ),
    ".npmrc": (b"//packages.example/:_authToken=0123456789abcdef", "a password"),
    "pip.conf": (
        b"[global]\nindex-url = https://me:secret@host.example/simple\n",
        "a password in a URL",
    ),
    "requirements.txt": (
        b"--index-url https://me:secret@host/simple\nkeras\n",
        "a password in a URL",
    ),
    "config.json": (b'{"auths": {"host": {"auth": "bWU6c2VjcmV0"}}}', "a registry's password"),
}


@pytest.mark.parametrize("path", SECRETS)
def test_a_secret_is_known_by_its_content(path):
    content, what = SECRETS[path]
    assert by_content(f"trainer/{path}", content) == what


HARMLESS = {
    "public.pem": PUBLIC_KEY,
    "check.py": b'if "-----BEGIN PRIVATE KEY-----" in text: refuse("a PRIVATE KEY is in it")\n',
    "pattern.py": rb"re.compile(r'-----BEGIN (RSA )?PRIVATE KEY-----[A-Za-z0-9+/=\s]+-----END')",
    "form.py": b'{"type": "service_account", "private_key": key, "refresh_token": token}',
    "shapes.py": b'"AKIA[0-9A-Z]{16}", "ghp_", "AIza", "hf_..." # and so on, as documented there',
    "long.csv": b"0123456789abcdef" * 1000,
    "words.py": b"def sk_live_and_let_live_for_as_long_as_it_lasts_and_then_some():\n    pass\n",
    "inside.py": f"xAKIA{letters(16, string.ascii_uppercase)}".encode(),
    "requirements.txt": b"--index-url https://${USER}:${PASSWORD}@host/simple\nx @ https://host/x.whl\n",
    "filled.txt": b"--index-url https://me:${PASSWORD}@host/simple\n",
    "config.json": b'{"auth": "none", "layers": 3}',
    ".npmrc": b"//packages.example/:_authToken=${NPM_TOKEN}",
    "external.json": b'{"type": "external_account", "audience": "//iam.googleapis.com/x"}',
    "image.png": b"\x89PNG\0" + f"ghp_{letters(36)}".encode(),
    "empty": b"",
}


@pytest.mark.parametrize("path", HARMLESS)
def test_what_only_looks_like_one_is_let_in(path):
    assert by_content(f"trainer/{path}", HARMLESS[path]) is None


@given(st.binary(max_size=4000))
def test_noise_is_no_secret(content):
    assert by_content("data", content) is None
    assert by_content("data.txt", base64.b64encode(content)) is None


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (".env", "variables with secrets, as a rule"),
        ("trainer/.env.local", "variables with secrets, as a rule"),
        ("a/.Netrc", "passwords"),
        ("id_rsa", "a private key"),
        ("keys/me.P12", "a private key"),
        (".aws/credentials", "credentials of AWS"),
        ("gcloud/application_default_credentials.json", "credentials of Google Cloud"),
    ],
)
def test_a_secret_is_known_by_its_name(path, what):
    assert by_name(path) == what


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        "a.env",
        "env",
        "environment.py",
        "id_rsa.pub",
        "p12",
        "credentials",
        "aws/credentials.py",
        ".env/x",
    ],
)
def test_a_name_that_is_much_like_it_is_let_in(path):
    assert by_name(path) is None


@pytest.mark.parametrize("pattern", NAMES)
def test_every_pattern_of_a_name_names_a_secret(pattern):
    assert by_name(pattern.replace("*", "x")) == NAMES[pattern]


def test_a_context_with_secrets_is_refused_with_all_of_them_named(tmp_path):
    for path, (content, _) in SECRETS.items():
        (tmp_path / path).write_bytes(content)
    (tmp_path / "harmless").mkdir()
    for path, content in HARMLESS.items():
        (tmp_path / "harmless" / path).write_bytes(content)
    with pytest.raises(ContextError) as refusal:
        read_context(tmp_path, "")
    assert refusal.value.lines == tuple(
        f"{path}: holds {SECRETS[path][1]}; {remedy(SECRETS[path][1])}" for path in sorted(SECRETS)
    )
    for path in SECRETS:
        (tmp_path / path).unlink()
    assert len(read_context(tmp_path, "").files) == len(HARMLESS)


def test_each_has_its_remedy():
    assert remedy("a private key") == (
        "leave it out in .dockerignore, and give the job a service_account or let the program ask "
        "Secret Manager"
    )
    assert remedy("a password in a URL") == (
        "write ${NAME} for it, or leave it to pip's own configuration on this machine, as 'pip "
        "config set global.index-url URL' makes it"
    )


def test_a_secret_is_refused_though_the_file_was_known_before(tmp_path):
    cache = tmp_path / "cache"
    project = tmp_path / "project"
    project.mkdir()
    for content in (b"harmless", SERVICE_ACCOUNT):
        (project / "key").write_bytes(content)
        if content is SERVICE_ACCOUNT:
            for _ in range(2):
                with pytest.raises(ContextError, match="key: holds a service account's key"):
                    read_context(project, "", cache=cache)
        else:
            read_context(project, "", cache=cache)
