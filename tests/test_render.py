"""The commands that are to be typed by hand, and what is never overwritten."""

from __future__ import annotations

import re
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from example_jobs import CPU, FULL, IMAGE, TUNED
from example_jobs import JOB as DIGITS
from hypothesis import example, given
from hypothesis import strategies as st

from distlaunch.errors import DistlaunchError, ImageError
from distlaunch.image.context import paths
from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.job import vertex
from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    Program,
    ReductionServer,
    Scheduling,
    Tuning,
)
from distlaunch.job.vertex.proto import validate_request
from distlaunch.render import Format, Rendered, render, render_config

REPOSITORY = "us-central1-docker.pkg.dev/my-project/training/digits"
JOB = Job(
    "digits",
    Cluster(Pool(Machine("n1-standard-4"))),
    project="my-project",
    region="us-central1",
    image=Image(REPOSITORY),
    labels={"team": "vision", "cost": "42"},
)
GCLOUD = "gcloud ai custom-jobs create --project=my-project --region=us-central1"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_and_the_commands_for_them(folder):
    rendered = render(JOB, folder, Path(), "vertex")
    assert list(rendered.files) == ["Dockerfile", ".dockerignore", "config.yaml"]
    assert rendered.notes == ()
    assert rendered.commands == (
        "gcloud auth configure-docker us-central1-docker.pkg.dev",
        f"docker build --platform=linux/amd64 --tag {REPOSITORY}:latest .",
        f"docker push {REPOSITORY}:latest",
        f"{GCLOUD} --display-name=digits --labels=team=vision,cost=42 --config=config.yaml",
    )
    assert f"imageUri: {REPOSITORY}:latest" in rendered.files["config.yaml"]


@pytest.mark.parametrize("output", ["", "out"])
def test_the_trainer_package_is_written_for_a_build_by_hand(folder, output):
    (folder / "trainer/task.py").write_text("import distlaunch_trainer\n")
    rendered = render(JOB, folder, folder / output, "vertex")
    rendered.write(folder / output)
    [wheel] = (folder / ".distlaunch/wheels").iterdir()
    path = wheel.relative_to(folder).as_posix()
    dockerfile = read_dockerfile(rendered.files["Dockerfile"])
    [copy] = [each for each in dockerfile.instructions if path in each.sources]
    assert copy.array == (path, f"/app/{path}")
    ignore = next(text for name, text in rendered.files.items() if name.endswith("ignore"))
    (folder / ".distlaunch/jobs").mkdir()
    (folder / ".distlaunch/jobs/secret").touch()
    (folder / ".distlaunch/wheels/older.whl").touch()
    assert paths(folder, ignore) == [path, "trainer/task.py"]
    assert zipfile.is_zipfile(wheel)
    (folder / ".dockerignore").write_text("data\n")
    [note] = render(JOB, folder, folder, "vertex").notes
    assert note == f"your own .dockerignore is left alone; it must include {path}"


def test_another_folder_is_named_in_the_commands(folder):
    job = replace(JOB, image=Image("localhost:5000/digits"), labels={}, project=None, region=None)
    rendered = render(job, folder, folder / "by hand", "ai-platform")
    assert rendered.commands == (
        "docker build --platform=linux/amd64 --file 'by hand/Dockerfile' "
        "--tag localhost:5000/digits:latest .",
        "docker push localhost:5000/digits:latest",
        "distlaunch submit '--config=by hand/config.yaml'",
    )
    rendered.write(folder / "by hand")
    written = {path.name for path in (folder / "by hand").iterdir()}
    assert written == {"Dockerfile.dockerignore", "Dockerfile", "config.yaml"}


def test_gcloud_takes_a_tuned_job_and_its_key_but_no_skipped_pool(folder):
    tuning = Tuning("accuracy", "maximize", {"a": ChoiceParameter(("x",))}, trials=2)
    job = replace(JOB, tuning=tuning, vertex={"encryptionSpec": {"kmsKeyName": "projects/p/k"}})
    command = shlex.split(render(job, folder, Path(), "vertex").commands[-1])
    assert command[:4] == ["gcloud", "ai", "hp-tuning-jobs", "create"]
    assert "--kms-key=projects/p/k" in command
    pool = Pool(Machine("n1-standard-4"))
    job = replace(JOB, cluster=Cluster(pool, Pool(pool.machine, 0), None, pool))
    rendered = render(job, folder, Path(), "vertex")
    assert rendered.commands[-1] == "distlaunch submit --config=config.yaml"
    assert rendered.notes == (
        "config.yaml: a pool of the cluster is skipped, which gcloud's --config does not take; "
        "'distlaunch submit' does",
    )


@pytest.mark.parametrize(("workers", "command"), [(0, "distlaunch"), (1, "gcloud")])
def test_the_reduction_server_is_the_pool_behind_the_workers(workers, command, folder):
    pool = Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1))
    cluster = Cluster(pool, replace(pool, count=workers))
    job = replace(JOB, cluster=cluster, reduction_server=ReductionServer())
    rendered = render(job, folder, Path(), "vertex")
    assert rendered.commands[-1].split()[0] == command
    assert yaml.safe_load(rendered.files["config.yaml"])["workerPoolSpecs"][2]["replicaCount"] == 1


def test_an_existing_image_is_not_built_and_a_new_one_needs_a_repository(folder):
    job = replace(JOB, image=Image(uri="host/there:1"))
    rendered = render(job, folder, Path(), "vertex")
    assert list(rendered.files) == ["config.yaml"]
    assert "imageUri: host/there:1" in rendered.files["config.yaml"]
    assert rendered.notes == ("the job names its images, so that there is nothing to build",)
    assert len(rendered.commands) == 1
    with pytest.raises(ImageError, match=r"^image\.repository: is missing; set where the image "):
        render(replace(JOB, image=Image()), folder, Path(), "vertex")


