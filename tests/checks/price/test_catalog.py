"""Google's price list: read in pages, cached for a day, and unknown if it cannot be read."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime
from importlib.resources import files

import pytest
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter

from distlaunch.checks import price
from distlaunch.google.client import Session, connect

from ...google.servers import Reply, refused  # noqa: TID252 - tests are no package
from .lists import BILLED, COMPUTE_ENGINE, VERTEX_AI

H100 = "NVIDIA_H100_80GB"
DAY = 24 * 3600


class _RedirectTo(HTTPAdapter):
    """Sends requests for Google to a server of the test."""

    def __init__(self, url):
        super().__init__()
        self._url = url

    def send(self, request, *args, **kwargs):
        request.url = request.url.replace("https://cloudbilling.googleapis.com", self._url)
        return super().send(request, *args, **kwargs)


@pytest.fixture
def google(listing, clock):
    """Return a server with price lists, and a session for which it is Google."""

    def make(skus, **options):
        server, _ = listing(skus, **options)
        http = AuthorizedSession(AnonymousCredentials())
        http.trust_env = False
        http.mount("https://cloudbilling.googleapis.com", _RedirectTo(server.url))
        session = Session(
            http, endpoint=None, project="p", clock=clock, sleep=clock.sleep, show_message=None
        )
        return server, session

    return make


@pytest.fixture
def a3(job):
    return job("a3-highgpu-8g", H100, 8)


@pytest.fixture
def cost(known):
    def run(job, session, file=None, **options):
        prices = price.load_prices(job, session=session, file=file, **options)
        return price.estimate_cost(job, known, prices)

    return run


def date_of(seconds):
    return datetime.fromtimestamp(seconds).astimezone().date()


def test_all_pages_are_read_as_google_documents_them(google, cost, a3):
    server, session = google(BILLED, page=2)
    assert cost(a3, session).unknown == ()
    assert {request.path for request in server.requests} == {f"/v1/services/{VERTEX_AI}/skus"}
    params = [request.params for request in server.requests]
    assert [each.get("pageToken") for each in params] == [None, "2", "4", "6"]
    assert {each["currencyCode"] for each in params} == {"USD"}

    documents = files("googleapiclient") / "discovery_cache/documents"
    described = json.loads((documents / "cloudbilling.v1.json").read_text())
    listing = described["resources"]["services"]["resources"]["skus"]["methods"]["list"]
    assert params[-1].keys() <= listing["parameters"].keys() | described["parameters"].keys()
    shapes = ("ListSkusResponse", "Sku", "PricingInfo", "PricingExpression")
    fields = {name for shape in shapes for name in described["schemas"][shape]["properties"]}
    assert set(re.findall(r"\w+", params[-1]["fields"])) <= fields


def test_a_list_is_cached_for_a_day(google, cost, a3, cache):
    server, session = google(BILLED, page=99)
    first = cost(a3, session)
    [file] = cache.iterdir()
    assert file.name == f"prices-{VERTEX_AI}-USD.json"
    today = date_of(time.time())
    assert first.lines()[1].startswith(
        f"prices from Google's Cloud Billing Catalog of {today} (STANDARD)"
    )
    written = time.time() - DAY + 600
    os.utime(file, (written, written))
    cached = cost(a3, session)
    assert (cached.an_hour, cached.date) == (first.an_hour, date_of(written))
    assert len(server.requests) == 1
    for written in (time.time() - DAY - 600, time.time() + 600):  # the latter by a wrong clock
        os.utime(file, (written, written))
        assert cost(a3, session) == first
    assert len(server.requests) == 3


def test_each_service_and_currency_has_its_list(google, cost, job, cache, tmp_path):
    server, session = google(BILLED, page=99)
    cost(job("a3-highgpu-8g", H100, 8, strategy="SPOT"), session)
    own = tmp_path / "own.yaml"
    own.write_text("currency: EUR\n")
    in_euro = cost(job("a3-highgpu-8g", H100, 8), session, own)
    assert [request.params["currencyCode"] for request in server.requests] == ["USD", "USD", "EUR"]
    assert {file.name for file in cache.iterdir()} == {
        f"prices-{VERTEX_AI}-USD.json",
        f"prices-{COMPUTE_ENGINE}-USD.json",
        f"prices-{VERTEX_AI}-EUR.json",
    }
    assert in_euro.unknown == ("a3-highgpu-8g", H100)  # the list has dollars only


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 0, "listed": {}}', '{"version": 1}'])
def test_an_invalid_cache_is_replaced(google, cost, a3, cache, text):
    server, session = google(BILLED, page=99)
    cache.mkdir(parents=True)
    (cache / f"prices-{VERTEX_AI}-USD.json").write_text(text)
    assert cost(a3, session).unknown == ()
    assert len(server.requests) == 1
    assert cost(a3, session).unknown == ()
    assert len(server.requests) == 1


def test_a_list_is_used_without_a_cache(google, cost, a3, cache):
    cache.parent.mkdir()
    cache.write_text("a file in place of the folder")
    _, session = google(BILLED)
    assert cost(a3, session).unknown == ()


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (refused(403, "PERMISSION_DENIED", "No such luck"), "No such luck"),
        (refused(503, "UNAVAILABLE", "Later."), "cloudbilling.googleapis.com answers 503 (Later)"),
        (Reply(body=b"<html>"), "cloudbilling.googleapis.com: invalid response: expected a JSON"),
    ],
)
def test_without_a_list_prices_are_unknown(google, cost, a3, refusal, reason):
    _, session = google(BILLED, refusal=refusal)
    result = cost(a3, session)
    assert result.unknown == ("a3-highgpu-8g", H100)
    assert result.lines()[0].startswith("unknown: Google's price list cannot be read: ")
    assert reason in result.lines()[0]


def test_a_server_that_does_not_respond_is_given_up(cost, a3, listing):
    server, session = listing(BILLED)
    server.answer = lambda _: Reply(drips="amid")
    line = cost(a3, session, timeout=0.5).lines()[0]
    assert line == "unknown: Google's price list cannot be read: no complete response within 0.5 s"
    port = server.port
    server.close()
    assert "cannot reach" in cost(a3, connect(f"http://127.0.0.1:{port}")).lines()[0]


@pytest.mark.parametrize(
    "skus", ["no list", [None], [1], [{"description": None}], [{"serviceRegions": 3}], {"a": 1}]
)
def test_an_invalid_list_has_no_prices(google, cost, a3, skus):
    server, session = google({})
    server.answer = lambda _: Reply(body={"skus": skus})
    assert cost(a3, session).unknown == ("a3-highgpu-8g", H100)


def test_without_a_region_there_is_no_call(google, cost, job):
    server, session = google(BILLED)
    first, remedy = cost(job("a3-highgpu-8g", H100, 8, region=""), session).lines()
    assert first == "unknown: the job has no region"
    assert "'REGION: {STANDARD: " in remedy
    assert server.requests == []
