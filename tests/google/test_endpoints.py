from __future__ import annotations

import pytest

from distlaunch.errors import UsageError
from distlaunch.google import endpoints


@pytest.mark.parametrize(
    ("service", "options", "url"),
    [
        ("aiplatform", {"region": "eu-w4"}, "https://eu-w4-aiplatform.googleapis.com/v1/p"),
        ("logging", {}, "https://logging.googleapis.com/v2/p"),
        ("storage", {}, "https://storage.googleapis.com/storage/v1/p"),
        ("storage", {"version": "v2"}, "https://storage.googleapis.com/storage/v2/p"),
        ("logging", {"endpoint": "http://127.0.0.1:1"}, "http://127.0.0.1:1/v2/p"),
    ],
)
def test_url_of_a_call(service, options, url):
    assert endpoints.service_url(service, "p", **options) == url


@pytest.mark.parametrize(
    "region", ["", None, "evil.com/", "us-central1.evil.com#", "US-1", "a\nb1"]
)
def test_a_token_never_goes_where_a_region_leads_it(region):
    with pytest.raises(UsageError, match="is not a region; expected one such as us-central1"):
        endpoints.service_url("aiplatform", "x", region=region)


LOOPBACK = ["http://127.0.0.1:8085", "http://127.1.2.3:8085/", "http://localhost:1", "http://[::1]"]


@pytest.mark.parametrize(
    "endpoint", [*LOOPBACK, "https://example.com", "https://127.0.0.1:8085/gate"]
)
def test_endpoints_that_are_taken(endpoint):
    assert endpoints.normalise_endpoint(endpoint) == endpoint.rstrip("/")
    assert endpoints.is_loopback(endpoint) is endpoint.startswith("http://")


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://example.com",
        "http://10.0.0.1:8085",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://127.0.0.1@example.com",
        "ftp://127.0.0.1",
        "127.0.0.1:8085",
        "http://127.0.0.1:port",
        "https://",
        "https://example.com?a=b",
        "",
    ],
)
def test_endpoints_that_credentials_must_not_be_sent_to(endpoint):
    with pytest.raises(UsageError, match=r"^--endpoint "):
        endpoints.normalise_endpoint(endpoint)
    assert not endpoints.is_loopback(endpoint)
