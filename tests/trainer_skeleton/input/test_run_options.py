"""What a run may change when it resumes, alike for projects and scripts."""

from dataclasses import replace

import pytest

from distlaunch_trainer.errors import DataError, PlanError
from distlaunch_trainer.input.run_options import resume_on_data, run_options
from distlaunch_trainer.options import Settings
from distlaunch_trainer.training_state import Progress, RunOptions, TrainingState

SAVED = RunOptions(640, 32, 2, 0, 0, 20, "float32", batches=20)
BETWEEN = Progress(40, [{}, {}], epoch_step=40)
WITHIN = Progress(45, [{}, {}], epoch_step=40)
LARGER = replace(SAVED, examples=1280, steps_per_epoch=40, batches=40)


def resume(options, progress=BETWEEN, saved=SAVED):
    warnings: list[str] = []
    return resume_on_data(options, TrainingState(saved, progress), warnings.append), warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            replace(SAVED, global_batch=64, steps_per_epoch=10, batches=10),
            "a global batch of 32 and cannot continue with 64: use a global batch of 32, or "
            "--no-resume or another --job-dir to start from scratch",
        ),
        (replace(SAVED, precision="float64"), "precision float32 and cannot continue with float64"),
        (replace(SAVED, steps_per_epoch=7), "steps_per_epoch 20 and cannot continue with 7"),
    ],
)
def test_another_batch_precision_or_length_of_epochs_is_refused(options, message):
    with pytest.raises(PlanError) as refused:
        resume(options)
    assert message in str(refused.value)


def test_other_data_are_refused_within_an_epoch():
    with pytest.raises(DataError) as refused:
        resume(LARGER, WITHIN)
    assert str(refused.value) == (
        "this job stopped in epoch 3, after step 45, and its data have changed from 640 to "
        "1,280 examples: bring the data back until the epoch has ended, or use --no-resume or "
        "another --job-dir to start from scratch"
    )


def test_other_data_begin_with_an_epoch():
    options, warnings = resume(LARGER)
    assert (options.first_step, options.steps_per_epoch) == (40, 40)
    assert warnings == [
        "the data have changed from 640 to 1,280 examples: epochs from 3 on train on the new data"
    ]
    later, warnings = resume(LARGER, Progress(90, [{}] * 3, epoch_step=80), saved=options)
    assert (later.first_step, warnings) == (40, [])


@pytest.mark.parametrize("progress", [BETWEEN, WITHIN])
def test_data_whose_numbers_are_as_before_or_not_known_resume(progress):
    assert resume(SAVED, progress) == (SAVED, [])
    unknown = replace(SAVED, examples=0, batches=0)
    assert resume(unknown, progress, saved=unknown) == (unknown, [])


def test_steps_that_were_set_may_be_those_of_other_data():
    options, warnings = resume(replace(LARGER, steps_per_epoch=20))
    assert options.steps_per_epoch == 20
    assert len(warnings) == 1


def test_a_resumed_run_has_its_learning_rate_on_any_number_of_replicas():
    requested = Settings(scale_learning_rate=True, warmup_epochs=0.5)
    started = run_options(requested, 3, None)
    assert (started.rate_scale, started.warmup_epochs) == (3, 0.5)
    # With the same options, as a restarted job has them, or without any.
    for again in (requested, Settings()):
        resumed = run_options(again, 5, started)
        assert (resumed.rate_scale, resumed.warmup_epochs) == (3, 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_epochs": 2.0}, "started with --warmup-epochs 0.0 and cannot continue with 2.0"),
        ({"scale_learning_rate": True}, "started without --scale-learning-rate: leave it out, or"),
    ],
)
def test_another_learning_rate_than_before_is_refused(options, message):
    with pytest.raises(PlanError, match=message):
        run_options(Settings(**options), 2, SAVED)
