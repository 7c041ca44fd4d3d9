"""A job's source → an image by digest.

Two steps: `plan` finds out what there is to do, by asking the registry and nobody else; `carry_out`
does it. An engine is started up for neither of them unless an environment has to be built.
"""

from __future__ import annotations

from distlaunch.image.as_before import Glance
from distlaunch.image.build import carry_out
from distlaunch.image.plan import BuiltImage, ImagePlan, Way, plan, plan_as_before

__all__ = ["BuiltImage", "Glance", "ImagePlan", "Way", "carry_out", "plan", "plan_as_before"]
