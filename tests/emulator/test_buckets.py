"""Buckets as folders."""

from __future__ import annotations

import pytest

from distlaunch.emulator.buckets import local_path


def test_a_uri_is_a_path_below_the_folder_of_its_bucket(tmp_path):
    assert (
        local_path(tmp_path, "gs://my-bucket/digits/model/") == tmp_path / "my-bucket/digits/model"
    )
    assert local_path(tmp_path, "gs://my-bucket") == tmp_path / "my-bucket"


@pytest.mark.parametrize("uri", ["gs://a/x", "gs://my-bucket/../x", "gs://my-bucket/a//b"])
def test_a_uri_outside_a_bucket_is_refused(tmp_path, uri):
    with pytest.raises(ValueError, match="bucket"):
        local_path(tmp_path, uri)


def test_a_symlink_that_leads_out_of_the_bucket_is_refused(tmp_path):
    bucket = tmp_path / "my-bucket"
    bucket.mkdir()
    (bucket / "out").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="symlink"):
        local_path(tmp_path, "gs://my-bucket/out/x")
