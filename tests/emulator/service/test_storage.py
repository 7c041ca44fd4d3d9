"""Cloud Storage as Google's own client meets it, and on the wire."""

from __future__ import annotations

import io
from urllib.parse import quote, urlsplit

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials

O = "/storage/v1/b/my-bucket/o"  # noqa: E741 - as Google calls it
UPLOAD = "/upload/storage/v1/b/my-bucket/o"
GRAIN = 256 * 1024


@pytest.fixture
def client(service):
    from google.cloud import storage

    with storage.Client(
        project="my-project",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": service.url},
    ) as client:
        yield client


@pytest.fixture
def bucket(client):
    return client.bucket("my-bucket")


def put(service, name: str, content: bytes, **headers: str):
    path = f"{UPLOAD}?uploadType=media&name={quote(name, safe='')}"
    return service.call("POST", path, content, headers)


def names(client, **kwargs) -> list[str]:
    return [blob.name for blob in client.list_blobs("my-bucket", **kwargs)]


def test_google_s_client_writes_reads_and_deletes(service, client, bucket):
    blob = bucket.blob("digits/a b/ü#?.txt")
    blob.metadata = {"made": "here"}
    blob.upload_from_string("hello", content_type="text/plain")
    assert (service.folder / "my-bucket/digits/a b/ü#?.txt").read_text() == "hello"
    found = bucket.get_blob(blob.name)
    assert (found.size, found.content_type, found.metadata) == (5, "text/plain", {"made": "here"})
    assert (found.generation, found.metageneration) == (blob.generation, 1)
    assert found.crc32c == "mnG7TA=="
    assert found.download_as_bytes() == b"hello"
    assert found.download_as_bytes(start=1, end=3) == b"ell"
    assert found.download_as_bytes(start=3) == b"lo"
    found.delete()
    assert not blob.exists()
    with pytest.raises(exceptions.NotFound, match="No such object: my-bucket/digits"):
        blob.download_as_bytes()
    with pytest.raises(exceptions.NotFound):
        blob.delete()
    assert names(client) == []


@pytest.mark.parametrize("size", [0, 1, GRAIN, 3 * GRAIN + 17])
def test_google_s_client_uploads_piece_by_piece(bucket, size):
    content = (bytes(range(251)) * size)[:size]
    blob = bucket.blob("model.keras", chunk_size=GRAIN)
    blob.upload_from_file(io.BytesIO(content))
    assert bucket.get_blob("model.keras").size == size
    assert blob.download_as_bytes() == content
    with bucket.blob("streamed").open("wb", chunk_size=GRAIN) as file:
        file.write(content)
    assert bucket.blob("streamed").download_as_bytes() == content


def test_google_s_client_lists_with_prefixes_and_pages(service, client):
    for name in ("a/1", "a/2", "a/b/3", "a/b/4", "c", "d/5"):
        assert put(service, name, b"").status == 200
    assert names(client) == ["a/1", "a/2", "a/b/3", "a/b/4", "c", "d/5"]
    assert names(client, prefix="a/b") == ["a/b/3", "a/b/4"]
    assert names(client, page_size=2) == names(client)
    assert names(client, start_offset="a/b/", end_offset="d") == ["a/b/3", "a/b/4", "c"]
    for size in (1, 2, None):
        listed = client.list_blobs("my-bucket", prefix="a/", delimiter="/", page_size=size)
        assert [blob.name for blob in listed] == ["a/1", "a/2"]
        assert listed.prefixes == {"a/b/"}
    assert names(client, prefix="nowhere/") == []


def test_google_s_client_copies_renames_composes_and_describes(client, bucket):
    one, other = bucket.blob("one"), bucket.blob("other")
    one.upload_from_string("1", content_type="text/x-one")
    other.upload_from_string("2")
    copied = bucket.copy_blob(one, client.bucket("second"), "sub/one")
    assert (copied.download_as_bytes(), copied.content_type) == (b"1", "text/x-one")
    both = bucket.blob("both")
    both.compose([one, other, one])
    assert both.download_as_bytes() == b"121"
    moved = bucket.rename_blob(both, "moved")
    assert (moved.download_as_bytes(), both.exists()) == (b"121", False)
    token, done, total = bucket.blob("rewritten").rewrite(moved)
    assert (token, done, total) == (None, 3, 3)
    moved.metadata = {"a": "1"}
    moved.patch()
    moved.metadata = {"b": "2"}
    moved.patch()
    described = bucket.get_blob("moved")
    assert described.metageneration == 3
    assert described.metadata["b"] == "2"
    with pytest.raises(exceptions.NotFound):
        both.compose([bucket.blob("nowhere")])


def test_google_s_client_makes_and_tells_of_buckets(client, bucket):
    assert client.get_bucket("my-bucket").location == "EUROPE-WEST4"
    client.create_bucket("made-one")
    with pytest.raises(exceptions.Conflict, match="you already own it"):
        client.create_bucket("made-one")
    bucket.blob("a").upload_from_string("")
    assert [each.name for each in client.list_buckets()] == ["made-one", "my-bucket"]
    with pytest.raises(exceptions.Conflict, match="is not empty"):
        bucket.delete()
    client.bucket("made-one").delete()
    assert [each.name for each in client.list_buckets()] == ["my-bucket"]
    asked = ["storage.objects.create", "storage.objects.get"]
    assert bucket.test_iam_permissions(asked) == asked


