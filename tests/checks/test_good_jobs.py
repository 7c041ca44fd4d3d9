"""Jobs that are all right raise no alarm."""

from __future__ import annotations

import pytest

from .corpus.cases import run
from .corpus.good import GOOD


@pytest.mark.parametrize("name", GOOD)
def test_a_good_job_is_ready(name, offline, google, with_base):
    case = GOOD[name]
    google()
    folder, denied = offline(GOOD)[name]
    for place in (("--offline",), with_base):
        said = run("check", "--json", *place, *case.words, folder=folder)
        assert said.codes == case.warned, said.problems
        assert (said.report["ready"], said.code) == (True, 0)
        assert said == denied or place != ("--offline",)
