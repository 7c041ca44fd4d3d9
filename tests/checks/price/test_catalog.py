"""Google's price list: read in pages, kept for a day, and doubted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from urllib.parse import urlsplit

import pytest
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter

from distlaunch.checks import price
from distlaunch.google.client import Session, connect

from ...google.servers import RESET, Reply, refused  # noqa: TID252 - tests are no package
from .lists import BILLED, COMPUTE_ENGINE, VERTEX_AI

H100 = "NVIDIA_H100_80GB"
DAY = 24 * 3600


class _To(HTTPAdapter):
    """Leads all requests to a server of the test's, as a network might that plays Google."""

    def __init__(self, url):
        super().__init__()
        self._url = url

    def send(self, request, *args, **kwargs):
        parts = urlsplit(request.url)
        request.url = f"{self._url}{parts.path}?{parts.query}"
        return super().send(request, *args, **kwargs)


@pytest.fixture
def google(listing, clock):
    """Make a session with who is Google to it."""

    def make(skus, **others):
        server, _ = listing(skus, **others)
        http = AuthorizedSession(AnonymousCredentials())
        http.trust_env = False
        http.mount("https://cloudbilling.googleapis.com", _To(server.url))
        session = Session(
            http, endpoint=None, project="p", clock=clock, sleep=clock.sleep, show_message=None
        )
        return server, session

    return make


@pytest.fixture
def drops():
    """Serve what never ends, a byte now and then."""
    is_over = threading.Event()

    class Dripping(BaseHTTPRequestHandler):
        def log_message(self, *_): ...

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not is_over.wait(0.02):
                    self.wfile.write(b" ")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Dripping)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    is_over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def a3(job):
    return job("a3-highgpu-8g", H100, 8)


@pytest.fixture
def ask(known):
    def run(job, session, file=None):
        return price.cost(job, known, price.prices(job, session=session, file=file))

    return run


def day_of(seconds):
    return datetime.fromtimestamp(seconds).astimezone().date()


def test_pages_are_read_to_the_last(google, ask, a3):
    server, session = google(BILLED, page=2)
    assert ask(a3, session).unknown == ()
    paths = {asked.path for asked in server.requests}
    assert paths == {f"/v1/services/{VERTEX_AI}/skus"}  # nothing of Compute Engine's is needed
    assert [asked.params.get("pageToken") for asked in server.requests] == [None, "2", "4", "6"]
    assert {asked.params["currencyCode"] for asked in server.requests} == {"USD"}


def test_the_call_is_one_that_google_describes(google, ask, a3):
    server, session = google(BILLED)
    ask(a3, session)
    documents = files("googleapiclient") / "discovery_cache/documents"
    described = json.loads((documents / "cloudbilling.v1.json").read_text())
    listing = described["resources"]["services"]["resources"]["skus"]["methods"]["list"]
    known = listing["parameters"].keys() | described["parameters"].keys()
    assert server.requests[-1].params.keys() <= known

    schemas = described["schemas"]
    asked_for = set(re.findall(r"\w+", server.requests[-1].params["fields"]))
    shapes = ("ListSkusResponse", "Sku", "PricingInfo", "PricingExpression")
    assert asked_for <= {name for shape in shapes for name in schemas[shape]["properties"]}


def test_a_list_is_kept_for_a_day(google, ask, a3, cache):
    server, session = google(BILLED, page=99)
    first = ask(a3, session)
    [file] = cache.iterdir()
    assert file.name == f"prices-{VERTEX_AI}-USD.json"
    day = day_of(time.time())
    assert first.lines()[1].startswith(f"by Google's Cloud Billing Catalog of {day} (STANDARD)")
    assert len(server.requests) == 1

    assert ask(a3, session) == first
    assert len(server.requests) == 1

    then = time.time() - DAY + 600
    os.utime(file, (then, then))
    of_then = ask(a3, session)
    assert (of_then.an_hour, of_then.date) == (first.an_hour, day_of(then))
    assert len(server.requests) == 1

    for then in (time.time() - DAY - 600, time.time() + 600):  # the clock was wrong
        os.utime(file, (then, then))
        assert ask(a3, session) == first
    assert len(server.requests) == 3


