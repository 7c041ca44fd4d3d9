from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distlaunch.emulator.service.buckets import Buckets, StorageRefused, hashes_of

BUCKET = "my-bucket"


def put(buckets: Buckets, name: str, content: bytes) -> None:
    file, path = buckets.upload()
    with file:
        file.write(content)
    buckets.put(BUCKET, name, path, hashes=hashes_of(path), said={})


def names(buckets: Buckets, prefix: str = "") -> list[str]:
    return sorted(buckets.walk(BUCKET, prefix))


def delete(buckets: Buckets, name: str) -> None:
    buckets.delete(BUCKET, name, lambda _: None)


def can_put(buckets: Buckets, name: str) -> bool:
    """Put an object, unless a file and a folder would be of one name."""
    try:
        put(buckets, name, name.encode())
    except StorageRefused as refused:
        assert refused.code == 400  # noqa: PT017 - it may be refused, but for nothing else
        return False
    return True


@pytest.fixture
def buckets(tmp_path):
    return Buckets(tmp_path)


NAMES = st.lists(
    st.sampled_from(["a", "b", ".", "..", "", "%", "%25", "ü", "a b", "-", "*"]),
    min_size=1,
    max_size=4,
).map("/".join)


@settings(max_examples=50)
@example(wanted=["a/a/", "a/a"], prefix="")
@given(wanted=st.lists(NAMES.filter(bool), unique=True, max_size=6), prefix=NAMES)
def test_objects_are_what_was_put_under_their_names_and_nothing_else(
    tmp_path_factory, wanted, prefix
):
    buckets = Buckets(tmp_path_factory.mktemp("storage"))
    kept = [name for name in wanted if can_put(buckets, name)]
    assert names(buckets) == sorted(kept)
    assert names(buckets, prefix) == sorted(name for name in kept if name.startswith(prefix))
    for name in kept:
        stored = buckets.need(BUCKET, name)
        assert stored.path.is_relative_to(buckets.folder / BUCKET)
        if not name.endswith("/"):
            assert stored.path.read_bytes() == name.encode()
        delete(buckets, name)
    assert names(buckets) == []
    assert [each.name for each in buckets.folder.iterdir()] in (
        [[".uploads"]] if not kept else [[".uploads", BUCKET], [BUCKET, ".uploads"]]
    )
    assert not kept or list((buckets.folder / BUCKET).iterdir()) == []


def test_a_file_does_not_replace_a_folder_that_is_an_object(buckets):
    put(buckets, "a/", b"")
    (buckets.folder / BUCKET / "logs").mkdir()  # as a job makes one
    for name in ("a", "logs"):
        with pytest.raises(StorageRefused, match="is a directory"):
            put(buckets, name, b"")
    assert names(buckets) == ["a/", "logs/"]


def test_what_a_job_writes_into_its_folder_are_objects(buckets):
    folder = buckets.folder / BUCKET / "digits"
    (folder / "model").mkdir(parents=True)
    (folder / "logs").mkdir()
    (folder / "model/saved.keras").write_bytes(b"weights")
    assert names(buckets) == ["digits/logs/", "digits/model/saved.keras"]
    before = buckets.need(BUCKET, "digits/model/saved.keras")
    assert (before.size, before.content_type) == (7, "application/octet-stream")
    os.utime(before.path, ns=(0, 5_000_000_000))
    after = buckets.need(BUCKET, "digits/model/saved.keras")
    assert after.generation == 5_000_000
    put(buckets, "digits/model/saved.keras", b"new")
    assert before.path.read_bytes() == b"new"
    delete(buckets, "digits/model/saved.keras")
    assert (folder / "model").is_dir()  # it is the job's


def test_no_link_of_a_job_s_leads_out_of_its_bucket(buckets, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere")
    (secret / "key").write_text("secret")
    put(buckets, "a", b"")
    root = buckets.folder / BUCKET
    (root / "file").symlink_to(secret / "key")
    (root / "folder").symlink_to(secret)
    assert names(buckets) == ["a"]
    assert buckets.find(BUCKET, "file") is None
    for name in ("folder/key", "folder/new"):
        with pytest.raises(StorageRefused) as refused:
            put(buckets, name, b"")
        assert refused.value.code == 404
    with pytest.raises(StorageRefused):
        names(buckets, "folder/")
    put(buckets, "file", b"mine")
    assert (secret / "key").read_text() == "secret"


def test_each_content_has_a_generation_of_its_own(buckets):
    generations = []
    for _ in range(20):
        put(buckets, "a", b"same")
        generations.append(buckets.need(BUCKET, "a").generation)
    assert generations == sorted(set(generations))


def test_hashes_are_those_of_the_content_as_it_is_now(buckets):
    put(buckets, "a", b"")
    assert buckets.hashes(buckets.need(BUCKET, "a")).crc32c == "AAAAAA=="
    (buckets.folder / BUCKET / "a").write_bytes(b"hello")
    hashes = buckets.hashes(buckets.need(BUCKET, "a"))
    assert (hashes.crc32c, hashes.md5) == ("mnG7TA==", "XUFAKrxLKna5cZ2REBfFkg==")


@pytest.mark.parametrize("bucket", ["", "..", "A", "ab", "a/b", "-abc", "x" * 300, ".uploads"])
def test_a_bucket_s_name_is_one_of_google_s(buckets, bucket):
    with pytest.raises(StorageRefused) as refused:
        buckets.path(bucket)
    assert refused.value.message == f"Invalid bucket name: '{bucket}'"


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "x" * 1025, "ü" * 513])
def test_an_object_s_name_is_one_of_google_s(buckets, name):
    with pytest.raises(StorageRefused, match="Disallowed unicode"):
        put(buckets, name, b"")


def test_a_name_that_no_file_can_have_is_refused(buckets):
    with pytest.raises(StorageRefused, match="objects are files and folders here"):
        put(buckets, "x" * 300, b"")
    assert list((buckets.folder / ".uploads").iterdir()) == []