@pytest.mark.parametrize("output", [".", "out"])
def test_files_of_the_user_are_used_as_by_submit(folder, output):
    (folder / ".dockerignore").write_text("data\n")
    rendered = render(JOB, folder, folder / output, "vertex")
    assert list(rendered.files) == ["Dockerfile", "config.yaml"]
    assert rendered.notes == ("your own .dockerignore is left alone",)
    assert not [command for command in rendered.commands if command.startswith("cp ")]
    rendered.write(folder / output)
    assert (folder / ".dockerignore").read_text() == "data\n"

    (folder / "Dockerfile").write_text("FROM debian\n")
    rendered = render(JOB, folder, folder / output, "vertex")
    assert list(rendered.files) == ["config.yaml"]
    assert rendered.notes == ("the image is built by your own Dockerfile, which is left alone",)
    assert rendered.commands[1] == (
        f"docker build --platform=linux/amd64 --file Dockerfile --tag {REPOSITORY}:latest ."
    )
    image = Image(REPOSITORY, target="train", build_args={"A": "1 2"})
    rendered = render(replace(JOB, image=image), folder, folder / output, "vertex")
    assert " --target train '--build-arg=A=1 2' --tag " in rendered.commands[1]


def test_rendered_files_are_written_again_and_others_never(folder):
    render(JOB, folder, folder, "vertex").write(folder)
    other = render(replace(JOB, module="trainer.other"), folder, folder, "ai-platform")
    other.write(folder)
    assert (folder / "Dockerfile").read_text() == other.files["Dockerfile"]

    changed = other.files["config.yaml"].replace("digits", "mine")
    (folder / "config.yaml").write_text(changed)
    with pytest.raises(DistlaunchError) as refusal:
        render(JOB, folder, folder, "vertex").write(folder)
    assert str(refusal.value) == (
        f"{folder}/config.yaml would be overwritten, and is not as distlaunch wrote it; remove it, "
        "or choose another folder with --output DIR"
    )
    assert (folder / "config.yaml").read_text() == changed
    assert (folder / "Dockerfile").read_text() == other.files["Dockerfile"]
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("elsewhere")
    for name in ("folder", "link"):
        with pytest.raises(DistlaunchError, match=rf"/{name} would be overwritten"):
            Rendered({name: ""}, (), ()).write(folder)


# config.yaml


def config(job: Job, format: Format = "vertex") -> tuple[str, tuple[str, ...]]:  # noqa: A002
    return render_config(job, format=format, image=IMAGE)


@pytest.mark.parametrize("job", [DIGITS, FULL, TUNED], ids=["job", "full", "tuned"])
def test_vertex_ais_file_is_the_request(job):
    text, notes = config(job)
    request = vertex.build_request(job, image=IMAGE, labels={}, job_dir="gs://my-bucket/digits")
    data = yaml.safe_load(text)
    if job.tuning:
        assert data == request
        validate_request("hyperparameterTuningJobs", data)
    else:
        assert data == request["jobSpec"]
        validate_request("customJobs", {"displayName": "x", "jobSpec": data})
    assert notes == ()


hostile = st.text(
    st.one_of(
        st.sampled_from("'\"\\${}#:-[]!&*%@`|>,\n\t\r é☺\x85\u2028"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=12,
)


@given(st.lists(hostile, max_size=3), st.dictionaries(st.sampled_from("AB"), hostile))
@example(["{{ 7 * 7 }}", "{% endfor %}"], {"A": "x: y\n- z"})
@example(["yes", "1e3", "0o17", "~", "---", "<<", "=", "--a=b"], {"A": "012"})
@example(["${HOME}", "$${HOME}", "$HOME", "${HOME"], {"B": "${HOME}"})
def test_vertex_ais_file_has_any_text_as_it_was(args, env):
    job = replace(DIGITS, args=tuple(args), env=env)
    request = vertex.build_request(job, image=IMAGE, labels={}, job_dir="gs://my-bucket/digits")
    text, notes = config(job)
    assert yaml.safe_load(text) == request["jobSpec"]
    variables = re.findall(r"\$\{[A-Za-z_]\w*\}", repr([args, env]), re.ASCII)
    assert [note.split(": ")[1] for note in notes] == list(dict.fromkeys(variables))


def test_ai_platforms_file(tmp_path):
    job = replace(FULL, env={}, tensorboard=None, args=("${HOME}",))
    text, notes = config(replace(job, scheduling=Scheduling(timeout=7200)), "ai-platform")
    data = yaml.safe_load(text)
    assert data["labels"] == {"team": "vision"}
    assert data["trainingInput"]["masterType"] == "n1-standard-8"
    assert data["trainingInput"]["args"][-1] == "$${HOME}"  # so that `submit` reads it as it was
    assert notes == ()


def test_pools_with_their_own_images_and_pools_without_machines():
    own = Program(image="r/own:1", command=("run",), args=("{{ x }}",))
    text, _ = config(replace(DIGITS, cluster=Cluster(Pool(CPU, 1, own), None, None, Pool(CPU))))
    chief, *skipped, evaluator = yaml.safe_load(text)["workerPoolSpecs"]
    container = chief["containerSpec"]
    assert (container["imageUri"], container["args"]) == ("r/own:1", ["{{ x }}"])
    assert evaluator["containerSpec"]["imageUri"] == IMAGE
    assert skipped == [{}, {}]
    assert "  # the workers: none\n  - {}\n" in text
