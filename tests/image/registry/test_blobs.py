"""Blobs on their way into a registry, on connections that break."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import threading
from typing import ClassVar

import pytest
import registries
from registries import QUICK, Fault

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry import blobs
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.transport import Transport

LARGE = os.urandom(5_000_000)
SMALL = b"small\n"


def nobody(_host):
    return None


def opened(host, name="blobs"):
    return Registry(registries.fresh(host, name), patience=QUICK, find=nobody)


def once(fault, method, part=""):
    """Give a fault to the first request of a kind."""
    left = [fault]

    def rule(request):
        if left and request.method == method and part in request.path:
            return left.pop()
        return None

    return rule


def held(registry, data):
    source = registry.blob(blobs.digest_of(data), len(data))
    return b"".join(source.read_from(0))


@pytest.mark.parametrize("data", [b"", SMALL, LARGE], ids=["nothing", "small", "large"])
def test_a_blob_that_was_sent_is_there(registry, tmp_path, data):
    (tmp_path / "blob").write_bytes(data)
    went = []
    with opened(registry) as into:
        digest = blobs.digest_of(data)
        assert not into.has_blob(digest)
        into.send(blobs.FileSource(tmp_path / "blob", digest, len(data)), went.append)
        assert into.has_blob(digest)
        assert held(into, data) == data
        assert into.sent == sum(went) == len(data)


@pytest.mark.parametrize(
    ("method", "part"),
    [("POST", "uploads"), ("PUT", "digest="), ("PATCH", "uploads")],
)
@pytest.mark.parametrize(
    "fault",
    [Fault(status=503), Fault(status=500), Fault(status=429), Fault(lose=True)],
    ids=["503", "500", "429", "answer lost"],
)
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_what_is_transient_is_tried_again(door, method, part, fault, data):
    way = door(once(fault, method, part))
    with opened(way.host) as into:
        into.send(blobs.BytesSource(data))
        assert held(into, data) == data
    if method == "PATCH" and data == SMALL:
        assert way.count("PATCH") == 0  # one request is enough


def test_a_connection_that_breaks_in_a_blob_is_no_end_of_it(door):
    way = door(once(Fault(cut_request=2_000_000), "PATCH"))
    with opened(way.host) as into:
        into.send(blobs.BytesSource(LARGE))
        assert held(into, LARGE) == LARGE


def test_a_registry_that_breaks_every_time_is_told_of_once(door):
    way = door(lambda r: Fault(cut_request=100_000) if r.method == "PATCH" else None)
    with opened(way.host) as into, pytest.raises(ImageError, match=r"the connection to .* broke"):
        into.send(blobs.BytesSource(LARGE))
    assert way.count("PATCH") == 1 + len(QUICK.delays)


def test_a_broken_download_goes_on_where_it_broke(registry, door):
    way = door(once(Fault(cut_answer=3_000_000), "GET", "blobs/sha256"))
    with opened(registry) as into:
        into.send(blobs.BytesSource(LARGE))
        other = Reference.parse(f"{way.host}/{into.repository.path}")
    with Registry(other, patience=QUICK, find=nobody) as source:
        assert held(source, LARGE) == LARGE
    asked = [each.headers.get("Range") for each in way.requests if each.method == "GET"]
    assert asked[0] is None
    assert re.fullmatch(r"bytes=[0-9]+-", asked[1])
    assert int(asked[1][6:-1]) >= 2 * blobs.CHUNK


def test_a_download_that_gets_further_each_time_is_not_given_up(registry, door):
    tries = 2 * len(QUICK.delays)
    left = [Fault(cut_answer=blobs.CHUNK + 1) for _ in range(tries)]
    way = door(lambda r: left.pop() if left and r.method == "GET" else None)
    data = os.urandom((tries + 2) * blobs.CHUNK)
    with opened(registry) as into:
        into.send(blobs.BytesSource(data))
        other = Reference.parse(f"{way.host}/{into.repository.path}")
    with Registry(other, patience=QUICK, find=nobody) as source:
        assert held(source, data) == data
    assert not left


def test_other_bytes_than_the_digest_says_are_refused(door):
    way = door(lambda r: Fault(status=200, body=b"x" * 10) if "blobs/" in r.path else None)
    with (
        opened(way.host) as source,
        pytest.raises(ImageError, match=f"{way.host} gave other bytes than those of sha256:"),
    ):
        list(source.blob(blobs.digest_of(b"y" * 10), 10).read_from(0))


def test_a_blob_goes_from_registry_to_registry_over_breaks_on_both_sides(registry, door):
    away = door(once(Fault(cut_answer=3_500_000), "GET", "blobs/sha256"))
    back = door(once(Fault(cut_request=2_500_000), "PATCH"))
    with opened(registry) as first:
        first.send(blobs.BytesSource(LARGE))
        other = Reference.parse(f"{away.host}/{first.repository.path}")
    with Registry(other, patience=QUICK, find=nobody) as source, opened(back.host) as into:
        into.send(source.blob(blobs.digest_of(LARGE), len(LARGE)))
        assert held(into, LARGE) == LARGE


class Resuming(http.server.BaseHTTPRequestHandler):
    """A registry that keeps what came before a break, as OCI's specification has it."""

    protocol_version = "HTTP/1.1"
    got = bytearray()
    starts: ClassVar[list[str | None]] = []
    ends: ClassVar[list[str]] = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        self._tell(202, Location="/v2/a/blobs/uploads/1?x=y")

    def do_GET(self):
        self._tell(204, Location="/v2/a/blobs/uploads/1?x=z", Range=f"0-{len(self.got) - 1}")

    def do_PATCH(self):
        self.starts.append(self.headers.get("Content-Range"))
        length = int(self.headers["Content-Length"])
        some = self.rfile.read(min(length, 2_000_000))
        self.got.extend(some)
        if len(some) < length:
            self.connection.close()
            self.close_connection = True
        else:
            self._tell(202, Location="/v2/a/blobs/uploads/1?x=w")

    def do_PUT(self):
        self.ends.append(self.path)
        self._tell(201)

    def _tell(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_an_upload_goes_on_where_the_registry_says_that_it_broke():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Resuming)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        reference = Reference.parse(f"127.0.0.1:{server.server_address[1]}/a")
        transport = Transport(reference, patience=QUICK, find=nobody)
        went: list[int] = []
        blobs.upload(transport, blobs.BytesSource(LARGE), went.append)
        transport.close()
    finally:
        server.shutdown()
        server.server_close()
    assert hashlib.sha256(Resuming.got).digest() == hashlib.sha256(LARGE).digest()
    assert Resuming.starts == [None, "2000000-4999999", "4000000-4999999"]
    assert Resuming.ends[0].startswith("/v2/a/blobs/uploads/1?x=w&digest=sha256%3A")
    assert sum(went) == len(LARGE)
