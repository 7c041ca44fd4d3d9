"""Requests, and their price by the bundled list or a user's file."""

from __future__ import annotations

import pytest

from distlaunch import price
from distlaunch.job import machine_catalogue
from distlaunch.job.vertex.view import JobRequest, PoolRequest

REGION = "us-central1"


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
def cost(known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(job, own=""):
        file = tmp_path / price.book.FILE_NAME
        file.write_text(own or "{}")
        return price.estimate_cost(job, known, price.load_prices(job, tmp_path))

    return run
