"""How a registry is told who we are: by a name and a password, and by tokens."""

from __future__ import annotations

import base64
import http.server
import json
import os
import threading
import time
import urllib.parse
import uuid

import pytest
import registries
import trustme
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from registries import QUICK, Fault, Recipe, tar_of

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry import blobs
from distlaunch.image.registry.append import append
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.config import Settings
from distlaunch.image.registry.credentials import Credentials

NAME, PASSWORD = "ann", "open sesame"
# bcrypt of the password, the only kind that the registry takes.
HTPASSWD = f"{NAME}:$2b$04$SvLOa/.6uFIuG.d6bZaGsOWGLaMFu2cVoWj0Md0NgNEtZunFEmAvO\n"
ANN = Credentials(NAME, PASSWORD, source="config.json")
IDENTITY = Credentials(identity_token="an identity", source="config.json")  # noqa: S106
OTHER_IDENTITY = Credentials(identity_token="another", source="config.json")  # noqa: S106
SERVICE = "a registry"


def ann(_host):
    return ANN


def nobody(_host):
    return None


def stranger(_host):
    return Credentials("eve", "x", source="config.json")


@pytest.fixture(scope="module")
def locked(registry_program, tmp_path_factory):
    """A registry that asks for a name and a password."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "htpasswd").write_text(HTPASSWD)
    auth = f"auth: {{htpasswd: {{realm: a, path: {folder}/htpasswd}}}}\n"
    with registries.serving(folder, auth=auth) as host:
        yield host


def test_a_name_and_a_password(locked):
    reference = registries.fresh(locked)
    digest = Recipe().push(reference, find=ann)
    with Registry(reference, patience=QUICK, find=ann) as registry:
        assert registry.digest() == digest


@pytest.mark.parametrize("find", [nobody, stranger])
def test_a_stranger_is_not_let_in(locked, find):
    reference = registries.fresh(locked)
    with (
        Registry(reference, patience=QUICK, find=find) as registry,
        pytest.raises(ImageError) as caught,
    ):
        registry.send(blobs.BytesSource(b"x"))
    what = f"push of {reference.name} denied (authentication required); "
    remedy = f"run 'docker login {locked}'"
    if find is stranger:
        remedy = f"the credentials from config.json do not suffice, {remedy} with others"
    assert str(caught.value) == what + remedy
    with Registry(reference, patience=QUICK, find=find) as registry, pytest.raises(ImageError):
        registry.digest()


class Issuer(http.server.ThreadingHTTPServer):
    """A server that gives out tokens, as distribution's specification has it."""

    def __init__(self, folder) -> None:
        super().__init__(("127.0.0.1", 0), _Issuing)
        authority = trustme.CA()
        (folder / "root.pem").write_bytes(authority.cert_pem.bytes())
        issued = authority.issue_cert("issuer.test")
        pem = issued.private_key_pem.bytes()
        self.key = serialization.load_pem_private_key(pem, None)
        lines = issued.cert_chain_pems[0].bytes().decode().split("-----")[2]
        self.certificate = "".join(lines.split())
        self.realm = f"http://127.0.0.1:{self.server_address[1]}/token"
        self.asked: list[dict[str, list[str]]] = []
        self.names: list[str | None] = []

    def token(self, scopes, name):
        access = []
        for scope in scopes:
            kind, path, actions = scope.split(":")
            allowed = [each for each in actions.split(",") if name or each == "pull"]
            access.append({"type": kind, "name": path, "actions": allowed})
        now = int(time.time())
        claims = {"iss": "issuer", "sub": name or "", "aud": SERVICE, "access": access}
        claims |= {"exp": now + 300, "nbf": now - 10, "iat": now, "jti": uuid.uuid4().hex}
        head = {"typ": "JWT", "alg": self.algorithm, "x5c": [self.certificate]}
        text = ".".join(_packed(json.dumps(each).encode()) for each in (head, claims))
        return f"{text}.{_packed(self._signed(text.encode()))}"

    @property
    def algorithm(self):
        return "RS256" if hasattr(self.key, "decrypt") else "ES256"

    def _signed(self, text):
        if self.algorithm == "RS256":
            return self.key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        r, s = utils.decode_dss_signature(self.key.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _packed(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class _Issuing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        words = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        said = self.headers.get("Authorization")
        if said not in (None, registries.basic(NAME, PASSWORD)):
            self._tell(401, {"details": "incorrect"})
        else:
            self._give(words, words.get("scope", []), NAME if said else None)

    def do_POST(self):
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        words = urllib.parse.parse_qs(form)
        assert words["grant_type"] == ["refresh_token"]
        if words["refresh_token"] != ["an identity"]:
            self._tell(401, {})
        else:
            self._give(words, words.get("scope", [""])[0].split(), NAME)

    def _give(self, words, scopes, name):
        self.server.asked.append(words)
        self.server.names.append(name)
        self._tell(200, {"token": self.server.token(scopes, name)})

    def _tell(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def issuing(registry_program, tmp_path_factory):
    """A registry that wants tokens, and the server that gives them out."""
    folder = tmp_path_factory.mktemp("issuing")
    issuer = Issuer(folder)
    threading.Thread(target=issuer.serve_forever, args=(0.02,), daemon=True).start()
    auth = (
        f"auth: {{token: {{realm: '{issuer.realm}', service: '{SERVICE}', issuer: issuer, "
        f"rootcertbundle: {folder}/root.pem}}}}\n"
    )
    with registries.serving(folder, auth=auth) as host:
        yield host, issuer
    issuer.shutdown()
    issuer.server_close()


@pytest.fixture
def tokens(issuing):
    host, issuer = issuing
    issuer.asked.clear()
    issuer.names.clear()
    return host, issuer


def test_a_token_for_a_name_and_a_password(tokens):
    host, issuer = tokens
    reference = registries.fresh(host)
    digest = Recipe().push(reference, find=ann)
    assert set(issuer.names) == {NAME}
    assert len(issuer.asked) <= 2  # as long as it lasts a token is kept
    assert issuer.asked[0]["service"] == [SERVICE]

    with Registry(reference, patience=QUICK, find=nobody) as registry:
        assert registry.digest() == digest
    assert issuer.names[-1] is None
    assert issuer.asked[-1]["scope"] == [f"repository:{reference.path}:pull"]


def test_a_token_for_an_identity(tokens):
    host, issuer = tokens
    reference = registries.fresh(host)
    Recipe().push(reference, find=lambda _: IDENTITY)
    assert {tuple(each["refresh_token"]) for each in issuer.asked} == {("an identity",)}


def test_nobody_may_pull_but_not_push(tokens):
    host, _ = tokens
    reference = registries.fresh(host)
    with pytest.raises(ImageError) as caught:
        Recipe().push(reference, find=nobody)
    assert str(caught.value).startswith(f"push of {reference.name} denied")
    assert str(caught.value).endswith(f"; run 'docker login {host}'")


@pytest.mark.parametrize("find", [stranger, lambda _: OTHER_IDENTITY])
def test_a_stranger_gets_no_token(tokens, find):
    host, _ = tokens
    with pytest.raises(ImageError) as caught:
        Recipe().push(registries.fresh(host), find=find)
    assert str(caught.value) == (
        f"{host} does not let in the credentials from config.json (401); run 'docker login {host}'"
    )


def test_a_mount_asks_for_both_repositories(tokens, tmp_path):
    host, issuer = tokens
    base, target = registries.fresh(host, "base"), registries.fresh(host)
    layers = [tar_of({f"{n}": os.urandom(1000)}) for n in range(10)]
    Recipe(layers=layers).push(base, find=ann)
    issuer.asked.clear()
    append(base, target, [], Settings(), patience=QUICK, find=ann)
    last = issuer.asked[-1]["scope"]
    assert f"repository:{base.path}:pull" in last
    assert any(each.startswith(f"repository:{target.path}:") and "push" in each for each in last)
    assert len(issuer.asked) <= 6  # and not one for each of the blobs
    with Registry(target, patience=QUICK, find=ann) as registry:
        assert len(registry.image().manifest["layers"]) == 10


@pytest.mark.parametrize("method", ["HEAD", "POST", "PATCH", "PUT"])
def test_a_token_that_has_ended_is_followed_by_another(tokens, door, method):
    host, issuer = tokens
    challenge = f'Bearer realm="{issuer.realm}",service="{SERVICE}"'
    left = []

    def rule(request):
        if left and request.method == method:
            return left.pop()
        return None

    way = door(rule, target=host)
    reference = registries.fresh(way.host)
    data = os.urandom(3_000_000)
    with Registry(reference, patience=QUICK, find=ann) as registry:
        registry.send(blobs.BytesSource(b"first"))
        before = len(issuer.asked)
        left.append(Fault(status=401, headers={"WWW-Authenticate": challenge}))
        assert not registry.has_blob(blobs.digest_of(data))
        registry.send(blobs.BytesSource(data))
        assert registry.has_blob(blobs.digest_of(data))
        assert not left
        assert len(issuer.asked) == before + 1


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        ('Bearer realm="http://example.com/token"', "which is not safe"),
        ('Bearer realm="ftp://x"', "which is not safe"),
        ("Bearer", "which is not safe"),
        ("Negotiate", "push of .* denied"),
        ("???", "push of .* denied"),
        ("", "push of .* denied"),
    ],
)
def test_what_cannot_be_answered_is_told(door, challenge, told):
    way = door(lambda _: Fault(status=401, headers={"WWW-Authenticate": challenge}))
    reference = Reference.parse(f"{way.host}/a")
    with (
        Registry(reference, patience=QUICK, find=ann) as registry,
        pytest.raises(ImageError, match=told),
    ):
        registry.send(blobs.BytesSource(b"x"))
    assert len(way.requests) <= 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Fault(status=503), r"gives no token for .* \(503\); try again later"),
        (Fault(status=200, body=b"[]"), r"gives no token for .* \(200\)"),
        (Fault(status=200, body=b"{}"), r"gives no token for .* \(200\)"),
        (Fault(status=403), r"does not let in the credentials from config.json \(403\)"),
        (Fault(lose=True, cut_request=0), "the connection to .* broke 4 times"),
    ],
)
def test_a_server_without_a_token_is_told_of(door, answer, told):
    tokens = door(lambda _: answer)
    challenge = f'Bearer realm="http://{tokens.host}/token"'
    way = door(lambda _: Fault(status=401, headers={"WWW-Authenticate": challenge}))
    reference = Reference.parse(f"{way.host}/a")
    with (
        Registry(reference, patience=QUICK, find=ann) as registry,
        pytest.raises(ImageError, match=told),
    ):
        registry.send(blobs.BytesSource(b"x"))


def test_credentials_are_not_carried_to_another_host(locked, door):
    """A registry may lead to a store of its own for a blob, and that gets no password."""
    store = door(lambda _: Fault(status=200, body=b"blob"))
    data = b"blob"

    def lead_away(request):
        if request.method == "GET" and "blobs/" in request.path:
            return Fault(status=307, headers={"Location": f"http://{store.host}/x"})
        return None

    way = door(lead_away, target=locked)
    with Registry(registries.fresh(way.host), patience=QUICK, find=ann) as registry:
        registry.send(blobs.BytesSource(data))
        assert b"".join(registry.blob(blobs.digest_of(data), 4).read_from(0)) == data
    assert "Authorization" in way.requests[-1].headers
    assert "Authorization" not in store.requests[-1].headers


def test_a_netrc_does_not_lie_over_what_was_told(locked, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login eve password x\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert Recipe().push(registries.fresh(locked), find=ann)
