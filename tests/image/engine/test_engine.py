"""What a container engine says, and what a user is told of it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import engines  # what tests/image/conftest.py has imported
import pytest

from distlaunch.errors import ImageError
from distlaunch.image.engine.client import Engine, Pushed
from distlaunch.image.engine.problems import NoEngineError
from distlaunch.image.reference import Reference
from distlaunch.image.registry.credentials import Credentials
from distlaunch.ui.events import Notice

DIGEST = "sha256:" + "1" * 64
GOOGLE = Reference.parse("us-central1-docker.pkg.dev/p/training/digits:1")
HUB = Reference.parse("ann/digits:1")
ANN = Credentials("ann", "s3cret", source="a test")
START = "start Docker ('sudo systemctl start docker', or Docker Desktop), or set DOCKER_HOST"


class Seen:
    """Keeps what it is told and shown."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.lines: list[str] = []

    def see(self, event) -> None:
        self.notices.append(event)

    @property
    def texts(self) -> list[str]:
        return [notice.text for notice in self.notices]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def scripted(tmp_path, monkeypatch, seen):
    """Start an engine that says what it is told to say, and return it."""
    started = []

    def start(silence: float = 5, **answers) -> Engine:
        server = engines.Scripted(tmp_path, **answers).__enter__()
        monkeypatch.setenv("DOCKER_HOST", server.address)
        client = Engine(seen.see, seen.lines.append, silence=silence)
        started.extend([client.close, server.__exit__])
        return client

    yield start
    for end in started:
        end()


def refused(engine: Engine, reference: Reference, who: Credentials | None = None) -> str:
    with pytest.raises(ImageError) as caught:
        engine.push(reference, who)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# No engine


def no_engine(**kwargs) -> str:
    with pytest.raises(NoEngineError) as caught:
        Engine(Seen().see, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_socket_it_is_to_be_started(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert no_engine() == f"there is no container engine at unix:///nowhere.sock; {START}"


def test_behind_a_stale_socket_it_is_to_be_started(tmp_path, monkeypatch):
    stale = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(stale))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{stale}")
    assert no_engine() == f"no container engine listens at unix://{stale}; {START}"


def test_where_tcp_is_refused_it_is_to_be_started(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert no_engine() == f"no container engine listens at tcp://127.0.0.1:1; {START}"


def test_an_engine_that_hangs_is_to_be_restarted(tmp_path, monkeypatch):
    hung = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(hung))
        bound.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{hung}")
        said = no_engine(patience=0.2)
    assert said == f"the container engine at unix://{hung} does not answer; restart it"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("bogus://x", "no container engine can be used at bogus://x (invalid bind address "),
        ("tcp://127.0.0.1:99999", "no container engine can be used at tcp://127.0.0.1:99999 ("),
        ("tcp://nowhere.invalid:1", "the container engine's host in tcp://nowhere.invalid:1 is "),
    ],
)
def test_a_wrong_address_is_to_be_checked(host, said, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", host)
    assert no_engine().lower().startswith(said)
    assert no_engine().endswith("check DOCKER_HOST")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody without permission")
def test_without_permission_there_is_a_group_to_join(tmp_path):
    folder = Path("/tmp") / f"{tmp_path.name}-{os.getpid()}"
    folder.mkdir(mode=0o755)
    path = folder / "docker.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        bound.listen()
        path.chmod(0o600)
        # The packages are imported as root: nobody else need be able to read them.
        code = (
            "import os; from distlaunch.image.engine.client import Engine\n"
            "import requests.adapters\n"
            "import docker.transport, http.client, encodings.idna\n"
            "os.setgid(65534); os.setuid(65534); os.environ['HOME'] = '/'\n"
            "try: Engine(print)\nexcept Exception as problem: print(problem)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"DOCKER_HOST": f"unix://{path}"},
            capture_output=True,
            text=True,
            check=False,
        )
    path.unlink()
    folder.rmdir()
    assert done.stdout == (
        f"no permission on the container engine's socket unix://{path}; "
        "run 'sudo usermod -aG docker $USER' and log in again\n"
    ), done.stderr


def test_the_engine_is_that_of_dockers_context(tmp_path, monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    name = "elsewhere"
    folder = docker_config / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    endpoints = {"docker": {"Host": f"unix://{tmp_path}/docker.sock", "SkipTLSVerify": False}}
    meta = json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints})
    (folder / "meta.json").write_text(meta)
    (docker_config / "config.json").write_text(json.dumps({"currentContext": name}))
    with engines.Scripted(tmp_path), Engine(Seen().see) as engine:
        assert engine.has("anything")


