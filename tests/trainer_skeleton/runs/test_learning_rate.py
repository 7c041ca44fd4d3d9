"""A schedule trains the same weights on two workers and when it is resumed on one."""

import re

import numpy as np
import pytest

from .conftest import LAWS

pytestmark = pytest.mark.slow

OPTIONS = ("--global-batch-size=12", "--precision=float64")
SCHEDULE = (
    "--warmup-epochs=1.5",
    "--decay=exponential",
    "--decay-epochs=2",
    "--learning-rate=0.02",
)


@pytest.fixture(scope="module")
def scheduled(regression):
    """Three epochs of eleven steps, on one worker."""
    return regression.trainer("--job-dir=rate-1", "--epochs=3", *OPTIONS, *SCHEDULE).out


def rates(project, job):
    return [epoch["learning_rate"] for epoch in project.summary(job)["epochs"]]


def test_the_rate_is_reported(regression, scheduled):
    expected = [0.02 * min(1, (t + 1) / 16) * 0.1 ** (t / 22) for t in (10, 21, 32)]
    assert rates(regression, "rate-1") == pytest.approx(expected, rel=1e-5)
    line = "learning rate of optimizer: 0.02, warm-up over 1.5 epochs, exponential decay\n"
    assert line in scheduled
    printed = re.findall(r"epoch .* learning_rate (\S+) \(", scheduled)
    assert printed == [f"{rate:.4g}" for rate in expected]


@pytest.mark.usefixtures("scheduled")
def test_two_workers_and_a_resumed_run_train_the_same_weights(regression):
    regression.local("rate-2", "--workers=2", "--", "--epochs=2", *OPTIONS, *SCHEDULE)
    assert regression.summary("rate-2")["model_files"] == ["model.keras", "saved_model.pb"]
    # The options are those of the checkpoint.
    regression.trainer("--job-dir=rate-2", "--epochs=3")
    assert rates(regression, "rate-2") == rates(regression, "rate-1")
    np.testing.assert_allclose(
        regression.weights("rate-2"), regression.weights("rate-1"), rtol=0, atol=1e-9
    )


if LAWS:

    def test_the_rate_is_scaled_by_the_replicas_that_the_run_began_with(regression):
        options = ("--scale-learning-rate", *OPTIONS)
        result = regression.local("rate-scaled", "--workers=2", "--", "--epochs=1", *options)
        assert "learning rate of optimizer: 0.01 x 2 replicas = 0.02\n" in result.out
        assert "learning_rate 0.02" in result.out
        regression.trainer("--job-dir=rate-scaled", "--epochs=2", *options)
        assert rates(regression, "rate-scaled") == pytest.approx([0.02, 0.02])
