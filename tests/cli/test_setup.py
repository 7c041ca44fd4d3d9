"""`distlaunch setup` and `teardown` in a project of Google Cloud with state."""

from __future__ import annotations

import io
import json

import pytest
from fake_google import CREDENTIALS, NUMBER
from fake_google.projects import PROJECT, FakeProject
from json_schemas import load_checked

from distlaunch import scaffold
from distlaunch.engines.vertex.client import connect
from distlaunch.job.load import load_job

BUCKET, REPOSITORY = f"{PROJECT}-distlaunch", "distlaunch"
ACCOUNT = f"distlaunch@{PROJECT}.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{ACCOUNT}"
OWN = f"projects/{PROJECT}"
OBJECTS, LOGS = "roles/storage.objectAdmin", "roles/logging.logWriter"


@pytest.fixture
def google(tmp_path, monkeypatch):
    fake = FakeProject()
    fake.install(monkeypatch, tmp_path)
    monkeypatch.setitem(connect.__kwdefaults__, "sleep", lambda _: None)
    return fake


@pytest.fixture
def digits(tmp_path):
    """A project as `init` writes it."""
    folder = tmp_path / "digits"
    scaffold.plan(folder, "digits").write(folder)
    return folder


@pytest.fixture
def setup(run, digits):
    return lambda *words: run("setup", "--project", PROJECT, *words, cwd=digits)


@pytest.fixture
def teardown(run, digits):
    return lambda *words: run("teardown", "--project", PROJECT, *words, cwd=digits)


def bucket(name, number=NUMBER, **labels):
    """A bucket that somebody else created."""
    return {"name": name, "projectNumber": number, "labels": labels}


def test_a_new_project_gets_all_that_jobs_need(google, setup, digits):
    google.delay = 2
    google.grant(OWN, "roles/owner", "user:me@x.com")
    before = google.state()
    plan = setup("--dry-run")
    assert plan.code == 0, plan.err
    assert google.state() == before
    assert f"bucket           gs://{BUCKET}" in plan.out
    assert plan.out.count(" create ") == 7
    assert "billed by stored GB" in plan.out
    assert "cleanup policy: images are deleted after 90 days, but for the newest 20" in plan.out

    done = setup("--yes")
    assert done.code == 0, done.err
    assert "distlaunch check" in done.err
    assert {"aiplatform", "artifactregistry", "iam", "logging", "storage"} <= google.enabled
    assert google.buckets[BUCKET]["location"] == "us-central1"
    policies = google.repositories[REPOSITORY]["cleanupPolicies"]
    assert {each["action"] for each in policies.values()} == {"KEEP", "DELETE"}
    assert google.roles(f"b/{BUCKET}") == {("roles/storage.objectAdmin", MEMBER)}
    owner = ("roles/owner", "user:me@x.com")
    assert google.roles(OWN) == {owner, ("roles/logging.logWriter", MEMBER)}

    job = load_job(digits).job
    assert (job.project, job.bucket, job.service_account) == (PROJECT, f"gs://{BUCKET}", ACCOUNT)
    assert job.image.repository == f"us-central1-docker.pkg.dev/{PROJECT}/distlaunch/digits"
    assert "# Where it runs on Google Cloud." in (digits / "distlaunch.yaml").read_text()

    before = google.state()
    again = setup("--yes", "--json")
    assert [each["state"] for each in load_checked("setup", again.out)["resources"]] == [
        "exists"
    ] * 7
    assert google.state() == before


def test_a_failed_step_is_named_and_the_next_run_continues(google, setup):
    google.failures = {"create_repository": 403}
    failed = setup("--yes")
    assert failed.code == 1
    assert f"set up bucket gs://{BUCKET}" in failed.err
    where = f"repository us-central1-docker.pkg.dev/{PROJECT}/distlaunch: "
    assert f"error: {where}Google refuses (PERMISSION_DENIED)" in failed.err
    assert "--role=roles/artifactregistry.admin" in failed.err
    assert "3 of 8 steps are done, and the same command continues" in failed.err
    google.failures = {}
    done = setup("--yes")
    assert done.code == 0, done.err
    assert "set up bucket" not in done.err
    assert "set up repository" in done.err
    assert f'{PROJECT}-distlaunch"' in google.state()


