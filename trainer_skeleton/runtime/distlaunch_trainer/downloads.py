"""Downloads of data and weights: by one task of a machine at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import DataError, summarize


@contextlib.contextmanager
def downloading(what: str, remedy: str) -> Iterator[None]:
    """Let one task of this machine at a time run a block that downloads and caches a file.

    So the tasks do not download it twice, and none reads a file that is still being written, as
    ``keras.utils.get_file`` writes it in place.

    Create no layers in the block: in the scope of a strategy, all tasks create a variable together,
    so one would wait for another that waits for the block.

    Parameters
    ----------
    what
        What is downloaded, for the error.
    remedy
        What to do where it cannot be downloaded.

    Raises
    ------
    DataError
        If the block fails.
    """
    lock = Path(tempfile.gettempdir()) / f"distlaunch-downloads-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        except Exception as error:
            raise DataError(f"{what} cannot be downloaded: {summarize(error)}; {remedy}") from error
