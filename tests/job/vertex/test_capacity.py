"""Reservations and persistent resources: from the job file to the request and back."""

from __future__ import annotations

import pytest

from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.choices import job_choices
from distlaunch.job.load import load_job
from distlaunch.job.overrides import job_data
from distlaunch.job.persistent_resource import build_body, shortages
from distlaunch.job.vertex import proto
from distlaunch.job.vertex.view import pools_of, view_request

FULL = "projects/p/zones/us-central1-a/reservations/gpus"
PENDING = "projects/my-project/zones/<zone known at the submit>/reservations/gpus"
GPUS = "accelerator: {type: NVIDIA_TESLA_T4, count: 2}"
JOB = f"""\
name: digits
project: my-project
cluster:
  chief: {{machine: n1-standard-8, {GPUS}}}
  workers: {{machine: n1-standard-8, {GPUS}, count: 3}}
  evaluators: {{machine: n1-standard-4}}
"""


@pytest.fixture
def load(tmp_path):
    def run(more="", **options):
        (tmp_path / "distlaunch.yaml").write_text(JOB + more)
        return load_job(tmp_path, **options).job

    return run


def sent(job):
    """Return the request of a job, which Google's own messages take."""
    body = vertex.build_request(job, image="a/b:1", labels={}, job_dir=None)
    proto.validate_request(vertex.collection(job), body)
    return body


def affinities(job):
    specs = sent(job)["jobSpec"]["workerPoolSpecs"]
    return [spec.get("machineSpec", {}).get("reservationAffinity") for spec in specs]


def specific(name):
    key = "compute.googleapis.com/reservation-name"
    return {"reservationAffinityType": "SPECIFIC_RESERVATION", "key": key, "values": [name]}


@pytest.mark.parametrize(
    ("value", "affinity"),
    [
        ("any", {"reservationAffinityType": "ANY_RESERVATION"}),
        ("gpus", specific(PENDING)),
        (FULL, specific(FULL)),
        ("us-central1-a/gpus", specific(FULL.replace("/p/", "/my-project/"))),
    ],
)
def test_a_reservation_is_of_the_pools_with_accelerators(load, value, affinity):
    job = load(f"reservation: {value}\n")
    assert affinities(job) == [affinity, affinity, None, None]
    assert job_data(job)["reservation"] == value
    view = view_request(sent(job), "customJobs", "my-project", "us-central1")
    assert view.reservations == tuple(affinity.get("values", ["any"]))


def test_a_reservation_is_of_all_pools_where_none_has_accelerators(load):
    cluster = "{chief: {machine: n1-standard-8}, workers: {machine: n1-standard-8}}"
    job = load("reservation: any\n", overrides=[f"cluster={cluster}"])
    assert None not in affinities(job)


@pytest.mark.parametrize("value", ["us-central1/gpus", "ANY", "projects/p/gpus"])
def test_what_is_no_reservation(load, value):
    with pytest.raises(JobFileError, match=r"expected any, NAME, ZONE/NAME or .*reservations list"):
        load(f"reservation: {value}\n")


def test_what_the_section_vertex_sets_for_a_pool_is_kept_or_conflicts(load):
    none = "machineSpec: {reservationAffinity: {reservationAffinityType: NO_RESERVATION}}"
    section = f"vertex: {{jobSpec: {{workerPoolSpecs: [{{}}, {{{none}}}]}}}}\n"
    assert affinities(load(section)) == [
        *(None, {"reservationAffinityType": "NO_RESERVATION"}, None, None)
    ]
    with pytest.raises(JobFileError, match="conflicts with reservation; set it there"):
        load(f"reservation: any\n{section}")
    with pytest.raises(JobFileError, match="'a' conflicts with persistent_resource"):
        load("persistent_resource: b\nvertex: {jobSpec: {persistentResourceId: a}}\n")
    assert load("vertex: {jobSpec: {persistentResourceId: a}}\n").persistent_resource == "a"


def test_other_machines_and_regions_are_not_reserved_and_have_no_topology(load, tmp_path):
    config = tmp_path / "config.yaml"
    machine = (
        "{machineType: ct5lp-hightpu-4t, tpuTopology: 4x4, "
        "reservationAffinity: {reservationAffinityType: ANY_RESERVATION}}"
    )
    config.write_text(
        f"workerPoolSpecs: [{{machineSpec: {machine}, containerSpec: {{imageUri: 'a/b:1'}}}}]\n"
    )
    lists = "scheduling: {machines: [{machine: n1-standard-8}], regions: [us-east1, us-west1]}\n"
    first, *others = job_choices(load(lists, config=config, region="us-east1"))
    assert affinities(first) == [{"reservationAffinityType": "ANY_RESERVATION"}]
    tpu = {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "4x4"}
    cpu = {"machineType": "n1-standard-8"}
    bodies = [sent(job)["jobSpec"]["workerPoolSpecs"] for job in others]
    assert [pools[0]["machineSpec"] for pools in bodies] == [cpu, tpu, cpu]


