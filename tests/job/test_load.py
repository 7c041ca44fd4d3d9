"""A job from distlaunch.yaml, one of Google's files and the command line: which one wins."""

from __future__ import annotations

import json

import pytest

from distlaunch.errors import JobFileError, UsageError
from distlaunch.job import vertex
from distlaunch.job.load import load_job
from distlaunch.job.model import Cluster, Job, Machine, Pool, Program, Scheduling

PROJECT = """\
name: digits
region: us-central1
args: [--epochs=5]
image: {repository: us-docker.pkg.dev/p/r/digits}
cluster:
  chief: &machine {machine: n1-standard-4}
  workers: {<<: *machine, count: 2}
env: {LEVEL: info}
labels: {team: vision, run: a}
scheduling: {strategy: SPOT, timeout: 2h}
vertex: {jobSpec: {enableWebAccess: true}}
"""
CONFIG = """\
displayName: My Digits
labels: {run: b}
jobSpec:
  workerPoolSpecs:
  - machineSpec:
      {machineType: a2-highgpu-1g, acceleratorType: NVIDIA_TESLA_A100, acceleratorCount: 1}
    replicaCount: '1'
    containerSpec: {imageUri: x/y:1, args: [--lr, 0.1], env: [{name: MODE, value: on}]}
    diskSpec: {bootDiskSizeGb: 200}
  - {}
  - machineSpec: {machineType: n1-standard-4}
    replicaCount: 2
    containerSpec: {imageUri: x/reduce:1}
  scheduling: {timeout: 3600.5s}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(PROJECT)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def load(folder, **kwargs) -> Job:
    return load_job(folder, **kwargs).job


def with_config(folder, **kwargs) -> Job:
    return load(folder, config=folder / "config.yaml", **kwargs)


def request(job: Job) -> dict:
    return vertex.build_request(job, image=None, labels={}, job_dir=None)


def lines(folder, **kwargs) -> list[str]:
    with pytest.raises(JobFileError) as error:
        load_job(folder, **kwargs)
    return [line.removeprefix(f"{folder}/") for line in error.value.lines]


# What is set on the command line


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("args=[--epochs=7, --lr=1]", "args", ("--epochs=7", "--lr=1")),
        ("args.1=--lr=1", "args", ("--epochs=5", "--lr=1")),
        ("args=", "args", ()),
        ("env.LEVEL=a=b: #c", "env", {"LEVEL": "a=b: #c"}),
        ("env.NEW=''", "env", {"LEVEL": "info", "NEW": ""}),
        ('labels."team"=no', "labels", {"team": "no", "run": "a"}),
        ("region=", "region", None),
        ("scheduling={timeout: 1m}", "scheduling", Scheduling(timeout=60)),
    ],
)
def test_set_takes_any_field(project, text, field, value):
    assert getattr(load(project, overrides=[text]), field) == value
    sets = ["cluster.workers.machine=n1-standard-8", "cluster.workers.count=7", text]
    cluster = load(project, overrides=sets).cluster
    assert cluster.workers == Pool(Machine("n1-standard-8"), 7)
    assert cluster.chief == Pool(Machine("n1-standard-4"))  # of which the workers are an alias


def test_later_overrides_and_options_win_also_in_google_s_own_fields(project):
    disk = "vertex.jobSpec.workerPoolSpecs.0.diskSpec.bootDiskSizeGb"
    sets = ["region=europe-west4", "name=one", "name=two", f"{disk}=100", f"{disk}=200"]
    job = load(project, overrides=sets, region="us-east1")
    assert (job.name, job.region) == ("two", "us-east1")
    assert job.vertex["jobSpec"] == {
        "enableWebAccess": True,
        "workerPoolSpecs": [{"diskSpec": {"bootDiskSizeGb": 200}}],
    }


def test_problems_of_overrides_are_reported_with_those_of_the_file(project):
    (project / "distlaunch.yaml").write_text(PROJECT.replace("us-central1", "us"))
    sets = [
        "cluster.workers.cuont=7",
        "cluster.evaluators.count=1",
        "cluster.chief={machine: n1-standard-4, accelerator: {typ: x}}",
        "lables.team=vision",
        "args.0.0.0=x",
        "env.LEVEL=",
        "vertex.jobSpec.enableWebAcess=true",
    ]
    assert lines(project, overrides=sets, name="Bad Name") == [
        "NAME: name: expected at most 63 of a-z, 0-9, _ and -, a letter first, such as digits, got "
        "'Bad Name'",
        "--set args.0.0.0: args.0: expected text, got a section",
        "--set cluster.chief: cluster.chief.accelerator.type: is missing",
        "--set cluster.chief: cluster.chief.accelerator.typ: unknown key; did you mean 'type'?",
        "--set cluster.workers.cuont: unknown key; did you mean 'count'?",
        "--set env.LEVEL: expected text, got nothing",
        "--set lables.team: lables: unknown key; did you mean 'labels'?",
        "--set cluster.evaluators.count: cluster.evaluators.machine: is missing",
        "--set vertex.jobSpec.enableWebAcess: unknown field; did you mean 'enableWebAccess'?",
        "distlaunch.yaml:2:9: region: expected a region such as us-central1, got 'us'",
    ]


@pytest.mark.parametrize(
    ("cluster", "machines", "is_missing"),
    [
        ("{chief: {}, workers: {count: 2}}", "{machine: n1-standard-4}", False),
        ("{chief: {}, workers: {count: 2}}", "{chief: {machine: n1-standard-4}}", True),
        ("{chief: {machine: n1-standard-4}, workers: {}}", "{machine: n1-standard-8}", True),
        (
            "{chief: {}, workers: {accelerator: {type: NVIDIA_TESLA_T4}}}",
            "{machine: n1-standard-4}",
            True,
        ),
    ],
)
def test_pools_without_a_machine_get_that_of_the_first_choice(
    tmp_path, cluster, machines, is_missing
):
    text = f"name: digits\ncluster: {cluster}\nscheduling: {{machines: [{machines}]}}\n"
    (tmp_path / "distlaunch.yaml").write_text(text)
    if is_missing:
        with pytest.raises(JobFileError, match=r"cluster.workers.machine: is missing"):
            load_job(tmp_path)
    else:
        assert load_job(tmp_path).job.cluster.workers.machine.type == "n1-standard-4"


EXAMPLE = "expected an assignment such as cluster.workers.count=7"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb", f"--set a\\nb: no value; {EXAMPLE}"),
        ("=7", f"--set: '' is not a field name; {EXAMPLE}"),
        ("'a'b=7", f"--set: \"'a'b\" is not a field name; {EXAMPLE}"),
        ("args.3=x", "--set args.3: invalid list index '3'; expected 0 to 1"),
        ("args.x=x", "--set args.x: invalid list index 'x'; expected 0 to 1"),
        (
            "args=[a",
            "--set args: not YAML: while parsing a flow sequence, expected ',' or ']', but got "
            "'<stream end>'",
        ),
        ("args=[!!python/name:x ]", "--set args: unsupported YAML tag !!python/name:x"),
        ("args=[a]\nname: b", "--set args: expected one value, got more than one line"),
    ],
)
def test_invalid_assignments(project, text, line):
    with pytest.raises(UsageError) as error:
        load_job(project, overrides=[text])
    assert str(error.value) == line


# What is appended to the program's args


def test_args_are_appended_for_the_pools_that_run_what_the_chief_runs(project):
    assert load(project, args=["--epochs=7"]).args == ("--epochs=5", "--epochs=7")
    cluster = with_config(project, args=["--epochs=7"]).cluster
    assert cluster.chief.program.args == ("--lr", "0.1", "--epochs=7")
    assert cluster.parameter_servers.program.args == ()


# Google's files over the job's own


def test_google_s_file_replaces_the_cluster_and_the_rest_stays(project):
    job = with_config(project)
    machine = Machine("a2-highgpu-1g", "NVIDIA_TESLA_A100", 1)
    program = Program("x/y:1", args=("--lr", "0.1"), env={"MODE": "on"})
    servers = Pool(Machine("n1-standard-4"), 2, Program("x/reduce:1"))
    assert job.cluster == Cluster(Pool(machine, 1, program), parameter_servers=servers)
    assert (job.name, job.region) == ("my_digits", "us-central1")
    assert job.scheduling == Scheduling("SPOT", timeout=3601)
    body = request(job)
    assert body["displayName"] == "My Digits"
    assert body["labels"] == {"team": "vision", "run": "b"}
    assert body["jobSpec"]["enableWebAccess"] is True
    assert body["jobSpec"]["scheduling"] == {"strategy": "SPOT", "timeout": "3600.500s"}
    chief = body["jobSpec"]["workerPoolSpecs"][0]
    assert chief["diskSpec"] == {"bootDiskSizeGb": 200}
    env = {each["name"]: each["value"] for each in chief["containerSpec"]["env"]}
    assert env == {"MODE": "on", "LEVEL": "info", "DISTLAUNCH_EXPECTED_GPUS": "1"}


def test_pools_of_google_s_in_the_job_s_own_file_are_not_used_with_a_note(project):
    pools = "[{diskSpec: {bootDiskSizeGb: 300}}, {diskSpec: {}}]"
    text = PROJECT.replace("enableWebAccess: true", f"workerPoolSpecs: {pools}")
    (project / "distlaunch.yaml").write_text(text)
    loaded = load_job(project, config=project / "config.yaml")
    assert loaded.notes == (
        f"{project}/distlaunch.yaml: vertex: workerPoolSpecs are not used, as "
        f"{project}/config.yaml defines the pools",
    )
    chief, workers, _ = request(loaded.job)["jobSpec"]["workerPoolSpecs"]
    assert (chief["diskSpec"], workers) == ({"bootDiskSizeGb": 200}, {})


def test_the_command_line_wins_over_google_s_file(project):
    job = with_config(
        project,
        name="three",
        region="us-east1",
        overrides=[
            "scheduling.timeout=3h",
            "cluster.parameter_servers.count=5",
            "cluster.workers={machine: n1-standard-8, count: 2}",
            "labels.run=c",
            "vertex.jobSpec.scheduling.disableRetries=true",
        ],
    )
    assert (job.region, job.labels) == ("us-east1", {"team": "vision", "run": "c"})
    assert job.scheduling == Scheduling("SPOT", timeout=3 * 3600)
    body = request(job)
    scheduling = {"strategy": "SPOT", "timeout": "10800s", "disableRetries": True}
    assert (body["displayName"], body["jobSpec"]["scheduling"]) == ("three", scheduling)
    chief, workers, servers = body["jobSpec"]["workerPoolSpecs"]
    assert (servers["replicaCount"], servers["containerSpec"]["imageUri"]) == (5, "x/reduce:1")
    assert workers["machineSpec"] == {"machineType": "n1-standard-8"}
    assert workers["containerSpec"]["imageUri"] == chief["containerSpec"]["imageUri"] == "x/y:1"


def test_what_is_assumed_or_ignored_is_noted(tmp_path):
    container = "containerSpec: {imageUri: x/y:1, args: --epochs 5}"
    text = (
        "name: projects/1/locations/r/customJobs/2\nstate: JOB_STATE_FAILED\n"
        f"jobSpec: {{workerPoolSpecs: {{machineSpec: {{machineType: n1-x}}, {container}}}}}"
    )
    folder = tmp_path / "My Project"
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    loaded = load_job(folder, config=folder / "config.yaml")
    pool = f"{folder}/config.yaml: jobSpec.workerPoolSpecs"
    assert set(loaded.notes) == {
        f"{pool}.containerSpec.args: one argument, '--epochs 5'; write a list for several",
        f"{folder}/config.yaml: workerPoolSpecs[0].replicaCount: not set; using 1",
        f"{folder}/config.yaml: name: ignored (output-only field)",
        f"{folder}/config.yaml: state: ignored (output-only field)",
    }
    assert loaded.job.name == "my_project"
    assert "state" not in request(loaded.job)


def test_an_image_is_for_the_pools_without_one(project):
    (project / "config.yaml").write_text(
        "trainingInput: {scaleTier: CUSTOM, masterType: n1-highcpu-16, workerType: n1-highcpu-16,"
        " workerCount: 1, masterConfig: {imageUri: '${IMAGE_URI}'},"
        " workerConfig: {imageUri: x/y:1}}"
    )
    job = with_config(project, image="mine/it:1", args=["--a"])
    chief, workers = [pool["containerSpec"] for pool in request(job)["jobSpec"]["workerPoolSpecs"]]
    assert (chief["imageUri"], workers["imageUri"]) == ("mine/it:1", "x/y:1")
    assert (chief["args"], workers.get("args")) == (["--a"], None)
    assert not vertex.needs_image(job)


def test_a_search_of_google_s(project):
    study = {
        "metrics": [{"metric_id": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [{"parameter_id": "lr", "double_value_spec": {"max_value": 1}}],
    }
    search = {"study_spec": study, "max_trial_count": 4, "parallel_trial_count": 2}
    search["trial_job_spec"] = {"worker_pool_specs": [{"replica_count": 1}]}
    (project / "config.yaml").write_text(json.dumps(search, indent="\t"))
    job = with_config(project)
    assert (job.tuning.trials, job.tuning.parameters["lr"].maximum) == (4, 1)
    body = request(job)
    assert body["trialJobSpec"]["enableWebAccess"] is True  # from the job's own file
    assert body["studySpec"]["parameters"] == [
        {"parameterId": "lr", "doubleValueSpec": {"maxValue": 1.0}}
    ]
    more = with_config(project, overrides=["tuning.trials=9"])
    assert request(more)["maxTrialCount"] == 9


def test_problems_of_both_files_are_reported_at_once(project):
    assert load_job(project).notes == ()
    (project / "distlaunch.yaml").write_text(PROJECT.replace("us-central1", "us"))
    (project / "config.yaml").write_text(CONFIG.replace("replicaCount: 2", "replicaCuont: 2"))
    assert lines(project, config=project / "config.yaml") == [
        "distlaunch.yaml:2:9: region: expected a region such as us-central1, got 'us'",
        "config.yaml:12:5: jobSpec.workerPoolSpecs[2].replicaCuont: unknown field; did you mean "
        "'replicaCount'?",
    ]


# Google's fields in the job's own file


def test_what_the_file_leaves_to_google_s_fields_is_known(project):
    fields = "serviceAccount: a@b.com, scheduling: {maxWaitDuration: 5s}, "
    text = PROJECT.replace("jobSpec: {", f"labels: {{x: y}}, jobSpec: {{{fields}")
    (project / "distlaunch.yaml").write_text(text)
    job = load(project)
    assert job.service_account == "a@b.com"
    assert request(job)["labels"] == {"team": "vision", "run": "a", "x": "y"}
    scheduling = request(job)["jobSpec"]["scheduling"]
    assert scheduling == {"strategy": "SPOT", "timeout": "7200s", "maxWaitDuration": "5s"}


def test_what_is_set_for_google_against_the_file_is_refused(project):
    sets = ["vertex.jobSpec.workerPoolSpecs.0.machineSpec.machineType=n1-standard-8"]
    assert lines(project, config=project / "config.yaml", overrides=sets) == [
        "--set vertex.jobSpec.workerPoolSpecs.0.machineSpec.machineType: "
        "vertex.jobSpec.workerPoolSpecs[0].machineSpec.machineType: 'n1-standard-8' conflicts with "
        "cluster; set it there"
    ]


@pytest.mark.parametrize(
    ("own", "file", "sets", "expected"),
    [
        ("web_access: true", "", [], True),
        ("web_access: true", "enableWebAccess: false", [], False),
        ("", "enableWebAccess: true", [], True),
        ("", "enableWebAccess: true", ["web_access=false"], False),
        ("", "", ["web_access=true"], True),
        ("web_access: false", "", [], None),
    ],
)
def test_web_access_of_either_file_or_the_command_line(tmp_path, own, file, sets, expected):
    (tmp_path / "distlaunch.yaml").write_text(f"{PROJECT.rpartition('vertex:')[0]}{own}\n")
    text = CONFIG.replace("  scheduling:", f"  {file}\n  scheduling:" if file else "  scheduling:")
    (tmp_path / "config.yaml").write_text(text)
    job = with_config(tmp_path, overrides=sets)
    assert (job.web_access, request(job)["jobSpec"].get("enableWebAccess")) == (
        bool(expected),
        expected,
    )
    study = "studySpec: {metrics: [{metricId: a, goal: MAXIMIZE}], parameters: []}"
    tuned = text.replace("jobSpec:", "trialJobSpec:").replace("labels", f"{study}\nlabels", 1)
    (tmp_path / "config.yaml").write_text(tuned)
    body = request(with_config(tmp_path, overrides=sets))
    assert body["trialJobSpec"].get("enableWebAccess") == expected


def test_web_access_of_both_sections_is_a_conflict(project):
    text = PROJECT + "web_access: false\n"
    (project / "distlaunch.yaml").write_text(text)
    [line] = lines(project)
    assert "vertex.jobSpec.enableWebAccess: true conflicts with web_access; set it there" in line


@pytest.mark.parametrize(
    ("files", "more", "expected"),
    [
        (["src/mypkg/task.py"], "", "src"),
        (["src/mypkg/task.py", "Dockerfile"], "", None),  # which sets it
        (["src/mypkg.py"], "", "src"),
        (["src/mypkg/task.py", "mypkg/task.py"], "", None),  # Python finds the folder's own
        (["mypkg/task.py"], "", None),
        (["src/mypkg/task.py"], "env: {PYTHONPATH: lib}", "lib"),
        (["src/mypkg/task.py"], "script: train.py", None),
        (["src/mypkg/task.py"], "image: {uri: x/y:1}", None),
    ],
)
def test_the_module_of_a_src_layout_is_found(tmp_path, files, more, expected):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("FROM x\nENV PYTHONPATH=/a/src\n" * (file == "Dockerfile"))
    key = "" if "script" in more else "module: mypkg.task\n"
    text = f"name: a\n{key}cluster: {{chief: {{machine: n1-standard-4}}}}\n{more}\n"
    (tmp_path / "distlaunch.yaml").write_text(text)
    assert load_job(tmp_path).job.env.get("PYTHONPATH") == expected
