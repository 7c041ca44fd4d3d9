"""Images that Google's Cloud Build builds, from the command line to the registry."""

from __future__ import annotations

import functools
import gzip
import json
import signal
from pathlib import Path
from unittest import mock

import pytest
from docker.errors import NotFound
from fake_google import Refused
from fake_google.cloud_build import ACCOUNT, FakeCloudBuild
from fake_registry import FakeRegistry
from requests.adapters import HTTPAdapter

from distlaunch.engines.vertex import storage
from distlaunch.image import cloud_build, docker, pip_secrets

HOST = "us-central1-docker.pkg.dev"
NAME = "demo-project/training/digits"
FOLDER = "demo-bucket/.distlaunch-builds"
JOB = f"""\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
image:
  repository: {HOST}/{NAME}
  base: {HOST}/demo-project/training/base:1
  builder: cloud-build
cluster:
  chief: {{machine: n1-standard-4}}
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "trainer").mkdir(parents=True)
    (folder / "distlaunch.yaml").write_text(JOB)
    (folder / "trainer/__init__.py").touch()
    (folder / "trainer/task.py").write_text("print('trained')\n")
    (folder / "requirements.txt").write_text("six==1.16.0\n")
    return folder


@pytest.fixture
def builds(google, monkeypatch, tmp_path):
    """Cloud Build in a project that has all, a base image, and no Docker."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setattr(pip_secrets, "_pip_settings", dict)  # pip takes a second to print them
    monkeypatch.setattr(cloud_build, "_INTERVAL", 0.0)
    send = HTTPAdapter.send
    with FakeRegistry() as registry:

        def send_to_registry(adapter, request, **options):
            request.url = request.url.replace(f"https://{HOST}/", f"http://{registry.host}/")
            return send(adapter, request, **options)

        monkeypatch.setattr(HTTPAdapter, "send", send_to_registry)
        config = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": []}}
        registry.put_image("demo-project/training/base", "1", config, b"base")
        service = FakeCloudBuild(registry)
        service.google = google(services=[service])
        yield service


@pytest.fixture
def build(run, project):
    return functools.partial(run, "build", cwd=project)


def push_refused(builds):
    builds.outcome = {
        "status": "FAILURE",
        "failureInfo": {"type": "PUSH_NOT_AUTHORIZED", "detail": "denied: uploadArtifacts"},
    }


def source_refused(builds):
    text = (
        f"could not resolve source: Error 403: {ACCOUNT} does not have storage.objects.get access"
    )
    builds.refusals["POST builds"] = Refused(400, text)


def step_failed(builds):
    builds.outcome = {"status": "FAILURE", "failureInfo": {"type": "USER_BUILD_STEP"}}
    builds.log = (
        "#5 [2/3] RUN pip install\n#5 0.6 ERROR: No matching distribution found for six==9\n"
        "#5 ERROR: process did not complete\nERROR: build step 0 failed\n"
    )


def timed_out(builds):
    builds.outcome = {"status": "TIMEOUT"}


def never_started(builds):
    builds.outcome = {"status": "EXPIRED"}


def denied(builds):
    builds.refusals["POST builds"] = Refused(403, "The caller does not have permission")


def disabled(builds):
    text = "Cloud Build API has not been used in project demo-project before or it is disabled."
    service = "cloudbuild.googleapis.com"
    builds.refusals["GET builds"] = Refused(403, text, "SERVICE_DISABLED", service=service)


def no_region(builds):
    text = "failed precondition: due to quota restrictions, cannot run builds in this region"
    builds.refusals["POST builds"] = Refused(400, text)