@pytest.mark.parametrize("meta", ["{}", "[", '{"Name": "elsewhere", "Metadata": 1}'])
def test_a_broken_context_is_told(meta, monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    folder = docker_config / "contexts/meta" / hashlib.sha256(b"elsewhere").hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(meta)
    (docker_config / "config.json").write_text('{"currentContext": "elsewhere"}')
    assert "no container engine can be used at what DOCKER_HOST and docker's context" in no_engine()


def test_a_context_that_is_not_there_is_told(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    assert no_engine().endswith("; see 'docker context ls'")


# Pushing


DENIED = (
    'denied: Permission "artifactregistry.repositories.uploadArtifacts" denied on resource '
    '"projects/p/locations/us-central1/repositories/training" (or it may not exist)'
)


def test_a_denied_push_to_google_has_the_command_that_allows_it(scripted):
    engine = scripted(push=[{"status": "Preparing", "id": "a"}, {"error": DENIED}])
    assert refused(engine, GOOGLE, ANN) == (
        f"push of {GOOGLE.name} denied ({DENIED}); run 'gcloud artifacts repositories "
        "add-iam-policy-binding training --project=p --location=us-central1 "
        "--member=user:$(gcloud config get account) --role=roles/artifactregistry.writer'"
    )


def test_a_push_as_nobody_has_the_command_that_logs_in(scripted):
    denied = "denied: requested access to the resource is denied"
    engine = scripted(push=[{"errorDetail": {"message": denied}, "error": denied}])
    assert refused(engine, HUB).endswith("; run 'docker login docker.io'")


def test_a_missing_repository_has_the_command_that_makes_it(scripted):
    engine = scripted(push=[{"error": 'name unknown: Repository "training" not found'}])
    assert refused(engine, GOOGLE, ANN).endswith(
        "; run 'gcloud artifacts repositories create training --repository-format=docker "
        "--project=p --location=us-central1'"
    )


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            'Get "https://h/v2/": http: server gave HTTP response to HTTPS client',
            "add docker.io to insecure-registries in its daemon.json",
        ),
        (
            "Get https://h/v2/: x509: certificate signed by unknown authority",
            "put the registry's certificate into /etc/docker/certs.d/docker.io/ca.crt",
        ),
        (
            "dial tcp: lookup h on 1.2.3.4:53: no such host",
            "see that it reaches docker.io (its network and proxy are its own), then try again",
        ),
        ("toomanyrequests: slow down", "run 'docker login docker.io' for a higher limit, "),
        ("write /var/lib/docker/x: no space left on device", "make room with 'docker system "),
        ("something else\nin two lines", "(something else in two lines); try again"),
    ],
)
def test_what_keeps_an_engine_from_pushing_is_told_with_its_remedy(error, remedy, scripted):
    assert remedy in refused(scripted(push=[{"error": error}]), HUB)


def test_an_engine_that_falls_silent_is_not_waited_for(scripted):
    engine = scripted(silence=0.2, push=[{"status": "Preparing", "id": "a"}, threading.Event()])
    assert "has said nothing for minutes" in refused(engine, HUB)


def test_an_engine_that_is_gone_is_told(scripted):
    engine = scripted(push=[{"status": "Preparing", "id": "a"}, None])
    assert refused(engine, HUB).startswith("the connection to the container engine broke (")


