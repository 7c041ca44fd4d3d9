"""Requests, and a server with price lists."""

from __future__ import annotations

from datetime import date

import pytest

from distlaunch.checks.request_view import JobRequest, PoolRequest
from distlaunch.google.client import connect
from distlaunch.job import machine_catalogue

from ...google.servers import Clock, Reply, Server  # noqa: TID252 - tests are no package
from .lists import REGION


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Cache price lists in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/distlaunch"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def known():
    return machine_catalogue.load(None)


@pytest.fixture
def today():
    return date(2026, 11, 21)


@pytest.fixture
def job():
    """Return a function that makes a request: a chief, or some pools."""

    def make(
        machine="n1-standard-8", accelerator=None, count=0, *, pools=(), region=REGION, **others
    ) -> JobRequest:
        chief = PoolRequest("chief", 1, machine, accelerator, count)
        return JobRequest("digits", "my-project", region, tuple(pools) or (chief,), **others)

    return make


@pytest.fixture
def listing():
    """Serve price lists, in pages of some SKUs; returns the server and a session with it."""
    servers: list[Server] = []

    def serve(skus, page=3, refusal=None):
        def answer(request):
            if refusal:
                return refusal
            service = request.path.split("/")[3]
            listed = skus.get(service, [])
            start = int(request.params.get("pageToken") or 0)
            rest = {"nextPageToken": str(start + page)} if start + page < len(listed) else {}
            return Reply(body={"skus": listed[start : start + page], **rest})

        servers.append(Server(answer))
        return servers[-1], connect(servers[-1].url, project="my-project")

    yield serve
    for server in servers:
        server.close()