def test_cloud_build_builds_the_environment_once(run, build, builds, project):
    submitted = run("submit", "--detach", cwd=project)
    assert submitted.code == 0, submitted.err
    assert "a full build by Cloud Build, billed by build minute" in submitted.err
    assert "Cloud Build: WORKING" in submitted.err
    (environment,) = (each["results"]["images"][0] for each in builds.builds)
    (job,) = builds.google.jobs["customJobs"]
    (image,) = (p["containerSpec"]["imageUri"] for p in job["jobSpec"]["workerPoolSpecs"])
    manifests = builds.registry.repository(NAME).manifests
    layers = [
        json.loads(manifests[digest][1])["layers"]
        for digest in (environment["digest"], image.partition("@")[2])
    ]
    assert layers[1][:-1] == layers[0]  # the code is appended here, as always
    # The source is gone; the log is where the console reads it.
    assert [*builds.objects] == [f"{FOLDER}/log-0000-0.txt"]

    (project / "trainer/task.py").write_text("print('trained more')\n")
    done = build()
    assert done.code == 0, done.err
    assert done.out.startswith(f"{HOST}/{NAME}@sha256:")
    assert "the registry has the environment, not this code" in done.err
    assert len(builds.builds) == 1


def test_a_build_removes_what_killed_commands_have_left(build, builds):
    names = [f".distlaunch-builds/{name}" for name in ("old.tar.gz", "new.tar.gz", "log-1.txt")]
    builds.objects |= {f"demo-bucket/{name}": b"left" for name in names}
    builds.objects["demo-bucket/data/old.tar.gz"] = b"data"
    builds.updated = dict.fromkeys((names[0], names[2]), "2026-01-01T00:00:00Z")
    assert build().code == 0
    left = [f"{FOLDER}/new.tar.gz", f"{FOLDER}/log-1.txt", "demo-bucket/data/old.tar.gz"]
    assert [*builds.objects] == [*left, f"{FOLDER}/log-0000-0.txt"]


