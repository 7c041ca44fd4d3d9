"""Secrets found by name and by content, and what only resembles them."""

from __future__ import annotations

import base64
import json
import random
import string

import images
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.errors import ContextError, ImageError
from distlaunch.image.context import read_context
from distlaunch.image.recipe import read_recipe
from distlaunch.image.secrets import NAMES, by_content, by_name, remedy

ALPHABET = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
noise = random.Random(5)  # noqa: S311 - test data


def letters(count: int, of: str = ALPHABET) -> str:
    return "".join(noise.choices(of, k=count))


def pem(form: str, password: bytes | None = None) -> bytes:
    hidden = serialization.BestAvailableEncryption(password) if password else None
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        getattr(serialization.PrivateFormat, form),
        hidden or serialization.NoEncryption(),
    )


KEY = pem("PKCS8")
PUBLIC_KEY = (
    serialization.load_pem_private_key(KEY, None)
    .public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
)
SERVICE_ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": letters(40, HEX),
        "private_key": KEY.decode(),
        "client_email": "trainer@my-project.iam.gserviceaccount.com",
    },
    indent=2,
).encode()
LOGIN = f'{{"client_id": "x", "refresh_token": "1//{letters(60)}", "type": "authorized_user"}}'

SECRETS: list[tuple[str, str | bytes]] = [
    ("a service account's key", SERVICE_ACCOUNT),
    ("a service account's key", SERVICE_ACCOUNT.replace(b"\n ", b"")),
    ("a service account's key", b"KEY = '''" + SERVICE_ACCOUNT + b"'''\n"),
    ("credentials of Google Cloud", LOGIN),
    ("a private key", KEY),
    ("a private key", pem("PKCS8", b"x")),
    ("a private key", pem("TraditionalOpenSSL")),
    ("a private key", pem("TraditionalOpenSSL", b"x")),
    ("a private key", pem("OpenSSH")),
    ("a private key", b"KEY = " + repr(KEY).encode()),
    ("a private key", KEY.replace(b"\n", b"\r\n")),
    ("a private key", b"\0" * 5000 + KEY),
    ("a private key", b"x\n" * 400_000 + KEY),
    ("an access key of AWS", f"k = 'AKIA{letters(16, string.ascii_uppercase)}'"),
    ("a token of GitHub", f"export T=ghp_{letters(36)}"),
    ("a token of GitHub", f"T=github_pat_{letters(82)}"),
    ("a token of GitHub", b"\x89PNG\0" + f"ghp_{letters(36)}".encode()),
    ("a token of GitLab", f"token: glpat-{letters(20)}\n"),
    ("a token of GitLab", f"token: glrt-{letters(20)}\n"),
    ("a token of Slack", f"'xoxb-{letters(24, string.digits)}'"),
    ("a token of Slack", f"'xapp-1-A{letters(24)}'"),
    ("an API key of Google", f'"AIza{letters(35)}"'),
    ("an OAuth client's secret of Google", f'"GOCSPX-{letters(28)}"'),
    ("an access token of Google", f"ya29.{letters(120)}"),
    ("a token of Hugging Face", f"login('hf_{letters(34, string.ascii_letters)}')"),
    (
        "a webhook of Slack",
        f"'https://hooks.slack.com/services/T{letters(8)}/B{letters(8)}/{letters(24)}'",
    ),
    ("an API key of OpenAI", f"key = 'sk-{letters(20)}T3BlbkFJ{letters(20)}'"),
    ("an API key of OpenAI", f"key = 'sk-proj-{letters(60)}'"),
    ("an API key of Anthropic", f"key = 'sk-ant-api03-{letters(60)}'"),
    ("an API key of NVIDIA", f"key = 'nvapi-{letters(64)}'"),
    ("a token of PyPI", f"pypi-AgEIcHlwaS5vcmc{letters(60)}"),
    ("a token of Databricks", f"'dapi{letters(32, HEX)}'"),
    ("a private key in base64", b"client-key-data: " + base64.b64encode(KEY)),
    ("a private key in base64", base64.encodebytes(KEY)),
    ("a service account's key in base64", b"KEY = '" + base64.b64encode(SERVICE_ACCOUNT) + b"'"),
    ("a secret access key of AWS", f"AWS_SECRET = '{letters(40)}'"),
    ("a secret access key of AWS", f"aws_secret_access_key = {letters(39)}/\n"),
    ("a secret access key of AWS", f'{{"SecretAccessKey": "{letters(40)}"}}'),
    ("a secret access key of AWS", f"aws-secret-access-key: {letters(40)}\n"),
    ("an API key of Weights & Biases", f"os.environ['WANDB_API_KEY'] = '{letters(40, HEX)}'"),
    ("an API key of Weights & Biases", f"machine api.wandb.ai login x password {letters(40, HEX)}"),
    ("an API key of Weights & Biases", f"wandb.login(key='{letters(40, HEX)}')"),
    ("a key of Azure Storage", f"AccountName=x;AccountKey={letters(86)}==;"),
    ("a password in a URL", "'postgresql://user:password@host/db'"),
    ("a password in a URL", "url = https://user:pass@"),
    ("a password in a URL", "broker: amqp://me:p%40ss@queue:5672"),
    ("a password in a URL", "--index-url https://me:secret@host/simple\nkeras\n"),
    ("a password in a URL", f"--index-url https://{letters(15)}1{letters(4)}@host/simple\nkeras\n"),
    ("a password in a URL", f"[global]\nindex-url = https://{letters(19)}7@host/simple\n"),
    ("a password in a URL", f"export PIP_EXTRA_INDEX_URL='https://{letters(19)}7@host/simple'\n"),
    ("a password in a URL", f"x @ git+https://{'0123456789abcdef' * 2}abcdef01@github.com/x/y"),
    (
        "a password in a URL",
        f"git+https://{'0123456789abcdef' * 2}abcdef01:x-oauth-basic@github.com",
    ),
    ("credentials of Kubernetes", f"kind: Config\nusers:\n- user:\n    token: {letters(30)}\n"),
    ("a registry's password", '{"auths": {"host": {"auth": "bWU6c2VjcmV0"}}}'),
]
CONTENTS = {
    f"{number:02}.txt": (kind, text.encode() if isinstance(text, str) else text)
    for number, (kind, text) in enumerate(SECRETS)
}
HARMLESS = {
    "public.pem": PUBLIC_KEY,
    "check.py": b'if "-----BEGIN PRIVATE KEY-----" in text: refuse("a PRIVATE KEY is in it")\n',
    "pattern.py": rb"re.compile(r'-----BEGIN (RSA )?PRIVATE KEY-----[A-Za-z0-9+/=\s]+-----END')",
    "form.py": b'{"type": "service_account", "private_key": key, "refresh_token": token}',
    "shapes.py": b'"AKIA[0-9A-Z]{16}", "ghp_", "AIza", "hf_..." # and so on, as documented there',
    "long.csv": b"0123456789abcdef" * 1000,
    "words.py": b"def sk_live_and_let_live_for_as_long_as_it_lasts_and_then_some(): pass\n",
    "inside.py": f"xAKIA{letters(16, string.ascii_uppercase)}".encode(),
    "requirements.txt": b"--index-url https://${USER}:${PASSWORD}@host/simple\nx @ https://host/x.whl\n",
    "github.txt": b"x @ git+https://${GITHUB_TOKEN}:x-oauth-basic@github.com/org/x.git@v1.2\n",
    "users.txt": b"-i https://oauth2accesstoken@us-python.pkg.dev/p/r/simple\n-f https://${TOKEN}@host\n"
    b"git+https://company-1@bitbucket.org/a/b\n",
    "filled.txt": b"--index-url https://me:${PASSWORD}@host/simple\n",
    "config.json": b'{"auth": "none", "layers": 3}',
    ".npmrc": b"//packages.example/:_authToken=${NPM_TOKEN}",
    "external.json": b'{"type": "external_account", "audience": "//iam.googleapis.com/x"}',
    "example.ini": b"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + b"EXAMPLEKEY\n",
    "placeholders.md": b"ghp_" + b"x" * 36 + b" sk-proj-" + b"x" * 40 + b" AKIA" + b"X" * 16,
    "reads.py": b"key = os.environ['WANDB_API_KEY']\nTWILIO_AUTH_TOKEN = settings.twilio_token\n",
    "commit.yaml": f"wandb: {letters(40, HEX)}\nsecret_key: {letters(40)}\n".encode(),
    "called.py": b"aws_secret_access_key=read_secret_of_the_cloud_from_its_vault_by_name(x)\n",
    "urls.py": (
        b"f'postgresql://{user}:{password}@{host}'; 'mysql://%s:%s@%s'; 'a://%(u)s:%(p)s@h'\n"
        b"'amqp://me:' + password + '@host'; 'http://host:8080/a@b'; 'git+ssh://git@github.com/x'\n"
    ),
    "urls.sh": b"curl https://$USER:$PASSWORD@host https://me:${PASSWORD:-x}@host ftp://me:%PW%@h\n",
    "urls.md": b"`redis://<user>:<password>@host`, http://me:***@host, ftp://USER:PASSWORD@HOST\n",
    "image.yaml": b"from: docker://python:3.12@sha256:" + b"0123456789abcdef" * 4,
    "certificate.yaml": b"certificate-authority-data: " + base64.b64encode(PUBLIC_KEY),
    "kind.yaml": b"kind: Config\nusers:\n- user:\n    token: $TOKEN_OF_THE_CLUSTER\n",
    "styles.css": b"#sk-container-id-1 div.sk-estimator-doc-link-of-this-page { color: red }\n",
    "empty": b"",
}


