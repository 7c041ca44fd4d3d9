"""Files of jobs and local runs: downloaded, resumed, verified."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import urllib.request

import pytest
from json_schemas import load_checked

from distlaunch import files
from distlaunch.engines.vertex.storage import list_files

from .cloud import Cloud


def test_files_of_a_job_are_downloaded_resumed_and_verified(run, cloud, project, job):
    options = ("digits-1", *cloud.options())
    done = run("fetch", *options, cwd=project)
    model = project / "fetched/digits-1/model/model.keras"
    assert model.read_bytes() == b"model" * 1000
    assert done.out == "fetched/digits-1/model: 1 file, 5 kB new\n"
    # The endpoint is that of the job's record.
    again = load_checked("fetch", run("fetch", "--json", "digits-1", cwd=project).out)
    assert (again["files"], again["new_bytes"]) == (1, 0)

    run("fetch", "--part", "all", "--output", "whole", *options, cwd=project)
    assert (project / "whole/summary.json").is_file()
    # An interrupted download: half of the file is there.
    [blob_part] = (project / "whole").rglob("model.keras")
    generation = _generation(cloud, "digits-1/model/model.keras")
    blob_part.with_name(f"model.keras.{generation}.part").write_bytes(b"model" * 400)
    blob_part.unlink()
    resumed = load_checked(
        "fetch",
        run("fetch", "--json", "--part", "all", "--output", "whole", *options, cwd=project).out,
    )
    assert resumed["new_bytes"] == 3000
    assert blob_part.read_bytes() == b"model" * 1000
    # A download that was damaged is not kept.
    blob_part.with_name(f"model.keras.{generation}.part").write_bytes(b"XXXXX" * 1000)
    blob_part.unlink()
    damaged = run("fetch", "--part", "all", "--output", "whole", *options, cwd=project)
    assert damaged.code == 1
    assert "the checksum is wrong; try again" in damaged.err
    assert run("fetch", "--part", "logs", *options, cwd=project).err == (
        "distlaunch: error: gs://bucket/digits-1/logs: no files are there; digits-1 is SUCCEEDED\n"
    )


def test_the_newest_job_is_the_default_also_after_a_failed_run(run, project, job, train):
    failed = train(0.5, 3)
    done = run("fetch", cwd=project)
    assert done.out == "fetched/digits-1/model: 1 file, 5 kB new\n"
    model = "fetched/digits-1/model/model.keras"
    assert done.err.endswith(f'distlaunch: next: keras.saving.load_model("{model}")\n')
    folder = project / ".distlaunch/local" / failed / "checkpoints"
    folder.mkdir()
    empty = run("fetch", failed, "--part", "checkpoints", cwd=project)
    line = f"distlaunch: error: {folder}: no files are there; {failed} is FAILED\n"
    assert (empty.code, empty.out, empty.err) == (1, "", line)
    assert "it is the newest job" in run("fetch", "--help").out


def test_a_download_shows_a_bar_and_ctrl_c_does_not_wait_for_it(run, tmp_path):
    content = bytes(5_000_000)
    (tmp_path / "buckets/bucket/digits/model").mkdir(parents=True)
    (tmp_path / "buckets/bucket/digits/model/model.keras").write_bytes(content)
    leader, follower = pty.openpty()
    with Cloud(tmp_path, storage=tmp_path / "buckets", call_faults="hang@storage#4") as cloud:
        job = cloud.wait(cloud.launch("", "digits-1", [], job_dir="gs://bucket/digits"))
        [blob] = list_files(cloud.jobs().session, "gs://bucket/digits/model")
        part = tmp_path / f"copy/model.keras.{blob.generation}.part"
        part.parent.mkdir()
        part.write_bytes(content[:2_000_000])
        words = ("fetch", job["name"], "--output", "copy", *cloud.options())
        with subprocess.Popen(
            [sys.executable, "-m", "distlaunch", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=follower,
            env=os.environ | {"TERM": "xterm"},
        ) as fetch:
            os.close(follower)
            shown = ""
            while "] 40 %  2 MB of 5 MB, 0 of 1 file" not in shown:
                shown += os.read(leader, 4096).decode()
            assert cloud.hangs.wait(60)  # the part is counted before its download begins
            fetch.send_signal(signal.SIGINT)
            assert fetch.wait(10) == 130
        os.close(leader)
        done = run(*words, "--json", cwd=tmp_path)
    assert json.loads(done.out)["new_bytes"] == 3_000_000
    assert (tmp_path / "copy/model.keras").read_bytes() == content


def _generation(cloud, name):
    url = f"{cloud.url}/storage/v1/b/bucket/o/{name.replace('/', '%2F')}"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
        return json.load(answer)["generation"]


def test_a_local_run_is_copied(run, project, train):
    name = train(0.5)
    done = run("fetch", name, "--output", "copy", cwd=project)
    assert (project / "copy/model.keras").read_bytes() == b"model" * 1000
    assert done.out == "copy: 1 file, 5 kB new\n"
    assert run("fetch", name, "--output", "copy", cwd=project).out == "copy: 1 file, 0 B new\n"
    assert run("fetch", name, "--output", ".", cwd=project).out == ".: 1 file, 5 kB new\n"
    (project / "copy/model.keras").write_bytes(b"other")
    assert "5 kB new" in run("fetch", name, "--output", "copy", cwd=project).out
    with files.lock(project / "copy", wait=False):
        done = run("fetch", name, "--output", "copy", cwd=project)
    assert done.code == 1
    assert "another 'distlaunch fetch' writes into this folder" in done.err


@pytest.mark.parametrize("link", ["fetched", "fetched/RUN", "fetched/RUN/model/model.keras"])
def test_nothing_is_fetched_through_a_symlink(run, project, train, tmp_path, link):
    name = train(0.5)
    path = project / link.replace("RUN", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    outside = tmp_path / "outside"
    outside.write_text("precious") if path.suffix else outside.mkdir()
    path.symlink_to(outside)
    done = run("fetch", name, cwd=project)
    assert done.code == 1
    assert f"{path.relative_to(project)} is a symlink" in done.err
    assert outside.read_text() == "precious" if path.suffix else not list(outside.iterdir())


def test_no_file_behind_a_symlink_is_copied_from_a_run(run, project, train, tmp_path):
    name = train(0.5)
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").write_text("precious")
    model = project / ".distlaunch/local" / name / "model"
    shutil.rmtree(model)
    model.symlink_to(tmp_path / "private")
    done = run("fetch", name, cwd=project)
    assert done.code == 1
    assert "model is a symlink" in done.err
    (project / "fetched").rename(project / "before")
    (project / "fetched").symlink_to(tmp_path / "private")
    done = run("fetch", name, "--output", "fetched/x", cwd=project)
    assert "fetched is a symlink; remove it, or pass another --output DIR" in done.err
    assert [each.name for each in (tmp_path / "private").iterdir()] == ["key"]
