"""Buckets as folders."""

from __future__ import annotations

import io

import pytest
import requests
from google.api_core.exceptions import Conflict
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from distlaunch.emulator.buckets import local_path
from distlaunch.emulator.emulator import Emulator


@pytest.mark.parametrize(
    "uri", ["gs://a/x", "gs://my-bucket/../x", "gs://my-bucket/a//b", "gs://my-bucket/link/x"]
)
def test_a_uri_outside_a_bucket_is_refused(tmp_path, uri):
    (tmp_path / "my-bucket").mkdir()
    (tmp_path / "my-bucket/link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="bucket"):
        local_path(tmp_path, uri)


@pytest.fixture
def client(service):
    """Google's own client, led to the service."""
    return storage.Client(
        project="p",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": service.url},
    )


def test_google_s_client_uploads_lists_downloads_and_deletes(client, service):
    bucket = client.bucket("my-bucket")
    bucket.blob("a/b é.txt").upload_from_string(b"multi\r\npart\n\n")
    resumable = bucket.blob("a/large", chunk_size=256 * 1024)
    content = bytes(range(256)) * 3_000
    resumable.upload_from_file(io.BytesIO(content), size=len(content))
    assert resumable.size == len(content)
    assert (service.storage / "my-bucket/a/b é.txt").read_bytes() == b"multi\r\npart\n\n"
    assert (service.storage / "my-bucket/a/large").read_bytes() == content

    (service.storage / "my-bucket/model.keras").write_bytes(b"written by a job")
    assert [blob.name for blob in client.list_blobs("my-bucket", prefix="a/l")] == ["a/large"]
    listing = client.list_blobs("my-bucket", delimiter="/")
    assert [blob.name for blob in listing] == ["model.keras"]
    assert listing.prefixes == {"a/"}
    [model] = [blob for blob in client.list_blobs("my-bucket") if blob.name == "model.keras"]
    assert model.download_as_bytes() == b"written by a job"
    assert model.download_as_bytes(start=1, end=2) == b"ri"
    model.delete()
    assert not model.exists()


def test_buckets_are_created_and_listed(client, service):
    bucket = client.create_bucket("fresh-bucket")
    assert bucket.location == "EUROPE-WEST4"
    assert (service.storage / "fresh-bucket").is_dir()
    with pytest.raises(Conflict):
        client.create_bucket("fresh-bucket")
    assert "fresh-bucket" in [bucket.name for bucket in client.list_buckets()]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/storage/v1/b/my-bucket/o/missing", 404),
        ("GET", "/storage/v1/b/my-bucket/o/..%2Fother", 400),
        ("POST", "/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a/", 400),
        ("POST", "/upload/storage/v1/b/my-bucket/o?uploadType=multipart", 400),
        ("POST", "/upload/storage/v1/b/my-bucket/o?name=a&ifGenerationMatch=0", 501),
        ("PUT", "/upload/storage/v1/b/my-bucket/o?upload_id=unknown", 404),
    ],
)
def test_requests_that_cannot_be_served_are_refused(method, path, code, service):
    assert service.error(method, path)[0] == code


def test_a_second_emulator_on_one_storage_leaves_the_first_one_s_uploads(tmp_path):
    path = "/upload/storage/v1/b/my-bucket/o?uploadType=resumable&name=a"
    with Emulator(storage=tmp_path, project_dir=tmp_path) as first:
        upload = requests.post(first.url + path, json={}, timeout=20).headers["Location"]
        with Emulator(storage=tmp_path, project_dir=tmp_path):
            pass
        assert requests.put(upload, b"content", timeout=20).status_code == 200
    assert (tmp_path / "my-bucket/a").read_bytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["my-bucket"]