@given(st.binary(max_size=4000))
def test_noise_is_no_secret(content):
    assert by_content(content) is None
    assert by_content(base64.b64encode(content)) is None


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("trainer/.env.local", "variables, often with secrets"),
        ("conf/secrets.env", "variables, often with secrets"),
        ("a/.Netrc", "passwords"),
        ("keys/me.P12", "a private key"),
        (".aws/credentials", "credentials of AWS"),
        ("credentials", "credentials"),
        ("home/.kube/config", "credentials of Kubernetes"),
        *((path, None) for path in (".env.example", "example.env", "env", ".env/x", "p12")),
        *((path, None) for path in ("kube/config", "secrets.py", "id_rsa.pub")),
    ],
)
def test_a_secret_is_found_by_its_name_alone(path, kind):
    assert by_name(path) == kind


def test_every_name_pattern_matches():
    assert {pattern: by_name(pattern.replace("*", "x")) for pattern in NAMES} == NAMES


def test_all_secrets_of_a_context_are_reported(tmp_path):
    for path, (_, content) in CONTENTS.items():
        (tmp_path / path).write_bytes(content)
    (tmp_path / "harmless").mkdir()
    for path, content in HARMLESS.items():
        (tmp_path / "harmless" / path).write_bytes(content)
    with pytest.raises(ContextError) as refusal:
        read_context(tmp_path, "")
    assert refusal.value.lines == tuple(
        f"{path}: contains {kind}; {remedy(kind)}" for path, (kind, _) in CONTENTS.items()
    )
    assert len(read_context(tmp_path, "/*.txt\n").files) == len(HARMLESS)
    assert remedy("a password in a URL").startswith(
        "read it from an environment variable or Secret Manager; for pip write ${NAME}, or put it "
        "into pip's configuration on this machine with 'pip config set global.index-url URL'"
    )


