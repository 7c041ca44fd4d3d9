"""Requests, and their price with the fake Google's price list or a user's file."""

from __future__ import annotations

import pytest

from distlaunch.checks import price
from distlaunch.checks.request_view import JobRequest, PoolRequest
from distlaunch.google.client import connect
from distlaunch.job import machine_catalogue

from .lists import REGION


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/distlaunch"


@pytest.fixture
def known():
    return machine_catalogue.load(None)


@pytest.fixture
def job():

    def make(
        machine="n1-standard-8", accelerator=None, count=0, *, pools=(), region=REGION, **others
    ) -> JobRequest:
        chief = PoolRequest("chief", 1, machine, accelerator, count)
        return JobRequest("digits", "my-project", region, tuple(pools) or (chief,), **others)

    return make


@pytest.fixture
def offline(known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(job, own="", session=None, **options):
        file = tmp_path / price.book.FILE_NAME
        file.write_text(own)
        prices = price.load_prices(job, session=session, file=file if own else None, **options)
        return price.estimate_cost(job, known, prices)

    return run


@pytest.fixture
def cost(offline):

    def run(job, own="", **options):
        session = connect(project="my-project", sleep=lambda _: None)
        return offline(job, own, session, **options)

    return run