def test_an_operation_that_fails_is_reported(google, setup):
    error = {"code": 9, "message": "Billing must be enabled."}
    name = "operations/acf.p2-1"
    google.answers = {name: {"name": name, "done": True, "error": error}}
    failed = setup("--yes")
    assert (failed.code, "APIs aiplatform" in failed.err) == (1, True)
    assert "Google refuses (9): Billing must be enabled" in failed.err
    assert "1 of 8 steps are done" in failed.err
    assert google.buckets == {}


@pytest.mark.parametrize(
    ("regions", "location"),
    [
        ("us-central1", "us-central1"),
        ("us-central1, northamerica-northeast1", "us"),
        ("australia-southeast1, asia-southeast1", "asia"),
        ("me-west1, europe-west1", "eu"),
    ],
)
def test_the_bucket_is_near_all_regions(google, setup, regions, location):
    region = regions.partition(",")[0]
    assert setup("--yes", "--region", region, "--set", f"scheduling.regions=[{regions}]").code == 0
    assert google.buckets[BUCKET]["location"] == location


def test_the_region_and_the_roles_follow_the_job(google, setup, digits):
    board = f"tensorboard={OWN}/locations/europe-west4/tensorboards/1"
    regions = "scheduling.regions=[europe-west4, europe-west1]"
    done = setup("--yes", "--region", "europe-west4", "--set", board, "--set", regions)
    assert done.code == 0, done.err
    job = load_job(digits).job
    assert (job.region, google.buckets[BUCKET]["location"]) == ("europe-west4", "eu")
    assert job.image.repository.startswith("europe-west4-docker.pkg.dev/")
    assert google.roles(OWN) == {(LOGS, MEMBER), ("roles/aiplatform.user", MEMBER)}


@pytest.mark.parametrize("resource", [OWN, f"b/{BUCKET}"])
def test_roles_of_others_and_changes_at_the_same_time_are_kept(resource, google, setup, teardown):
    google.buckets[BUCKET] = theirs = bucket(BUCKET, team="vision")
    for role in (OBJECTS, LOGS):
        google.grant(resource, role, "user:other@x.com")
        google.grant(resource, role, MEMBER, condition="request.time < timestamp('2027-01-01')")
    others = google.policies[resource]["bindings"]
    late, later = ("roles/viewer", "user:late@x.com"), ("roles/editor", "user:later@x.com")
    google.changes[resource] = late
    assert setup("--yes").code == 0
    assert (late in google.roles(resource), google.changes) == (True, {})
    created = {*google.roles(OWN), *google.roles(f"b/{BUCKET}")}
    assert {role for role, member in created if member == MEMBER} >= {OBJECTS, LOGS}

    google.changes[resource] = later
    done = teardown("--yes")
    assert (done.code, google.changes) == (0, {}), done.err
    assert google.buckets[BUCKET] == theirs
    new = [{"role": role, "members": [member]} for role, member in (late, later)]
    assert sorted(google.policies[resource]["bindings"], key=str) == sorted(
        [*others, *new], key=str
    )


def test_teardown_removes_what_setup_created_and_nothing_else(google, setup, teardown):
    google.buckets["theirs"] = bucket("theirs")
    google.accounts["other@x"] = {"email": "other@x"}
    before = google.state()
    enabled = {*google.enabled}
    assert setup("--yes").code == 0
    google.machines = [{"name": f"{OWN}/locations/us-central1/persistentResources/warm-1"}]
    google.repositories[REPOSITORY]["sizeBytes"] = "3400000000"
    plan = teardown("--dry-run")
    assert (plan.code, "3.4 GB" in plan.out) == (0, True)
    assert "distlaunch machines down warm-1" in plan.out
    assert "kept: APIs stay enabled" in plan.out

    google.jobs["customJobs"] = [
        active(1, {}, labels={"distlaunch-launch": "digits-1"}),
        active(2, {"serviceAccount": ACCOUNT}),
        active(3, {"baseOutputDirectory": {"outputUriPrefix": f"gs://{BUCKET}/x"}}),
        active(4, {"baseOutputDirectory": {"outputUriPrefix": f"gs://{BUCKET}-2/x"}}),
    ]
    refused = teardown("--yes")
    assert (refused.code, "active jobs: digits-1, 2 and 3;" in refused.err) == (1, True)
    assert ACCOUNT in google.accounts
    google.jobs.clear()

    google.objects[BUCKET] = {"digits/1/model/model.keras": 5_000, "digits/1/logs/": 0}
    kept = teardown("--yes", "--json")
    states = {each["kind"]: each for each in load_checked("teardown", kept.out)["resources"]}
    assert states["bucket"]["state"].startswith("kept: holds files")
    assert ([*google.accounts], google.repositories) == (["other@x"], {})
    assert google.roles(f"b/{BUCKET}") == set()

    plan = teardown("--delete-data", "--dry-run")
    assert f"gs://{BUCKET} has digits/" in plan.out
    done = teardown("--yes", "--delete-data")
    assert done.code == 0, done.err
    google.enabled, google.objects = enabled, {}
    assert google.state() == before
    assert "nothing to remove" in teardown("--yes").err


