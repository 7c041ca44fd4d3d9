"""Folders of buckets that no file system can hold."""

from __future__ import annotations

import pytest

from distlaunch.engines.vertex.client import connect
from distlaunch.errors import DistlaunchError
from distlaunch.runs.fetch import fetch_folder


def test_a_file_that_is_a_folder_as_well_is_refused_before_a_download(google, tmp_path):
    names = ("job/model/a/b/c", "job/model/d", "job/model/a")
    items = [{"name": name, "size": "1", "generation": "1"} for name in names]
    google(services=[lambda _, request: {"items": items} if "storage" in request.host else None])
    with pytest.raises(DistlaunchError) as refusal:
        fetch_folder(connect(project="p"), "gs://bucket/job", tmp_path / "out", print)
    name = "gs://bucket/job/model/a"
    assert f"{name} is a file, and there are files in {name}/" in str(refusal.value)
    assert f"'gcloud storage mv {name} {name}.file'" in refusal.value.remedy
    assert not (tmp_path / "out").exists()