def test_preconditions_hold_or_nothing_happens(bucket):
    blob = bucket.blob("lock")
    blob.upload_from_string("1", if_generation_match=0)
    generation = blob.generation
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string("2", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string("2", if_generation_match=generation + 1)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_file(io.BytesIO(b"2" * GRAIN), if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.delete(if_generation_match=generation + 1)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.copy_blob(blob, bucket, "copy", if_source_generation_match=1)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.patch(if_metageneration_match=5)
    assert blob.download_as_bytes(if_generation_match=generation) == b"1"
    blob.upload_from_string("2", if_generation_match=generation)
    assert blob.generation > generation
    with pytest.raises(exceptions.NotFound):
        bucket.blob("lock", generation=generation).reload()
    blob.delete(if_generation_match=blob.generation)
    blob.upload_from_string("3", if_generation_match=0)


def test_an_unchanged_object_is_not_sent_again(service):
    generation = put(service, "a", b"x").json["generation"]
    reply = service.call("GET", f"{O}/a?alt=media&ifGenerationNotMatch={generation}")
    assert (reply.status, reply.content) == (304, b"")
    assert service.call("GET", f"{O}/a?alt=media&ifGenerationNotMatch=1").content == b"x"


@pytest.mark.parametrize(
    ("asked", "status", "content", "said"),
    [
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-30", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("pages=1-2", 200, b"0123456789", None),
    ],
)
@pytest.mark.parametrize("path", [f"{O}/a?alt=media", "/download" + O + "/a", "/my-bucket/a"])
def test_a_range_of_an_object(service, path, asked, status, content, said):  # noqa: PLR0917
    put(service, "a", b"0123456789")
    reply = service.call("GET", path, headers={"Range": asked})
    assert (reply.status, reply.headers["Content-Range"]) == (status, said)
    assert content in (None, reply.content)


def test_objects_have_plain_addresses_too_which_tensorflow_reads(service):
    path = "/my-bucket/digits%2Fdata/part%201"
    assert service.call("PUT", path, b"rows", {"Content-Type": "text/csv"}).status == 200
    assert (service.folder / "my-bucket/digits/data/part 1").read_bytes() == b"rows"
    head = service.call("HEAD", path)
    assert (head.headers["Content-Length"], head.headers["Content-Type"]) == ("4", "text/csv")
    assert head.content == b""
    assert service.call("GET", path).content == b"rows"
    assert service.call("DELETE", path).status == 204
    assert service.call("GET", path).status == 404


def begin(service, name: str = "a", body: object = None, **headers: str) -> str:
    """Begin a resumable upload and return where it goes on."""
    path = f"{UPLOAD}?uploadType=resumable&name={name}"
    reply = service.call("POST", path, body, headers)
    assert reply.status == 200
    place = urlsplit(reply.headers["Location"])
    assert reply.headers["Location"].startswith(service.url)
    return f"{place.path}?{place.query}"


def test_an_upload_goes_on_where_it_stopped(service):
    content = (bytes(range(251)) * GRAIN)[: GRAIN * 2 + 5]
    place, total = begin(service, body={"contentType": "x/y"}), len(content)

    def send(first: int, last: int, told: str | int = total):
        headers = {"Content-Range": f"bytes {first}-{last - 1}/{told}"}
        return service.call("PUT", place, content[first:last], headers)

    state = {"Content-Range": f"bytes */{total}"}
    assert service.call("PUT", place, b"", state).headers["Range"] is None
    first = send(0, GRAIN + 100, "*")
    assert (first.status, first.headers["Range"]) == (308, f"bytes=0-{GRAIN - 1}")
    assert service.call("PUT", place, b"", state).headers["Range"] == f"bytes=0-{GRAIN - 1}"
    assert send(GRAIN * 2, total).status == 503  # a gap
    assert send(GRAIN - 10, GRAIN * 2, "*").headers["Range"] == f"bytes=0-{GRAIN * 2 - 1}"
    assert service.call("GET", f"{O}/a").status == 404
    last = send(GRAIN * 2, total)
    assert (last.status, last.json["size"]) == (200, str(total))
    # The answer may have been lost: it is given again.
    assert service.call("PUT", place, b"", state).json == last.json
    assert service.call("GET", "/my-bucket/a").content == content
    assert service.call("GET", f"{O}/a").json["contentType"] == "x/y"


def test_an_upload_can_be_given_up_and_its_place_is_told_as_the_client_knows_it(service):
    place = begin(service)
    assert service.call("DELETE", place).status == 499
    assert service.call("PUT", place, b"x").status == 404
    assert list((service.folder / ".uploads").iterdir()) == []
    through = {"X-Forwarded-Host": "www.googleapis.com", "X-Forwarded-Proto": "https"}
    reply = service.call("POST", f"{UPLOAD}?uploadType=resumable&name=a", None, through)
    assert reply.headers["Location"].startswith("https://www.googleapis.com/upload/storage/v1/b/")


HASH = "XUFAKrxLKna5cZ2REBfFkg=="
RELATED = {"Content-Type": 'multipart/related; boundary="=x="'}


def related(head: bytes, content: bytes) -> bytes:
    kinds = b"application/json", b"text/plain"
    parts = [
        b"--=x=\r\ncontent-type: %s\r\n\r\n%s\r\n" % pair
        for pair in zip(kinds, (head, content), strict=True)
    ]
    return b"".join(parts) + b"--=x=--"


def test_metadata_and_content_in_one_request(service):
    body = related(b'{"name": "a", "md5Hash": "%s"}' % HASH.encode(), b"hello")
    made = service.call("POST", f"{UPLOAD}?uploadType=multipart", body, RELATED).json
    assert (made["name"], made["contentType"], made["md5Hash"]) == ("a", "text/plain", HASH)
    assert service.call("GET", "/my-bucket/a").content == b"hello"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "said"),
    [
        ("POST", UPLOAD, b"", {}, 400, "Invalid upload type: None"),
        ("POST", f"{UPLOAD}?uploadType=media", b"", {}, 400, "Required parameter: name"),
        ("POST", f"{UPLOAD}?uploadType=resumable", b"", {}, 400, "Required parameter: name"),
        (
            "POST",
            f"{UPLOAD}?uploadType=multipart",
            b"",
            {},
            400,
            "Multipart content needs a boundary.",
        ),
        (
            "POST",
            f"{UPLOAD}?uploadType=multipart",
            b"--=x=--",
            RELATED,
            400,
            "Multipart content must have two parts.",
        ),
        (
            "POST",
            f"{UPLOAD}?uploadType=multipart",
            related(b"{", b""),
            RELATED,
            400,
            "Parse Error: the metadata is not JSON",
        ),
        (
            "POST",
            f"{UPLOAD}?uploadType=multipart",
            related(b'{"name": "a", "md5Hash": "AAAA"}', b"hello"),
            RELATED,
            400,
            f'Provided MD5 "AAAA" doesn\'t match calculated MD5 "{HASH}".',
        ),
        (
            "PUT",
            "/my-bucket/a",
            b"hello",
            {"X-Goog-Hash": "crc32c=AAAAAA=="},
            400,
            'Provided CRC32C "AAAAAA==" doesn\'t match calculated CRC32C "mnG7TA==".',
        ),
        ("PUT", f"{UPLOAD}?upload_id=5", b"", {}, 404, None),
        ("GET", "/storage/v1/b/A_/o", None, {}, 400, "Invalid bucket name: 'A_'"),
        ("GET", f"{O}?maxResults=x", None, {}, 400, "Invalid value for maxResults: 'x'"),
        ("POST", f"{O}/a/compose", {"sourceObjects": []}, {}, 400, None),
        ("PATCH", "/storage/v1/b", None, {}, 404, "Not Found: PATCH /storage/v1/b"),
        ("GET", "/", None, {}, 404, "Not Found: GET /"),
    ],
)
def test_what_cannot_be(service, method, path, body, headers, status, said):  # noqa: PLR0917
    reply = service.call(method, path, body, headers)
    assert (reply.status, reply.error["code"]) == (status, status)
    assert said in (None, reply.error["message"])
    assert reply.error["errors"][0]["domain"] == "global"
    assert not list(service.folder.glob("my-bucket/*"))
    assert not list((service.folder / ".uploads").iterdir())


