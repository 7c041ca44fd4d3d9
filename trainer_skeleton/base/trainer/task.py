"""Train the model of ``model.py`` on the data of ``data.py``: ``python -m trainer.task``.

Every task of the cluster runs this program. TF_CONFIG describes the cluster and names the task;
without it the program trains in one process.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from distlaunch_trainer import launch, options


def train(settings: Namespace) -> None:
    """Train as one task of the cluster."""
    # TensorFlow is imported here, so that wrong options are reported at once.
    from distlaunch_trainer import Run

    # The strategy: MultiWorkerMirroredStrategy if TF_CONFIG names several tasks, MirroredStrategy
    # for several GPUs of one machine, the default one otherwise.
    with Run(settings) as run:
        # Imported after the strategy exists: modules may run TensorFlow operations.
        from trainer import data, model

        # The data, sharded: every replica reads its part of each global batch, so that all of them
        # together train on each example once per epoch. If data.py has validation() and test(),
        # these data are evaluated after each epoch and after the training.
        parts = (getattr(data, name, None) for name in ("validation", "test"))
        run.load_data(data.training, *parts)

        # The scope: variables that are created in it are mirrored on all replicas.
        with run.strategy.scope():
            network = run.build_model(model.create_model)

        # With --evaluate: the weights of a checkpoint or a saved model, evaluated on all replicas.
        if settings.evaluate:
            run.evaluate(network)
            return

        # Training: each replica differentiates its part of the loss, and the gradients are summed
        # over all replicas before the optimizer applies them, so the weights stay the same.
        callbacks = getattr(model, "callbacks", list)
        run.fit(network, callbacks=callbacks())

        # Saving, on the chief only: it has the same weights as all others.
        if run.is_chief:
            run.save_model(network)


def main(arguments: list[str] | None = None) -> int:
    """Parse the options and train; return the exit code."""
    return launch(train, options.parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
