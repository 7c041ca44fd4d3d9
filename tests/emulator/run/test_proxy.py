"""How `gs://` and Google's addresses are led to the emulator's storage."""

from __future__ import annotations

import hashlib
import json
import socket
import socketserver
import sys
import textwrap
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import certifi
import pytest
import requests

from distlaunch.emulator.run.process import ProcessMachines
from distlaunch.emulator.run.proxy import Proxy

from .jobs import custom_job, jobs_on, pool


class Seen(BaseHTTPRequestHandler):
    """Tells what it was sent."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        told = {"method": self.command, "path": self.path, "headers": dict(self.headers)}
        told["sha"] = hashlib.sha256(self.body()).hexdigest()
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = answer  # noqa: N815

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def log_message(self, *_):
        pass


@pytest.fixture
def behind():
    """Stand for the emulator."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Seen) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextmanager
def proxied(endpoint):
    proxy = Proxy(endpoint)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def session(behind):
    """A client as a replica would have it."""
    with proxied(behind) as proxy, requests.Session() as session:
        session.trust_env = False
        session.proxies = {"https": proxy.environment["https_proxy"]}
        session.verify = proxy.environment["REQUESTS_CA_BUNDLE"]
        yield session


@pytest.mark.parametrize("host", ["storage.googleapis.com", "www.googleapis.com"])
def test_google_s_storage_is_the_emulator_s_and_it_knows_whom_it_stands_for(session, behind, host):
    told = session.get(f"https://{host}/storage/v1/b/bucket/o/a%2Fb?alt=media").json()
    assert told["path"] == "/storage/v1/b/bucket/o/a%2Fb?alt=media"
    assert told["headers"]["Host"] == behind.removeprefix("http://")
    assert told["headers"]["X-Forwarded-Host"] == host
    assert told["headers"]["X-Forwarded-Proto"] == "https"


def test_bodies_of_any_size_and_kind_go_through_on_one_connection(session):
    url = "https://storage.googleapis.com/upload"
    for size in (0, 1, 5_000_000):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        expected = hashlib.sha256(body).hexdigest()
        assert session.put(url, data=body).json()["sha"] == expected
        pieces = (body[start : start + 70_000] for start in range(0, len(body), 70_000))
        assert session.post(url, data=pieces).json()["sha"] == expected
    assert session.get(url).json()["sha"] == hashlib.sha256(b"").hexdigest()


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"echo " + self.rfile.readline())


@pytest.fixture
def elsewhere():
    """Another server on this machine."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield "127.0.0.1", server.server_address[1]
        server.shutdown()


def ask(proxy, head):
    """Say something to a proxy; returns the connection and the first line of its answer."""
    host, _, port = proxy.environment["https_proxy"].removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(head.encode() + b"\r\n\r\n")
    answer = connection.makefile("rb")
    first = answer.readline().decode().strip()
    while answer.readline().strip():
        pass
    return connection, answer, first


def test_another_host_is_connected_with_as_it_is(behind, elsewhere):
    host, port = elsewhere
    with proxied(behind) as proxy:
        connection, answer, first = ask(proxy, f"CONNECT {host}:{port} HTTP/1.1")
        with connection, answer:
            assert first == "HTTP/1.1 200 Connection established"
            connection.sendall(b"hello\n")
            assert answer.read() == b"echo hello\n"


def test_another_host_is_reached_through_the_machine_s_own_proxy(behind, elsewhere, monkeypatch):
    host, port = elsewhere
    with proxied(behind) as outer:
        monkeypatch.setenv("https_proxy", outer.environment["https_proxy"])
        with proxied(behind) as proxy:
            connection, answer, first = ask(proxy, f"CONNECT {host}:{port} HTTP/1.1")
            with connection, answer:
                assert first == "HTTP/1.1 200 Connection established"
                connection.sendall(b"hello\n")
                assert answer.read() == b"echo hello\n"
            connection, answer, first = ask(proxy, "CONNECT 127.0.0.1:9 HTTP/1.1")
            with connection, answer:
                assert first == "HTTP/1.1 502 Bad Gateway", "as the other proxy says"


@pytest.mark.parametrize(
    ("head", "answered"),
    [
        ("CONNECT 127.0.0.1:9 HTTP/1.1", "502 Bad Gateway"),
        ("GET http://example.org/ HTTP/1.1", "400 Bad Request"),
        ("CONNECT nonsense HTTP/1.1", "400 Bad Request"),
        ("CONNECT " + "x" * 100_000, "400 Bad Request"),
    ],
)
def test_what_cannot_be_connected_is_refused(behind, head, answered):
    with proxied(behind) as proxy:
        connection, answer, first = ask(proxy, head)
        with connection, answer:
            assert first == f"HTTP/1.1 {answered}"


def test_what_this_machine_trusts_is_trusted_still(behind, tmp_path, monkeypatch):
    trusted = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")[0]
    (tmp_path / "own.pem").write_text(trusted + "-----END CERTIFICATE-----\n")
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "own.pem"))
    with proxied(behind) as proxy:
        text = Path(proxy.environment["SSL_CERT_FILE"]).read_text()
    assert trusted in text
    assert text.count("BEGIN CERTIFICATE") == 2


CLIENT = """\
from google.cloud import storage
bucket = storage.Client(project="my-project").bucket("bucket")
bucket.blob("client/a.txt").upload_from_string("from the client")
print(bucket.blob("client/a.txt").download_as_text())
"""
TENSORFLOW = """\
import os, tensorflow as tf
folder = os.environ["AIP_MODEL_DIR"]
path = folder + "variables/data"
tf.io.gfile.makedirs(folder + "variables")
content = bytes(range(256)) * 50_000
with tf.io.gfile.GFile(path, "wb") as file:
    file.write(content)
with tf.io.gfile.GFile(path, "rb") as file:
    assert file.read() == content
print(tf.io.gfile.listdir(folder), tf.io.gfile.stat(path).length)
tf.io.gfile.rename(path, folder + "moved")
assert not tf.io.gfile.exists(path)
tf.io.gfile.remove(folder + "moved")
with tf.io.gfile.GFile(folder + "saved_model.pb", "w") as file:
    file.write("the model")
"""


@pytest.mark.slow
def test_tensorflow_and_google_s_client_find_the_emulator_s_buckets(tmp_path):
    from distlaunch.emulator.emulator import Emulator

    storage = tmp_path / "storage"
    (storage / "bucket").mkdir(parents=True)
    with (
        Emulator(storage=storage, run_with="process", project_dir=tmp_path) as emulator,
        jobs_on(ProcessMachines(tmp_path, emulator.url)) as jobs,
    ):
        names = [
            jobs.begin(
                custom_job(
                    pool(sys.executable, "-c", textwrap.dedent(code)),
                    baseOutputDirectory={"outputUriPrefix": "gs://bucket/job"},
                )
            )
            for code in (CLIENT, TENSORFLOW)
        ]
        ended = [jobs.wait(name) for name in names]
        assert [job["state"] for job in ended] == ["JOB_STATE_SUCCEEDED"] * 2, [
            jobs.texts(name) for name in names
        ]
        assert jobs.texts(names[0], "workerpool0-0")[-1] == "from the client"
        assert "12800000" in jobs.texts(names[1], "workerpool0-0")[-1]
    assert (storage / "bucket/client/a.txt").read_text() == "from the client"
    assert (storage / "bucket/job/model/saved_model.pb").read_text() == "the model"
