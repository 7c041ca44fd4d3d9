from __future__ import annotations

from contextlib import contextmanager

import pytest

from distlaunch.errors import JobFileError


@pytest.fixture
def refuses():
    """Expect a JobFileError whose lines, after the file's name, begin with the given texts."""

    @contextmanager
    def expect(file, *starts):
        with pytest.raises(JobFileError) as error:
            yield
        lines = [line.removeprefix(f"{file}:") for line in error.value.lines]
        assert len(lines) == len(starts), lines
        assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == [*starts]

    return expect
