"""A proxy that leads what is meant for Google's Cloud Storage to the emulator's.

TensorFlow knows Google's addresses only, but honours `https_proxy`. So there are two doors: one
takes ``CONNECT host:443``; for Google's storage it leads to the other, which speaks TLS with a
certificate of an authority made here, and behind which the emulator's own HTTP server answers. Any
other host is connected with as it is, through the proxy that this machine uses itself, if any.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import re
import shutil
import ssl
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    _Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HOSTS = ("www.googleapis.com", "storage.googleapis.com")

_PIECE = 1 << 18
_CONNECT = re.compile(rb"CONNECT ([A-Za-z0-9.-]+):([0-9]{1,5}) ")
_HOST = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_BUNDLES = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


class Proxy:
    """The two doors, in a thread of their own.

    Parameters
    ----------
    endpoint
        The emulator's ``http://127.0.0.1:PORT``.

    Attributes
    ----------
    environment
        What makes a program come here.
    """

    def __init__(self, endpoint: str) -> None:
        behind = urlsplit(endpoint)
        self._behind = behind.hostname or "127.0.0.1", behind.port or 80
        self._name = f"{self._behind[0]}:{self._behind[1]}".encode()
        self._folder = Path(tempfile.mkdtemp(prefix="distlaunch-proxy-"))
        self._upstream = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
        context = _certificate(self._folder)
        self._loop = asyncio.new_event_loop()
        # A client that breaks off, or does not trust us, is no concern of the emulator's user.
        self._loop.set_exception_handler(lambda *_: None)
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._tls_port = self._do(self._open(self._answer_tls, context))
        port = self._do(self._open(self._answer))
        bundle = str(self._folder / "bundle.pem")
        own = f"http://127.0.0.1:{port}"
        here = "127.0.0.1,localhost"
        self.environment = {
            **dict.fromkeys(("https_proxy", "HTTPS_PROXY"), own),
            **dict.fromkeys(("no_proxy", "NO_PROXY"), here),
            **dict.fromkeys(_BUNDLES, bundle),
            # TensorFlow asks neither Google's metadata server nor a key file then.
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "emulator",
            "NO_GCE_CHECK": "true",
        }

    def close(self) -> None:
        """Close the doors."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._leave())
        self._loop.close()

    async def _leave(self) -> None:
        for server in self._servers:
            server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # for connections that are being closed

    def _do(self, what: Coroutine[object, object, int]) -> int:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _open(self, answer: _Answer, context: ssl.SSLContext | None = None) -> int:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _answer_tls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _closing(writer), contextlib.suppress(OSError):
            theirs, ours = await asyncio.open_connection(*self._behind)
            with _closing(ours):
                await asyncio.gather(
                    _hand_on_requests(reader, ours, self._name), _hand_on(theirs, writer)
                )

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _closing(writer):
            try:
                found = _CONNECT.match(await reader.readuntil(b"\r\n\r\n"))
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                found = None
            if found is None:
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                return
            try:
                theirs, ours = await self._connect(found[1].decode("ascii"), int(found[2]))
            except (OSError, asyncio.IncompleteReadError):
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            with _closing(ours):
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(_hand_on(reader, ours), _hand_on(theirs, writer))

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if host in HOSTS:
            return await asyncio.open_connection("127.0.0.1", self._tls_port)
        if not self._upstream:
            return await asyncio.open_connection(host, port)
        upstream = urlsplit(self._upstream)
        reader, writer = await asyncio.open_connection(upstream.hostname, upstream.port or 3128)
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if not re.match(rb"HTTP/1\.[01] 200\b", answer):
            writer.close()
            raise ConnectionRefusedError(host)
        return reader, writer


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    finally:
        writer.close()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()


async def _hand_on_requests(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: bytes
) -> None:
    """Hand on one HTTP request after the other, each with word of whom it was meant for.

    Parameters
    ----------
    host
        Whom it goes to.
    """
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            meant = _HOST.search(head)
            forwarded = b"X-Forwarded-Host: " + (meant[1] if meant else host)
            more = b"Host: " + host + b"\r\nX-Forwarded-Proto: https\r\n" + forwarded + b"\r\n"
            first, _, rest = _HOST.sub(b"\r\n", head).partition(b"\r\n")
            writer.write(first + b"\r\n" + more + rest)
            length = _LENGTH.search(head)
            if _CHUNKED.search(head):
                await _hand_on_chunks(reader, writer)
            elif length:
                await _hand_on_bytes(reader, writer, int(length[1]))
            await writer.drain()
    writer.close()


async def _hand_on_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size = -1
    while size:
        line = await reader.readuntil(b"\r\n")
        writer.write(line)
        size = int(line.partition(b";")[0], 16)
        await _hand_on_bytes(reader, writer, size + 2)


async def _hand_on_bytes(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int
) -> None:
    while count:
        data = await reader.read(min(count, _PIECE))
        if not data:
            raise asyncio.IncompleteReadError(b"", count)
        writer.write(data)
        await writer.drain()
        count -= len(data)


def _certificate(folder: Path) -> ssl.SSLContext:
    """Make an authority and a certificate of it for Google's hosts.

    The folder gets ``bundle.pem``, with all that this machine trusts and the authority besides.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    now = dt.datetime.now(dt.timezone.utc)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def certificate(subject: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("distlaunch emulator"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=365))
        )

    authority = (
        certificate("distlaunch emulator", authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
    own = (
        certificate(HOSTS[0], key.public_key())
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = folder / "server.pem"
    chain.write_bytes(private + own.public_bytes(pem))
    (folder / "bundle.pem").write_bytes(_trusted_here() + b"\n" + authority.public_bytes(pem))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    return context


def _trusted_here() -> bytes:
    """Return the certificates that this machine trusts, as PEM."""
    import certifi

    named = [os.environ.get(name, "") for name in _BUNDLES]
    default = ssl.get_default_verify_paths().cafile or ""
    for path in (*named, default, certifi.where()):
        if path and Path(path).is_file():
            return Path(path).read_bytes()
    return b""
