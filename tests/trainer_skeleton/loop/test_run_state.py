"""A run that resumes, within an epoch too, ends as one that was not interrupted."""

import json
import os
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("resumed_runs.py")
LAWS = bool(os.environ.get("DISTLAUNCH_TEST_LAWS"))
# Every callback of Keras that may train, and some that change what they can, each alone.
ALONE = ("scheduler", "plateau", "stopping", "files", "nan", "swap", "function", "rates", "counts")


@pytest.fixture(scope="module")
def resumed(tensorflow, tmp_path_factory):
    """What differs after a resume, by callbacks and step: three steps in each of two epochs."""
    cases, steps = (("all", "stops", *ALONE), range(1, 7)) if LAWS else (("all",), (0, 2, 5))
    folder = tmp_path_factory.mktemp("resumed")
    (folder / PROGRAM.name).symlink_to(PROGRAM)
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    result = tensorflow.run(PROGRAM.stem, *cases, *map(str, steps), cwd=folder, env=env)
    assert result.code == 0, result.text
    return json.loads(result.out.splitlines()[-1])


def test_callbacks_have_the_rates_records_and_files_of_a_run_without_a_stop(resumed):
    """Whatever hooks change is changed once, in attributes that no checkpoint holds too."""
    assert not [(case, found) for case, found in resumed.items() if any(found.values())]