@pytest.mark.parametrize("start", [3_000_000, (1 << 20) - 20, (10 << 20) - 100])
@pytest.mark.parametrize("filler", [b"x\n", b"\0\n"])
def test_a_secret_far_into_a_file_is_refused(tmp_path, start, filler):
    content = filler * (start // 2) + f"ghp_{letters(36)}\n".encode() + filler * 600_000
    (tmp_path / "large").write_bytes(content)
    with pytest.raises(ContextError, match="large: contains a token of GitHub"):
        read_context(tmp_path, "")


def test_only_the_first_10_mib_are_scanned(tmp_path):
    (tmp_path / "large").write_bytes(b"x\n" * (6 << 20) + f"ghp_{letters(36)}\n".encode())
    assert read_context(tmp_path, "").size == (12 << 20) + 41


@pytest.mark.parametrize("own_ignore", [None, "*\n!trainer\n**/.env\n"])
def test_allow_secrets_of_the_job_file(own_ignore, tmp_path):
    (tmp_path / "trainer").mkdir()
    for name in ("task.py", "key.pem", ".env", "other key.pem"):
        (tmp_path / "trainer" / name).write_bytes(KEY)
    if own_ignore:
        (tmp_path / ".dockerignore").write_text(own_ignore)
    (tmp_path / "requirements.txt").touch()
    allow = ("trainer/task.py", "./trainer/key.pem", "trainer/.env")
    job = images.job(None, allow_secrets=allow)
    with pytest.raises(ContextError) as refusal:
        read_context(tmp_path, read_recipe(job, tmp_path).ignore)
    (line,) = refusal.value.lines
    assert line.startswith("trainer/other key.pem: contains a private key")
    for wrong in ("trainer", "nowhere"):
        with pytest.raises(ImageError, match=f"^image.allow_secrets: {wrong}: "):
            read_recipe(images.job(None, allow_secrets=(wrong,)), tmp_path)
