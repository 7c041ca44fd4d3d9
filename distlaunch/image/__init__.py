"""The container image of a job: `plan_image` compares with the registry, `execute_plan` builds."""

from __future__ import annotations

from distlaunch.image.build import execute_plan
from distlaunch.image.plan import ImagePlan, plan_image

__all__ = ["ImagePlan", "execute_plan", "plan_image"]