@pytest.mark.parametrize(
    ("break_it", "reason", "remedy"),
    [
        (step_failed, "failed (No matching distribution found for six==9)", ""),
        (
            push_refused,
            "(PUSH_NOT_AUTHORIZED: denied: uploadArtifacts)",
            "gcloud projects add-iam-policy-binding demo-project "
            f"--member=serviceAccount:{ACCOUNT} --role=roles/artifactregistry.writer",
        ),
        (
            source_refused,
            "could not resolve source",
            f"--member=serviceAccount:{ACCOUNT} --role=roles/storage.objectAdmin",
        ),
        (timed_out, "failed (TIMEOUT)", "a build has 60 minutes: use a base image"),
        (never_started, "failed (EXPIRED)", "request more concurrent builds"),
        (denied, "The caller does not have permission", "--role=roles/cloudbuild.builds.editor"),
        (disabled, "has not been used", "gcloud services enable cloudbuild.googleapis.com"),
        (no_region, "in this region", "distlaunch build --set region=REGION"),
    ],
)
def test_what_fails_is_one_line_with_a_remedy(build, builds, break_it, reason, remedy):
    break_it(builds)
    done = build()
    assert (done.code, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith("distlaunch: error: ")
    assert reason in last
    assert remedy in last
    if builds.outcome:
        assert "https://console.cloud.google.com/cloud-build/builds" in last
        assert builds.log.splitlines()[-1] in done.err
    assert not [name for name in builds.objects if name.endswith(".tar.gz")]


def test_ctrl_c_cancels_the_build(build, builds):
    builds.on_working = lambda: signal.raise_signal(signal.SIGINT)
    done = build()
    assert done.code == 130
    assert "cancelled Cloud Build 0000-0" in done.err
    assert builds.builds[0]["status"] == "CANCELLED"
    assert not [name for name in builds.objects if name.endswith(".tar.gz")]
    builds.on_working = lambda: None
    assert build().code == 0
    assert [each["status"] for each in builds.builds] == ["CANCELLED", "SUCCESS"]


def test_ctrl_c_leaves_the_build_of_another_command(build, builds, monkeypatch):
    def interrupt(self, *_):
        others = self._create(mock.Mock(build_args={}), "gs://demo-bucket/x.tar.gz", self.tag)
        assert others["status"] == "QUEUED"
        signal.raise_signal(signal.SIGINT)

    find = cloud_build.CloudBuild._find

    def find_none(self, tag):
        monkeypatch.setattr(cloud_build.CloudBuild, "tag", tag, raising=False)
        return find(self, tag)

    builds.objects["demo-bucket/x.tar.gz"] = gzip.compress(b"\0" * 1024)
    monkeypatch.setattr(cloud_build.CloudBuild, "_find", find_none)
    monkeypatch.setattr(cloud_build.CloudBuild, "_upload", interrupt)
    assert build().code == 130
    assert [each["status"] for each in builds.builds] == ["QUEUED"]
    assert "demo-bucket/x.tar.gz" in builds.objects


def test_of_two_commands_at_once_one_creates_a_build(build, builds, monkeypatch):
    upload = storage.upload

    def upload_slowly(*words):
        monkeypatch.setattr(storage, "upload", upload)
        outputs.append(build().out)
        builds.registry.repository(NAME).manifests.clear()
        builds.builds[0]["status"] = "WORKING"
        upload(*words)

    outputs: list[str] = []
    monkeypatch.setattr(storage, "upload", upload_slowly)
    done = build()
    assert (done.code, [done.out]) == (0, outputs), done.err
    assert len(builds.builds) == 1
    assert not [name for name in builds.objects if name.endswith(".tar.gz")]


def test_a_file_that_changes_is_not_uploaded(build, builds, project, monkeypatch):
    find = cloud_build.CloudBuild._find

    def change(*words):
        (project / "requirements.txt").write_text("six==1.15.0\n")
        return find(*words)

    monkeypatch.setattr(cloud_build.CloudBuild, "_find", change)
    done = build()
    assert (done.code, builds.builds, builds.objects) == (1, [], {})
    assert "requirements.txt: changed while it was added to the image" in done.err


def test_a_build_whose_creation_was_not_answered_is_followed(build, builds):
    builds.loses_response = True
    assert build().code == 0
    assert builds.calls[:4] == ["GET builds", "GET builds", "POST builds", "GET builds"]
    assert len(builds.builds) == 1


def test_a_build_of_a_killed_command_is_followed(build, builds):
    first = build()
    builds.registry.repository(NAME).manifests.clear()
    builds.builds[0] |= {"status": "WORKING"}
    source = builds.builds[0]["source"]["storageSource"]
    builds.objects[f"{source['bucket']}/{source['object']}"] = b"left"
    again = build()
    assert (again.code, again.out) == (0, first.out)
    assert len(builds.builds) == 1
    assert b"left" not in builds.objects.values()


OWN = """\
ARG PRICE
FROM us-central1-docker.pkg.dev/demo-project/training/base:1
COPY . /app
"""


@pytest.mark.parametrize("is_own", [False, True])
def test_the_source_is_what_docker_builds_from(build, builds, project, monkeypatch, is_own):
    (project / "trainer/task.py").write_text("import distlaunch_trainer\n")  # its wheel is built in
    (project / "trainer/run.sh").write_text("#!/bin/sh\n")
    (project / "trainer/run.sh").chmod(0o755)
    (project / "trainer/link").symlink_to("task.py")
    words = ()
    if is_own:
        (project / "Dockerfile").write_text(OWN)
        words = ("--set", "image.build_args.PRICE=$5")
    seen = []

    def run_docker(command, _show, **_options):
        scratch = Path(command[-1]).parent
        seen.append([word.replace(f"{scratch}/", "") for word in command[1:]])
        seen.append(
            {str(path.relative_to(scratch)): as_archived(path) for path in scratch.rglob("*")}
        )
        return 1

    api = mock.Mock()
    api.inspect_image.side_effect = lambda name: (
        {"Os": "linux", "Architecture": "amd64"} if "/base" in name else _not_found()
    )
    monkeypatch.setattr(docker, "_docker_command", lambda: ("docker", True))
    monkeypatch.setattr(docker, "connect_docker", lambda: mock.Mock(api=api))
    monkeypatch.setattr(docker, "run_command", run_docker)
    assert build("--set", "image.builder=auto", *words).code == 1
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # as on Windows
    done = build(*words)
    assert done.code == 0, done.err
    command, files = seen
    source = builds.sources[0]
    assert source == files
    assert ("context/trainer/task.py" in files) == is_own
    assert any(name.endswith(".whl") for name in files)
    assert files["context/requirements.txt"] == (0o644, b"six==1.16.0\n")
    step = builds.builds[0]["steps"][0]
    assert step["args"] == [word.replace("$", "$$") for word in command]
    assert "DOCKER_BUILDKIT=1" in step["env"]
    if is_own:  # the whole image: no layer is appended
        assert done.out.strip().endswith(builds.builds[0]["results"]["images"][0]["digest"])
        assert "--build-arg=PRICE=$$5" in step["args"]


def as_archived(path):
    """Return a file's mode, and its content or target."""
    content = b"" if path.is_dir() else path.read_bytes()
    content = str(path.readlink()).encode() if path.is_symlink() else content
    return path.lstat().st_mode & 0o7777, content


def _not_found():
    raise NotFound("no such image")


def test_secrets_are_not_sent(build, builds, run, project, monkeypatch):
    settings = {"index-url": "https://ann:s3cret-of-ann@index.example.com/simple"}
    monkeypatch.setattr(pip_secrets, "_pip_settings", lambda: settings)
    done = build()
    assert done.code == 1
    assert "(pip.env) are secrets, and are not sent to Cloud Build; build with Docker" in done.err
    assert (builds.calls, builds.objects) == ([], {})
    assert codes(run("check", "--json", cwd=project)) == ["cloud-build-secrets"]


def codes(done):
    assert done.out, done.err
    return [
        each["code"] for each in json.loads(done.out)["problems"] if each["severity"] == "error"
    ]


def test_check_names_what_cloud_build_lacks(run, project, builds):
    check = functools.partial(run, "check", "--json", cwd=project)
    assert codes(check()) == []
    builds.google.without = ("cloudbuild.googleapis.com",)
    assert codes(check()) == ["api-disabled"]
    assert codes(check("--set", "image.builder=auto")) == []
    offline = functools.partial(check, "--offline")
    assert codes(offline("--set", "image.repository=localhost:5000/digits")) == [
        "cloud-build-registry"
    ]
    assert codes(offline("--set", "bucket=")) == ["no-job-dir", "cloud-build-bucket"]
    assert codes(offline("--endpoint", "http://127.0.0.1:9")) == ["cloud-build-emulator"]
    submitted = run("submit", "--no-check", "--endpoint", "http://127.0.0.1:9", cwd=project)
    assert submitted.code == 1
    assert "an emulator has no Cloud Build; build on this machine with --set" in submitted.err
    assert builds.calls == []


def test_an_api_that_is_not_needed_may_be_off(run, build, project, builds):
    assert build().code == 0
    builds.google.without = ("cloudbuild.googleapis.com",)
    assert codes(run("check", "--json", cwd=project)) == []


@pytest.mark.parametrize("name", ["Dockerfile", "templates/Dockerfile.j2"])
def test_without_docker_the_error_names_cloud_build(build, builds, project, name):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(OWN + 'CMD ["python"]\n')
    done = build("--set", "image.builder=auto")
    assert done.code == 1
    assert done.err.endswith(", or build with --set image.builder=cloud-build\n")
    assert "cloud-build" not in build("--no-push").err
    assert builds.calls == []
    assert build().code == 0


def test_a_bucket_with_a_folder_has_the_source_and_the_log_below_it(build, builds):
    assert build("--set", "bucket=gs://demo-bucket/team/vision").code == 0
    folder = "demo-bucket/team/vision/.distlaunch-builds"
    assert builds.builds[0]["logsBucket"] == f"gs://{folder}"
    source = builds.builds[0]["source"]["storageSource"]
    assert source["bucket"] == "demo-bucket"
    assert source["object"].startswith("team/vision/.distlaunch-builds/env-")
    assert [*builds.objects] == [f"{folder}/log-0000-0.txt"]


def test_the_target_of_ones_own_dockerfile_is_built(build, builds, project):
    base = f"{HOST}/demo-project/training/base:1"
    (project / "Dockerfile").write_text(
        f"FROM {base} AS train\nCOPY . /app\nFROM {base} AS serve\nCOPY secret /\n"
    )
    assert build("--set", "image.target=train").code == 0
    text = builds.sources[0]["Dockerfile"][1].decode()
    assert "AS train" in text
    assert "serve" not in text
