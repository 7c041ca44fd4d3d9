from __future__ import annotations

import distlaunch
import trainer.distributed


def test_the_trainer_has_the_version_of_the_launcher_that_brings_it():
    assert trainer.distributed.__version__ == distlaunch.__version__
