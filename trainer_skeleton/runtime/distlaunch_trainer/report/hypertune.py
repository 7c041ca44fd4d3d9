"""The metric file that Vertex AI's hyperparameter tuning reads.

In the format of cloudml-hypertune (https://github.com/GoogleCloudPlatform/cloudml-hypertune), which
need not be in the image.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from distlaunch_trainer.errors import StorageError

# As many as cloudml-hypertune keeps.
_MOST_LINES = 100
_USUAL_PATH = "/tmp/hypertune/output.metrics"  # noqa: S108 - cloudml-hypertune's default


class MetricFile:
    """The metrics of a trial.

    The path is ``CLOUD_ML_HP_METRIC_FILE``, or cloudml-hypertune's default where only
    ``CLOUD_ML_TRIAL_ID`` is set. Without both nothing is written.
    """

    def __init__(self) -> None:
        usual_path = _USUAL_PATH if "CLOUD_ML_TRIAL_ID" in os.environ else None
        self._path = os.environ.get("CLOUD_ML_HP_METRIC_FILE", usual_path)
        self._trial = os.environ.get("CLOUD_ML_TRIAL_ID", "0")
        # Of a search on this machine, which knows by all names whether the metric exists.
        self._has_all = "DISTLAUNCH_LOCAL_TRIAL" in os.environ
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a step, one a line, and write the file.

        Vertex AI gets those that are finite.
        """
        if self._path is None:
            return
        now = time.time()
        for name, value in metrics.items():
            if self._has_all or math.isfinite(value):
                entry = {
                    name: str(float(value)),
                    "checkpoint_path": "",
                    "global_step": str(step),
                    "timestamp": now,
                    "trial": self._trial,
                }
                self._lines.append(json.dumps(entry, sort_keys=True) + "\n")
        path = Path(self._path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(self._lines), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write the metrics to {path}: {error.strerror}") from error
