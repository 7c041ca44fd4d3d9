"""Buckets as folders."""

from __future__ import annotations

import gzip
import io

import pytest
import requests
from google.api_core.exceptions import Conflict, NotFound
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


def test_a_list_has_a_range_of_names_in_pages(client, service):
    folder = service.storage / "listed"
    for name in ("a/1", "a/2", "b", "c/d/e", "f"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    pages = client.list_blobs("listed", page_size=2)
    assert [[blob.name for blob in page] for page in pages.pages] == [
        ["a/1", "a/2"], ["b", "c/d/e"], ["f"]
    ]  # fmt: skip
    listing = client.list_blobs("listed", delimiter="/", page_size=1)
    assert [blob.name for blob in listing] == ["b", "f"]
    assert listing.prefixes == {"a/", "c/"}
    some = client.list_blobs("listed", start_offset="a/2", end_offset="f")
    assert [blob.name for blob in some] == ["a/2", "b", "c/d/e"]


@pytest.mark.parametrize("chunk_size", [None, 256 * 1024])
def test_what_is_sent_with_an_object_is_kept(client, chunk_size):
    blob = client.bucket("my-bucket").blob("page", chunk_size=chunk_size)
    blob.metadata, blob.content_encoding = {"colour": "green"}, "gzip"
    text = b"<p>" * 1_000
    blob.upload_from_string(gzip.compress(text), content_type="text/html; charset=latin1")
    read = client.bucket("my-bucket").get_blob("page")
    assert read.content_type == "text/html; charset=latin1"
    assert (read.metadata, read.content_encoding) == ({"colour": "green"}, "gzip")
    assert read.download_as_bytes() == text
    assert gzip.decompress(read.download_as_bytes(raw_download=True)) == text
    plain = requests.get(read.media_link, headers={"Accept-Encoding": "identity"}, timeout=20)
    assert (plain.content, plain.headers["Content-Type"]) == (text, read.content_type)
    assert "Content-Encoding" not in plain.headers
    other = client.bucket("my-bucket").blob("page")
    other.upload_from_string(b"new")
    assert other.content_encoding is None
    with pytest.raises(NotFound):
        read.download_as_bytes()  # of the generation before


def test_a_marker_of_a_folder_makes_the_folder(client, service):
    bucket = client.bucket("folders")
    bucket.blob("run/checkpoints/").upload_from_string(b"")
    assert (service.storage / "folders/run/checkpoints").is_dir()
    bucket.blob("run/checkpoints/1").upload_from_string(b"x")
    bucket.blob("run/checkpoints/").upload_from_string(b"")
    assert [blob.name for blob in client.list_blobs("folders")] == ["run/checkpoints/1"]


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
        ("POST", "/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a//b", 400),
        ("POST", "/upload/storage/v1/b/my-bucket/o?uploadType=multipart", 400),
        ("POST", "/upload/storage/v1/b/my-bucket/o?name=a&ifGenerationMatch=0", 501),
        ("DELETE", "/storage/v1/b/my-bucket/o/a?ifGenerationMatch=1", 501),
        ("GET", "/storage/v1/b/my-bucket/o/a?ifMetagenerationMatch=1", 501),
        ("GET", "/storage/v1/b/my-bucket/o?matchGlob=**.txt", 501),
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