def active(number, spec, **fields):
    name = f"{OWN}/locations/us-central1/customJobs/{number}"
    return {"name": name, "state": "JOB_STATE_RUNNING", "jobSpec": spec, **fields}


def test_files_that_come_after_the_plan_are_kept(google, setup, teardown):
    assert setup("--yes").code == 0

    def list_jobs():  # the last call of the plan
        google.objects[BUCKET] = {"digits/model.keras": 5}
        return {}

    google.answers = {"/persistentResources": list_jobs}
    done = teardown("--yes")
    assert (done.code, "not empty" in done.err) == (1, True)
    assert google.objects[BUCKET] == {"digits/model.keras": 5}


def test_copied_labels_and_other_projects_are_not_torn_down(google, setup, teardown, digits):
    assert setup("--yes").code == 0
    for resources in (google.buckets, google.repositories, google.accounts):
        (made,) = resources.values()
        resources["copy"] = {**made, "name": "copy"}
    google.accounts["copy@demo-project.iam.gserviceaccount.com"] = google.accounts["copy"]
    labels = {"created-by-distlaunch-setup": "elsewhere"}
    google.buckets["elsewhere"] = bucket("elsewhere", number="42", **labels)
    foreign = "distlaunch@other-project.iam.gserviceaccount.com"
    description = f"created by distlaunch setup: {foreign}"
    google.accounts[foreign] = {"email": foreign, "description": description}
    before = google.state()
    foreign = ("bucket=gs://elsewhere", f"service_account={foreign}")
    repository = f"image.repository=us-central1-docker.pkg.dev/{PROJECT}/copy/digits"
    copied = ("bucket=gs://copy", "service_account=copy@demo-project.iam.gserviceaccount.com")
    for values in ((*foreign, repository), (*copied, repository)):
        words = [word for value in values for word in ("--set", value)]
        done = teardown("--yes", "--delete-data", *words)
        assert (done.code, "nothing to remove" in done.err) == (0, True), done.out
        assert google.state() == before
    done = setup("--yes", *[word for value in foreign for word in ("--set", value)])
    assert "leaves its roles as they are" in done.out
    assert google.state() == before


def test_a_derived_bucket_in_another_project_is_refused(google, setup, digits):
    google.buckets[BUCKET] = bucket(BUCKET, number="42")
    text = (digits / "distlaunch.yaml").read_text()
    refused = setup("--yes")
    assert refused.code == 1
    assert f"error: gs://{BUCKET}: in another project than {PROJECT}; set another" in refused.err
    assert (digits / "distlaunch.yaml").read_text() == text
    google.failures = {"bucket": 403}
    assert "if the name is taken by another project" in setup("--yes").err


CREATED = ("enable", "create_bucket", "create_repository", "create_account", "write_policy")
DELETED = ("delete_account", "delete_repository", "delete_object", "delete_bucket", "write_policy")


def test_lost_responses_are_no_failures(google, setup, teardown):
    before = google.state()
    enabled = {*google.enabled}
    google.lost = {*CREATED}
    done = setup("--yes")
    assert (done.code, google.lost) == (0, set()), done.err
    google.objects[BUCKET] = dict.fromkeys(map(str, range(40)), 1)
    google.lost = {*DELETED}
    done = teardown("--yes", "--delete-data")
    assert (done.code, google.lost) == (0, set()), done.err
    google.enabled = enabled
    assert google.state() == before