def test_no_name_leads_out_of_the_folder(service):
    for name in ("../../secret", "/etc/secret", "a/../../../secret", "./x", "//"):
        assert put(service, name, b"x").status == 200
    inside = [path for path in service.folder.rglob("*") if path.is_file()]
    assert len(inside) == 4  # '//' is a folder
    listed = [item["name"] for item in service.call("GET", O).json["items"]]
    assert listed == sorted(["../../secret", "/etc/secret", "a/../../../secret", "./x", "//"])


def test_markers_of_folders_are_objects_as_tensorflow_makes_them(service):
    put(service, "logs/", b"")
    put(service, "logs/train/events", b"x")
    found = service.call("GET", O).json["items"]
    assert [(item["name"], item["size"]) for item in found] == [
        ("logs/", "0"),
        ("logs/train/events", "1"),
    ]
    assert service.call("GET", f"{O}/logs%2F?alt=media").content == b""
    assert service.call("DELETE", f"{O}/logs%2Ftrain%2Fevents").status == 204
    assert service.call("DELETE", f"{O}/logs%2F").status == 204
    assert service.call("GET", O).json == {"kind": "storage#objects"}


def test_faults_of_the_storage_are_survived_by_google_s_client(serve):
    from google.cloud import storage

    service = serve("503@storage#1-2,reset@storage#5,lost@storage#6")
    with storage.Client(
        project="my-project",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": service.url},
    ) as client:
        blob = client.bucket("my-bucket").blob("a")
        retry = storage.retry.DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.05)
        for number in range(4):
            blob.upload_from_string(str(number), retry=retry)
            assert blob.download_as_bytes(retry=retry) == str(number).encode()