def test_google_s_file_wins_over_the_job_file_and_an_option_over_both(load, tmp_path):
    config = tmp_path / "config.yaml"
    affinity = "reservationAffinity: {reservationAffinityType: ANY_RESERVATION}"
    config.write_text(
        f"workerPoolSpecs: [{{machineSpec: {{machineType: n1-standard-8, {affinity}}}, "
        "containerSpec: {imageUri: 'a/b:1'}}]\npersistentResourceId: theirs\n"
    )
    both = f"reservation: {FULL}\npersistent_resource: mine\n"
    job = load(both, config=config)
    assert affinities(job) == [{"reservationAffinityType": "ANY_RESERVATION"}]
    assert sent(job)["jobSpec"]["persistentResourceId"] == "theirs"
    options = [f"reservation={FULL}", "persistent_resource=other"]
    job = load(both, config=config, overrides=options)
    assert affinities(job) == [specific(FULL)]
    assert sent(job)["jobSpec"]["persistentResourceId"] == "other"
    without = load(both, config=config, overrides=["persistent_resource="])
    assert "persistentResourceId" not in sent(without)["jobSpec"]


def test_a_persistent_resource_has_the_machines_of_all_trials_at_once(load):
    job = load(
        "tuning: {metric: a, goal: maximize, trials: 4, parallel_trials: 2, parameters: "
        "{x: {values: [a]}}}\nservice_account: trainer@p.iam.gserviceaccount.com\n"
        "network: projects/1/global/networks/n\n"
        "vertex: {encryptionSpec: {kmsKeyName: k}, trialJobSpec: {workerPoolSpecs: "
        "[{diskSpec: {bootDiskSizeGb: 200}}, {diskSpec: {bootDiskSizeGb: 200}}]}}\n"
    )
    request = sent(job)
    body = build_body("warm", request, request["trialJobSpec"])
    t4 = {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}
    account = {"enableCustomServiceAccount": True, "serviceAccount": job.service_account}
    assert body == {
        "displayName": "warm",
        "resourcePools": [
            {
                "machineSpec": {"machineType": "n1-standard-8", **t4},
                "diskSpec": {"bootDiskSizeGb": 200},
                "replicaCount": 8,
            },
            {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 2},
        ],
        "network": "projects/1/global/networks/n",
        "encryptionSpec": {"kmsKeyName": "k"},
        "resourceRuntimeSpec": {"serviceAccountSpec": account},
        "labels": {"created-by": "distlaunch"},
    }
    from google.cloud import aiplatform_v1
    from google.protobuf import json_format

    json_format.ParseDict(body, aiplatform_v1.PersistentResource.pb()())


def pool(machine="n1-standard-8", count=1, used=0, most=0, **disk):
    more = {"diskSpec": disk} if disk else {}
    scaling = {"autoscalingSpec": {"maxReplicaCount": str(most)}} if most else {}
    counts = {"replicaCount": str(count), "usedReplicaCount": str(used)}
    return {"machineSpec": {"machineType": machine}, **more, **scaling, **counts}


@pytest.mark.parametrize(
    ("resource_pools", "wanted", "short"),
    [
        ([pool(count=3)], [pool(), pool(count=2)], []),
        ([pool(count=2), pool()], [pool(count=3)], []),  # two pools of equal machines
        ([pool(count=2)], [pool(), pool(count=2)], [(3, 2, 2)]),
        ([pool(count=4, used=2)], [pool(count=3)], [(3, 2, 4)]),
        ([pool(count=1, most=4)], [pool(count=4)], []),
        ([pool("n1-standard-4")], [pool()], [(1, 0, 0)]),
        ([pool(bootDiskSizeGb=100)], [pool(bootDiskSizeGb=200)], [(1, 0, 0)]),
        ([pool(bootDiskSizeGb=100)], [pool()], []),
    ],
)
def test_a_job_needs_free_machines_of_its_kind(resource_pools, wanted, short):
    found = shortages({"resourcePools": resource_pools}, pools_of(wanted))
    assert [tuple(each)[:3] for each in found] == short
