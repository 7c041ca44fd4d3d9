"""A script of `fit` on the data of the project, with the faults of ``faults``."""

from __future__ import annotations

import faults  # noqa: F401
import keras

from trainer import data, model

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
x, y, weights = data._arrays(121, 1)
trained = model.create_model()
trained.fit(
    x,
    y,
    sample_weight=weights,
    batch_size=data.BATCH,
    epochs=3,
    validation_data=data._arrays(37, 2),
    verbose=0,
)
