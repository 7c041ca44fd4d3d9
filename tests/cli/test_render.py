"""`distlaunch render` as its user meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from urllib.request import urlopen

import pytest
import yaml

from distlaunch.emulator.emulator import Emulator

GCLOUD = shutil.which("gcloud")
JOB = """\
name: digits
region: us-central1
bucket: gs://some-bucket
module: trainer.task
args: [--epochs=5]
image: {repository: localhost:5000/digits}
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 2}
"""
LEGACY = """\
trainingInput:
  scaleTier: BASIC_GPU
  masterConfig: {imageUri: 'host/there:1'}
  region: europe-west4
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("print('trained')\n")
    (tmp_path / "requirements.txt").write_text("# nothing\n")
    return tmp_path


def test_files_are_written_and_the_next_commands_printed(run, project):
    done = run("render")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "wrote Dockerfile",
        "wrote .dockerignore",
        "wrote config.yaml",
        "next:",
        "  docker build --platform=linux/amd64 --tag localhost:5000/digits:latest .",
        "  docker push localhost:5000/digits:latest",
        "  gcloud ai custom-jobs create --region=us-central1 --display-name=digits "
        "--config=config.yaml",
    ]
    spec = yaml.safe_load((project / "config.yaml").read_text())
    assert [pool["replicaCount"] for pool in spec["workerPoolSpecs"]] == [1, 2]
    assert run("render").code == 0  # its own files are overwritten


def test_ai_platforms_format_into_another_folder(run, project):
    words = ("render", "--format", "ai-platform", "--output", "legacy/deep")
    assert run("--quiet", *words) == (0, "", "")
    content = yaml.safe_load((project / "legacy/deep/config.yaml").read_text())
    assert content["trainingInput"]["masterType"] == "n1-standard-4"
    assert content["trainingInput"]["workerCount"] == 2
    assert not (project / "config.yaml").exists()
    done = run(*words, "--set", "env.COLOUR=green")
    assert done.err.startswith("distlaunch: warning: env: COLOUR: left out, as AI Platform ")


