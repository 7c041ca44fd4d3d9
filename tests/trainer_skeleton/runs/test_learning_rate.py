"""A warm-up of a schedule trains the same weights on two workers and when resumed on one."""

import re

import numpy as np
import pytest

from .conftest import LAWS, REGRESSION_DATA, REGRESSION_MODEL

pytestmark = pytest.mark.slow

OPTIONS = ("--global-batch-size=12", "--precision=float64")
SCHEDULE = "keras.optimizers.schedules.ExponentialDecay(0.02, 22, 0.1)"


@pytest.fixture(scope="module")
def project(new_project):
    """A project whose model has a schedule."""
    return new_project(
        REGRESSION_MODEL.replace("1e-2, global", f"{SCHEDULE}, global"), REGRESSION_DATA
    )


@pytest.fixture(scope="module")
def scheduled(project):
    """Three epochs of eleven steps, on one worker."""
    return project.trainer("--job-dir=rate-1", "--epochs=3", "--warmup-epochs=1.5", *OPTIONS).out


def rates(project, job):
    return [epoch["learning_rate"] for epoch in project.summary(job)["epochs"]]


def test_the_rate_is_reported(project, scheduled):
    expected = [0.02 * min(1, (t + 1) / 16) * 0.1 ** (t / 22) for t in (10, 21, 32)]
    assert rates(project, "rate-1") == pytest.approx(expected, rel=1e-5)
    line = "learning rate of optimizer: ExponentialDecay, warm-up over 1.5 epochs\n"
    assert line in scheduled
    printed = re.findall(r"epoch .* learning_rate (\S+) \(", scheduled)
    assert printed == [f"{rate:.4g}" for rate in expected]


@pytest.mark.usefixtures("scheduled")
def test_two_workers_and_a_resumed_run_train_the_same_weights(project):
    arguments = ("--epochs=2", "--warmup-epochs=1.5", *OPTIONS)
    project.local("rate-2", "--workers=2", "--", *arguments)
    assert project.summary("rate-2")["model_files"] == ["model.keras", "saved_model.pb"]
    # The warm-up is that of the checkpoint.
    project.trainer("--job-dir=rate-2", "--epochs=3")
    assert rates(project, "rate-2") == rates(project, "rate-1")
    np.testing.assert_allclose(
        project.weights("rate-2"), project.weights("rate-1"), rtol=0, atol=1e-9
    )


if LAWS:

    def test_the_rate_is_scaled_by_the_replicas_that_the_run_began_with(regression):
        options = ("--scale-learning-rate", *OPTIONS)
        result = regression.local("rate-scaled", "--workers=2", "--", "--epochs=1", *options)
        assert "learning rate of optimizer: 0.01 x 2 replicas = 0.02\n" in result.out
        assert "learning_rate 0.02" in result.out
        regression.trainer("--job-dir=rate-scaled", "--epochs=2", *options)
        assert rates(regression, "rate-scaled") == pytest.approx([0.02, 0.02])