def test_roles_of_earlier_settings_are_removed(google, setup, teardown):
    board = f"tensorboard={OWN}/locations/us-central1/tensorboards/1"
    assert setup("--yes", "--set", board).code == 0
    assert teardown("--yes").code == 0
    assert google.roles(OWN) == set()


def test_the_cli_names_another_project_than_the_file(google, setup, run, digits):
    file = digits / "distlaunch.yaml"
    text = file.read_text()
    file.write_text(text.replace("my-project", "team-project"))
    refused = setup("--yes")
    assert refused.code == 1
    assert f"the file has project: team-project, and not {PROJECT}" in refused.err
    lines = [line for line in text.splitlines() if not line.startswith("project:")]
    file.write_text("\n".join(lines))
    assert setup("--yes").code == 0
    assert load_job(digits).job.project == PROJECT
    text = file.read_text().replace(f"project: {PROJECT}\n", "")
    file.write_text(text)
    assert setup("--yes").code == 0
    assert file.read_text() == text
    number = run("setup", "--project", "123456789012", cwd=digits)
    assert "123456789012: not a project's id" in number.err


def test_cloud_build_gets_its_api(google, setup):
    assert setup("--yes", "--set", "image.builder=cloud-build").code == 0
    assert "cloudbuild" in google.enabled


def test_the_file_cannot_be_written(google, setup, digits):
    file = digits / "distlaunch.yaml"
    file.rename(digits / "other.yaml")
    file.symlink_to("other.yaml")
    before = google.state()
    failed = setup("--yes")
    assert (failed.code, google.state()) == (1, before)
    assert "distlaunch.yaml: cannot be written" in failed.err
    assert "set these keys by hand" in failed.err


def test_what_others_created_is_used_and_kept(google, setup, teardown, digits):
    file = digits / "distlaunch.yaml"
    text = file.read_text().replace("my-project", PROJECT).replace("gs://my-bucket", "gs://ours/x")
    file.write_text(f"{text}\nservice_account: trainer@{PROJECT}.iam.gserviceaccount.com\n")
    written = file.read_text()
    google.enabled |= {"artifactregistry", "iam"}
    google.buckets["ours"] = bucket("ours")
    google.repositories["training"] = {"name": "training"}
    google.accounts[f"trainer@{PROJECT}.iam.gserviceaccount.com"] = {"description": "of ours"}
    done = setup("--yes")
    assert done.code == 0, done.err
    assert "leaves its roles as they are" in done.out
    assert "cleanup policy" not in done.out
    assert (google.policies, file.read_text()) == ({}, written)
    before = google.state()
    done = teardown("--yes", "--delete-data")
    assert done.out.count("kept: not created by setup") == 3
    assert google.state() == before


def test_the_caller_gets_the_role_to_use_the_account(google, setup, tmp_path):
    google.without = ["iam.serviceAccounts.actAs"]
    failed = setup("--yes")
    assert (failed.code, "the credentials do not name your account" in failed.err) == (1, True)
    assert f"gcloud iam service-accounts add-iam-policy-binding {ACCOUNT}" in failed.err
    (tmp_path / "credentials.json").write_text(json.dumps(CREDENTIALS | {"account": "me@x.com"}))
    assert setup("--yes").code == 0
    assert google.roles(f"projects/-/serviceAccounts/{ACCOUNT}") == {
        ("roles/iam.serviceAccountUser", "user:me@x.com")
    }


@pytest.mark.parametrize(("answer", "code"), [("n", 130), ("y", 0)])
def test_the_plan_is_confirmed_on_a_terminal(answer, code, google, setup, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    done = setup()
    assert (done.code, bool(google.buckets)) == (code, code == 0)
    assert done.out.index("billed by stored GB") < done.out.index("set bucket: gs://")


def test_usage(google, setup, teardown, run, digits):
    assert setup().code == 2
    plan = load_checked("setup", setup("--json").out)
    assert plan["dry_run"]
    assert google.buckets == {}
    assert "pass --yes" in setup().err
    assert google.enabled == {"serviceusage", "storage", "oauth2"}
    assert teardown("--set", "engine=slurm").code == 2
    no_project = run("setup", cwd=digits)
    assert (no_project.code, "no project set" in no_project.err) == (1, True)