PUSH = [
    {"status": "The push refers to repository [h/x]"},
    {"status": "Preparing", "progressDetail": {}, "id": "aaa"},
    {"status": "Preparing", "progressDetail": {}, "id": "bbb"},
    {"status": "Layer already exists", "progressDetail": {}, "id": "aaa"},
    {"status": "Pushing", "progressDetail": {"current": 3_000_000, "total": 8e6}, "id": "bbb"},
    {"status": "Pushed", "progressDetail": {}, "id": "bbb"},
]


@pytest.mark.parametrize(
    "end",
    [
        {"progressDetail": {}, "aux": {"Tag": "1", "Digest": DIGEST, "Size": 1}},
        {"status": f"1: digest: {DIGEST} size: 1"},
    ],
    ids=["dockerd", "podman"],
)
def test_a_push_tells_its_digest_and_what_was_sent(end, scripted, seen):
    assert scripted(push=[*PUSH, end]).push(HUB, ANN) == Pushed(DIGEST, frozenset({"bbb"}))
    assert "pushing: 1 of 2 layers, 3 of 8 MB" in seen.lines
    assert seen.lines[-1] == ""
    assert "s3cret" not in repr(seen.notices)


# Building


def build(engine: Engine) -> str:
    return engine.build(io.BytesIO(b""), "Dockerfile", tag="x:1")


def not_built(engine: Engine) -> str:
    with pytest.raises(ImageError) as caught:
        build(engine)
    assert "\n" not in str(caught.value)
    return str(caught.value)


STEP = [
    {"stream": "Step 2/3 : RUN make all"},
    {"stream": "\n"},
    {"stream": "making\n\x1b[91mbroken\x1b[0m\n"},
]


def test_a_failed_step_is_named_and_its_last_lines_are_shown(scripted, seen):
    error = "The command '/bin/sh -c make all' returned a non-zero code: 2"
    end = {"errorDetail": {"code": 2, "message": error}, "error": error}
    assert not_built(scripted(build=[*STEP, end])) == (
        "step 2 of 3: RUN make all failed with exit code 2; its last lines stand above"
    )
    assert seen.notices[-1] == Notice(
        "step 2 of 3: RUN make all ended so:\nmaking\nbroken", "error"
    )


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([{"error": "x: no space left on device"}], ": the container engine's disk is full; make"),
        ([{"error": "COPY failed: no such file\n"}], "cannot be built: COPY failed: no such file"),
        ([None], "the connection to the container engine broke ("),
        ([{"stream": "Step 1/1 : FROM a"}], "the container engine does not say what it has built"),
        ({"message": "dockerfile parse error line 3", "status": 400}, "dockerfile parse error li"),
    ],
)
def test_what_keeps_an_engine_from_building_is_told(events, said, scripted):
    assert said in not_built(scripted(build=events))


def test_an_image_for_other_machines_is_refused(scripted):
    arm = {**engines.AMD64, "Architecture": "arm64"}
    engine = scripted(build=[{"aux": {"ID": "sha256:2"}}], json=arm)
    assert not_built(engine).startswith("the image is for linux/arm64 and not for linux/amd64; ")


@pytest.mark.parametrize("end", [{"aux": {"ID": "sha256:2"}}, {"stream": "Successfully built 2\n"}])
def test_a_build_shows_its_steps_and_returns_the_image(end, scripted, seen):
    assert build(scripted(build=[*STEP, end])).endswith("2")
    assert seen.texts == ["step 2 of 3: RUN make all"]
    assert seen.lines[:2] == ["making", "broken"]


# Pulling


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"status": 404, "message": "manifest for ann/digits:1 not found: manifest unknown"},
            f"there is no image {HUB} (manifest for ann/digits:1 not found: manifest unknown)",
        ),
        ({"status": 500, "message": "unauthorized: who?"}, "pull of ann/digits denied ("),
        ([{"error": "dial tcp: i/o timeout"}], f"the container engine cannot pull {HUB} (dial"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_told(answer, said, scripted):
    engine = scripted(create=answer, json={"status": 404, "message": "No such image"})
    assert not engine.has(str(HUB))
    with pytest.raises(ImageError) as caught:
        engine.pull(HUB, None)
    assert str(caught.value).startswith(said)