def test_another_service_and_another_currency_are_other_lists(google, ask, job, cache, tmp_path):
    server, session = google(BILLED, page=99)
    ask(job("a3-highgpu-8g", H100, 8, strategy="SPOT"), session)
    own = tmp_path / "own.yaml"
    own.write_text("currency: EUR\n")
    in_euro = ask(job("a3-highgpu-8g", H100, 8), session, own)
    assert [asked.params["currencyCode"] for asked in server.requests] == ["USD", "USD", "EUR"]
    assert {file.name for file in cache.iterdir()} == {
        f"prices-{VERTEX_AI}-USD.json",
        f"prices-{COMPUTE_ENGINE}-USD.json",
        f"prices-{VERTEX_AI}-EUR.json",
    }
    assert in_euro.unknown == ("a3-highgpu-8g", H100)  # dollars are no euros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"version": 0, "listed": {}}',
        '{"version": 1}',
        '{"version": 1, "listed": []}',
        '{"version": 1, "listed": {"standard core A3": {"us-central1": ["free"]}}}',
        '{"version": 1, "listed": {"standard core A3": {"us-central1": ["NaN"]}}}',
        '{"version": 1, "listed": {"standard core A3": {"us-central1": ["-1"]}}}',
        '{"version": 1, "listed": {"standard core A3": {"us-central1": [null]}}}',
        '{"version": 1, "listed": {"standard core A3": ["1"]}}',
    ],
)
def test_what_was_kept_by_somebody_else_is_read_anew(google, ask, a3, cache, text):
    server, session = google(BILLED, page=99)
    cache.mkdir(parents=True)
    (cache / f"prices-{VERTEX_AI}-USD.json").write_text(text)
    assert ask(a3, session).unknown == ()
    assert len(server.requests) == 1


def test_a_list_that_cannot_be_kept_is_used_all_the_same(google, ask, a3, cache):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    _, session = google(BILLED)
    assert ask(a3, session).unknown == ()


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (refused(403, "PERMISSION_DENIED", "No such luck"), "No such luck"),
        (refused(503, "UNAVAILABLE", "Later."), "cloudbilling.googleapis.com answers 503 (Later)"),
        (
            Reply(body=b"<html>"),
            "cloudbilling.googleapis.com: invalid response: expected a JSON object",
        ),
    ],
)
def test_a_refusal_leaves_prices_unknown_and_says_why(google, ask, a3, refusal, told):
    _, session = google(BILLED, refusal=refusal)
    cost = ask(a3, session)
    assert cost.unknown == ("a3-highgpu-8g", H100)
    line, _ = cost.lines()
    assert line.startswith("unknown: Google's price list cannot be read: ")
    assert told in line


def test_nobody_there_leaves_prices_unknown(ask, a3, listing):
    server, _ = listing(BILLED)
    port = server.port
    server.close()
    cost = ask(a3, connect(f"http://127.0.0.1:{port}"))
    assert "cannot reach" in cost.lines()[0]


def test_a_list_without_an_end_is_left(google, ask, a3, clock):
    server, session = google({})

    def answer(asked):
        clock.time += 10
        return Reply(body={"nextPageToken": "again", "skus": []})

    server.answer = answer
    cost = ask(a3, session)
    assert "it was not there within 8 seconds" in cost.lines()[0]
    assert len(server.requests) == 1


def test_a_page_that_comes_in_drops_is_left_too(a3, known, drops):
    session = connect(drops)
    found = price.prices(a3, session=session, file=None, patience=0.2)
    assert found.why == "Google's price list cannot be read: it was not there within 0.2 seconds"
    assert price.cost(a3, known, found).an_hour is None


def test_a_page_that_is_silent_once_is_asked_for_again(a3, known, listing):
    server, session = listing(BILLED)
    answer, is_over = server.answer, threading.Event()

    def be_silent_once(asked):
        if len(server.requests) == 1:
            is_over.wait(30)
            return RESET
        return answer(asked)

    server.answer = be_silent_once
    found = price.prices(a3, session=session, file=None, patience=3)
    is_over.set()
    assert price.cost(a3, known, found).unknown == ()


@pytest.mark.parametrize(
    "skus", ["no list", [None], [1], [{"description": None}], [{"serviceRegions": 3}], {"a": 1}]
)
def test_a_list_of_something_else_has_no_prices(google, ask, a3, skus):
    server, session = google({})
    server.answer = lambda _: Reply(body={"skus": skus})
    assert ask(a3, session).unknown == ("a3-highgpu-8g", H100)


def test_without_a_region_nobody_is_asked(google, ask, job):
    server, session = google(BILLED)
    cost = ask(job("a3-highgpu-8g", H100, 8, region=""), session)
    assert "it is not known in which region" in cost.lines()[0]
    assert "'REGION: {STANDARD: " in cost.lines()[1]
    assert server.requests == []
