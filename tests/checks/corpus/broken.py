"""Broken jobs, and what has to be said of each.

They are written from what people complain of in forums and trackers, from the limits that Google
documents, and from what the bundled trainer cannot do.
"""

from .clouds import CLOUDS
from .limits import LIMITS
from .projects import DATA, PROJECT
from .requests import ESSENTIALS, MACHINES, UNREADABLE

OFFLINE = {**ESSENTIALS, **MACHINES, **LIMITS, **PROJECT, **DATA}
BROKEN = {**OFFLINE, **CLOUDS}

__all__ = ["BROKEN", "OFFLINE", "UNREADABLE"]