def test_a_config_file_is_translated_and_its_retired_accelerators_on_request(run, project):
    (project / "old.yaml").write_text(LEGACY)
    done = run("render", "--config", "old.yaml")
    assert (done.code, "use --replace-retired" in done.err) == (1, True)
    done = run("render", "--config", "old.yaml", "--replace-retired")
    assert done.code == 0, done.err
    assert "there is nothing to build" in done.err
    assert "--region=europe-west4" in done.out
    [chief] = yaml.safe_load((project / "config.yaml").read_text())["workerPoolSpecs"]
    assert chief["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_T4"


@pytest.mark.parametrize("kind", ["vertex", "ai-platform", "jobset", "slurm"])
def test_only_the_user_can_read_the_values_of_variables(run, project, kind):
    slurm = ("--set=slurm.folder=/shared/jobs",) if kind == "slurm" else ()
    done = run("render", "--format", kind, "--set=env.NOTE=mine", "--output", "out", *slurm)
    assert done.code == 0, done.err
    paths = [path for path in (project / "out").iterdir() if "mine" in path.read_text()]
    assert bool(paths) == (kind != "ai-platform")
    assert {path.stat().st_mode & 0o777 for path in paths} <= {0o600}


def test_variables_that_look_secret_are_warned_of(run, project):
    done = run("render", "--set=env.API_KEY=abc", "--set=env.A_TOKEN=x", "--set=env.COLOUR=green")
    warning = "warning: config.yaml: contains the values of API_KEY, A_TOKEN, which look secret"
    assert (done.code, "abc" in done.out, warning in done.err) == (0, False, True)


CONDITIONAL = """\
vertex:
  maxTrialCount: 4
  parallelTrialCount: 2
  studySpec:
    metrics: [{metricId: loss, goal: MINIMIZE}]
    parameters:
    - parameterId: optimizer
      categoricalValueSpec: {values: [sgd, adam]}
      conditionalParameterSpecs:
      - parentCategoricalValues: {values: [sgd]}
        parameterSpec: {parameterId: momentum, doubleValueSpec: {minValue: 0, maxValue: 1}}
"""


def test_conditional_parameters_are_written_for_vertex_ai_only(run, project):
    (project / "distlaunch.yaml").write_text(JOB + CONDITIONAL)
    assert "gcloud ai hp-tuning-jobs create" in run("render").out
    done = run("render", "--format", "ai-platform", "--output", "legacy")
    problem = "error: studySpec: AI Platform's format cannot express this search"
    assert (done.code, done.out, problem in done.err) == (1, "", True)
    assert not (project / "legacy").exists()


@pytest.mark.parametrize(
    ("prepare", "words", "refusal"),
    [
        (lambda p: (p / "config.yaml").write_text(""), "", (1, "config.yaml would be overwritten")),
        (lambda p: (p / "distlaunch.yaml").unlink(), "", (1, "distlaunch.yaml: no such file; ")),
        (lambda p: shutil.rmtree(p / "trainer"), "", (1, "module: trainer.task: neither the fol")),
        (lambda p: None, "--output distlaunch.yaml", (2, "invalid value for '--output': Director")),
    ],
)
def test_what_it_refuses_in_one_line(run, project, prepare, words, refusal):
    code, expected = refusal
    prepare(project)
    before = sorted(project.iterdir())
    done = run("render", *words.split())
    assert (done.code, done.err.count("\n")) == (code, 1)
    assert done.err.startswith(f"distlaunch: error: {expected}")
    assert sorted(project.iterdir()) == before


def bash(line, folder, variables):
    """Run a line, and return its output."""
    done = subprocess.run(
        ["bash", "-ec", line],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_commands_for_docker_do_by_hand_what_submit_does(run, project, engine):
    repository = f"{engine.registry}/by-hand/digits"
    sets = [f"image.repository={repository}", f"image.base={engine.base}"]
    done = run("render", *[word for override in sets for word in ("--set", override)])
    assert done.code == 0, done.err
    docker = [line.strip() for line in done.out.splitlines() if line.startswith("  docker")]
    environment = {"DOCKER_HOST": engine.socket, "DOCKER_BUILDKIT": "0"}
    environment["PATH"] = f"/usr/bin:{os.environ['PATH']}"
    # The base has a Python, and the network may not be there: pip installs nothing.
    text = (project / "Dockerfile").read_text().replace("RUN python -m pip", "RUN echo pip")
    (project / "Dockerfile").write_text(text)
    for line in [*docker, f"docker run --rm {repository}:latest"]:
        output = bash(line, project, environment)
    assert output == "trained\n"


@pytest.mark.slow
@pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed here")
def test_the_command_for_gcloud_submits_the_job(run, project):
    args = ["--epochs=5", "a: b", "yes", "1e3", "0o17", "x\ny", "{{ 7 }}", "$HOME"]
    text = f"{JOB}project: my-project\nenv: {{A: '012'}}\n".replace(
        "args: [--epochs=5]", f"args: {json.dumps(args)}"
    )
    (project / "distlaunch.yaml").write_text(text)
    line = run("render").out.splitlines()[-1]
    with Emulator(storage=project / "storage", project_dir=project) as emulator:
        environment = {
            "CLOUDSDK_CONFIG": str(project / "gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{emulator.url}/",
        }
        bash(line, project, environment)
        jobs = "projects/my-project/locations/us-central1/customJobs"
        with urlopen(f"{emulator.url}/v1/{jobs}") as answer:  # noqa: S310 - on loopback
            (job,) = json.load(answer)["customJobs"]
    pools = job["jobSpec"]["workerPoolSpecs"]
    assert [pool["replicaCount"] for pool in pools] == ["1", "2"]
    assert pools[1]["containerSpec"] == {
        "imageUri": "localhost:5000/digits:latest",
        "args": args,
        "env": [{"name": "A", "value": "012"}],
    }
