"""`distlaunch check` and the plan that `submit` shows: what a person and a script see."""

from __future__ import annotations

import json
from functools import partial

import pytest

from distlaunch.emulator.emulator import Emulator

JOB_FILE = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trainer
image: {uri: "localhost:5000/digits:1"}
cluster:
  chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
  workers: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}, count: 3}
scheduling: {timeout: 10h}
"""
T4 = " with 1 NVIDIA_TESLA_T4"
TOO_MANY = "cluster.workers.accelerator.count=3"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / "distlaunch.yaml").write_text(JOB_FILE)
    (folder / "trainer.py").write_text("print('trained')\n")
    return folder


@pytest.fixture
def check(run, project):
    def run_here(*words, command="check"):
        return run(command, *words, cwd=project)

    return run_here


@pytest.fixture
def offline(check):
    return partial(check, "--offline")


def problems(done):
    return {problem["code"]: problem for problem in json.loads(done.out)["problems"]}


def test_the_plan_is_one_screen_that_ends_with_the_verdict(offline):
    done = offline()
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:3] == [
        "digits: 4 tasks: chief + 3 workers in us-central1, project demo-project",
        "cluster    chief    1 x n1-standard-8 with 1 NVIDIA_TESLA_T4",
        "           workers  3 x n1-standard-8 with 1 NVIDIA_TESLA_T4",
    ]
    assert "image      localhost:5000/digits:1" in lines
    assert lines[-1] == "ready"
    assert len(lines) < 24


def test_an_error_has_location_remedy_and_code_and_is_exit_code_1(offline):
    done = offline("--set", TOO_MANY)
    assert done.code == 1
    first, second, *warning = done.out.splitlines()[-7:-3]
    assert first.startswith("error      --set cluster.workers.accelerator.count: ")
    assert first.endswith("n1-standard-8 takes 1, 2 or 4 NVIDIA_TESLA_T4, not 3")
    assert second.endswith("[accelerator-count]")
    assert warning[1].endswith("[accelerators-unequal]")
    more = "more about a problem: distlaunch docs accelerator-count"
    assert done.out.endswith(f"\n\nnot ready: 1 error, 1 warning\n{more}\n")
    problem = problems(offline("--json", "--set", TOO_MANY))["accelerator-count"]
    assert (problem["severity"], bool(problem["remedy"])) == ("error", True)


@pytest.fixture
def check_at_google(check, project, google, monkeypatch):
    """Run `check` with a fake Google."""

    def run_there(*words, **knobs):
        google(**knobs)
        monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
        return check(*words)

    return run_there


def test_project_and_price_come_from_google(check_at_google):
    done = check_at_google("--json", "--compare-machines")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert {problem["where"] for problem in report["problems"]} <= {"localhost:5000/digits:1"}
    assert report["price"]["an_hour"] is not None
    machines = [machine["machine"] for machine in report["machines"] if machine["is_own"]]
    assert machines == ["n1-standard-8"]
    done = check_at_google("--json", limits={"cpus": 8})
    assert (done.code, "quota-too-low" in problems(done)) == (1, True)


def test_at_an_emulator_one_line_names_the_checks_that_were_skipped(check, offline):
    words = ("--endpoint=http://127.0.0.1:9",)
    done = check(*words)
    assert done.code == 0
    assert [line for line in done.out.splitlines() if "skipped" in line] == [
        "cloud      an emulator, which bills nothing; checks of project, bucket and quotas skipped"
    ]
    assert json.loads(check(*words, "--json").out) == json.loads(offline("--json").out)


def test_without_credentials_the_rest_is_checked(check, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/at/all.json")
    done = check("--json")
    problem = problems(done)["no-credentials"]
    assert (done.code, problem["severity"]) == (0, "warning")
    assert "/nowhere/at/all.json" in problem["what"]
    done = check("--set", TOO_MANY, command="submit")
    assert done.code == 1
    assert "[accelerator-count]" in done.err
    assert "[no-credentials]" in done.err
    done = check(command="submit")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("distlaunch: error: /nowhere/at/all.json: ")


def test_submit_refuses_what_check_refuses_and_creates_nothing(check, project):
    with Emulator(project_dir=project) as emulator:
        words = ("--detach", "--set", TOO_MANY, "--endpoint", emulator.url)
        done = check(*words, command="submit")
        as_json = check(*words, "--json", command="submit")
        assert check("--endpoint", emulator.url, "--all", command="list").out == ""
    assert (done.code, done.out) == (1, "")
    assert "distlaunch: error: --set cluster.workers.accelerator.count: " in done.err
    assert "[accelerator-count]" in done.err
    assert "nothing was built or submitted; use --no-check to submit anyway" in done.err
    assert done.err.count("more about a problem: distlaunch docs accelerator-count\n") == 1
    assert json.loads(as_json.out)["event"] == "refused"
    assert "accelerator-count" in problems(as_json)


def test_no_check_submits_in_spite_of_errors(check, google):
    fake = google(limits={"cpus": 8})
    assert check("--detach", command="submit").code == 1
    done = check("--detach", "--no-check", command="submit")
    assert done.code == 0
    assert "distlaunch: not checked" in done.err.splitlines()
    assert len(fake.jobs["customJobs"]) == 1


def test_the_prices_and_the_catalogue_of_a_project(offline, project):
    assert offline("--set", TOO_MANY).code == 1
    (project / "distlaunch.catalogue.yaml").write_text(
        "machines: {n1-standard-8: {accelerators: {NVIDIA_TESLA_T4: [1, 3]}}}\n"
    )
    assert offline("--set", TOO_MANY).code == 0
    (project / "distlaunch.prices.yaml").write_text("us-central1: {STANDARD: {n1-standard-8: x}}\n")
    done = offline()
    assert done.code == 1
    assert done.err.startswith("distlaunch: error: distlaunch.prices.yaml:1:")
    assert set(problems(offline("--json"))) == {"job-file-invalid"}


def test_a_file_that_cannot_be_read_is_a_problem_in_json(check, offline, project):
    (project / "distlaunch.yaml").write_text(JOB_FILE.replace("count: 3", "count: three"))
    done = offline()
    location = "distlaunch.yaml:9:92"
    assert done.code == 1
    assert done.err.startswith(f"distlaunch: error: {location}: cluster.workers.count")
    done = offline("--json")
    report = json.loads(done.out)
    assert (done.code, done.err, report["ready"]) == (1, "", False)
    [problem] = report["problems"]
    assert (problem["code"], problem["where"]) == ("job-file-invalid", location)
    assert problem["what"].startswith("cluster.workers.count: expected a whole number")
    other = check("--json", "--image=x/y:1", "--config=no")
    assert report.keys() == json.loads(other.out).keys()


def test_a_job_that_may_cost_more_than_allowed_is_refused(offline, check):
    refused = offline("--max-cost=20")
    assert refused.code == 1
    assert "error      --max-cost: the price for its timeout of 10 h is " in refused.out
    assert "above 20.00 USD\n           add --fit-timeout for " in refused.out
    assert offline("--max-cost=1000").code == 0
    assert check("--max-cost=20", command="submit").err.endswith("nothing was built or submitted\n")
    insisting = check("--no-check", "--detach", "--max-cost=20", command="submit")
    assert insisting.code == 1
    assert "[max-cost-exceeded]" in insisting.err
    assert insisting.err.endswith("distlaunch: error: nothing was built or submitted\n")
    fitting = check("--dry-run", "--no-check", "--max-cost=20", "--fit-timeout", command="submit")
    assert fitting.code == 0
    assert "warning: timeout shortened from 10 h to " in fitting.err
    timeout = int(json.loads(fitting.out)["jobSpec"]["scheduling"]["timeout"].removesuffix("s"))
    assert 3600 < timeout < 36000
    for amount in ("0", "nan", "inf"):
        assert offline(f"--max-cost={amount}", "--fit-timeout").code == 2
    assert "--fit-timeout needs a limit" in offline("--fit-timeout").err


def test_all_trials_count_and_an_unknown_price_or_slurm_is_refused(offline, project):
    tuning = (
        "{metric: accuracy, goal: maximize, trials: 9, parameters: {rate: {min: 0.0, max: 1.0}}}"
    )
    limit = "--set=scheduling.max_cost=100"
    assert offline(limit).code == 0
    tuned = problems(offline(limit, f"--set=tuning={tuning}", "--json"))
    assert "for 9 trials of up to 10 h is " in tuned["max-cost-exceeded"]["what"]
    (project / "distlaunch.prices.yaml").write_text("currency: EUR\n")
    assert problems(offline(limit, "--json"))["max-cost-unknown"]["where"].startswith("--set")
    slurm = offline("--engine=slurm", "--set=slurm.folder=/tmp", limit, "--json")
    assert "jobs on Slurm have no price" in problems(slurm)["max-cost-unknown"]["what"]


def test_each_choice_of_machines_and_regions_is_shown_with_its_price(offline, check, google):
    machines = (
        "--set=scheduling.machines=[{machine: g2-standard-8, accelerator: {type: NVIDIA_L4}}, "
        "{workers: {machine: n1-standard-16, accelerator: {type: NVIDIA_TESLA_T4}}}]"
    )
    regions = "--set=scheduling.regions=[us-central1, europe-west4]"
    done = offline(machines, regions)
    assert done.code == 0, done.out
    rows = [line[11:] for line in done.out.splitlines() if " in all" in line]
    assert [row.partition(":")[0] for row in rows] == [
        f"{number}. {pools} in {region}"
        for number, (region, pools) in enumerate(
            (
                (region, pools)
                for region in ("us-central1", "europe-west4")
                for pools in (
                    f"n1-standard-8{T4}",
                    "g2-standard-8 with 1 NVIDIA_L4",
                    f"n1-standard-8{T4} and n1-standard-16{T4}",
                )
            ),
            1,
        )
    ]
    assert len({row.partition(": ")[2] for row in rows}) == 6
    report = json.loads(offline(machines, regions, "--json").out)
    assert report["choices"][0]["price"] == report["price"]
    wrong = problems(offline(machines.replace("g2-standard-8", "n1-highmem-96"), "--json"))
    assert wrong["accelerator-not-on-machine"]["where"].startswith("--set scheduling.machines")
    google(limits={"nvidia_l4_gpus": 2})
    low = problems(check(machines, "--json"))["quota-too-low"]
    assert (low["severity"], low["where"]) == (
        "warning",
        "quota custom_model_training_nvidia_l4_gpus",
    )


def test_each_region_to_which_a_job_may_be_moved_is_checked_once(offline):
    board = "--set=tensorboard=projects/123/locations/us-central1/tensorboards/456"
    account = "--set=service_account=a@demo-project.iam.gserviceaccount.com"
    regions = "--set=scheduling.regions=[us-east4, us-west9]"
    machines = "--set=scheduling.machines=[{machine: n1-standard-16}]"
    found = json.loads(offline(board, account, regions, machines, "--json").out)["problems"]
    moves = [each["what"] for each in found if each["code"] == "tensorboard-region"]
    assert [what.rpartition(" ")[2] for what in moves] == ["us-east4", "us-west9"]
    [unknown] = [each["where"] for each in found if each["code"] == "region-unknown"]
    assert unknown.endswith("scheduling.regions")


def test_a_job_that_is_submitted_again_keeps_the_limit(check, project):
    with Emulator(project_dir=project) as emulator:
        at = ("--endpoint", emulator.url, "--detach", "--new")
        assert check(*at, "--no-check", command="submit").code == 0
        refused = check(*at, "--max-cost=20", command="resubmit")
        assert refused.code == 1
        assert "--max-cost: the price for its timeout of 10 h is " in refused.err
        ignored = check(*at, "--set=scheduling.max_cost=20", command="resubmit")
        assert ignored.code == 2
        assert "a job that exists takes --max-cost" in ignored.err
        assert check(*at, "--max-cost=100", command="resubmit").code == 0


def test_the_zone_of_a_reservation_is_looked_up(check, google):
    items = {f"zones/us-central1-{zone}": {} for zone in "ab"}
    items["zones/us-central1-c"] = {"reservations": [{"name": "gpus"}]}
    t4 = {"acceleratorType": "x/nvidia-tesla-t4", "acceleratorCount": 1}
    properties = {"machineType": "n1-standard-8", "guestAccelerators": [t4]}
    reserved = {
        "status": "READY",
        "specificReservation": {"count": "4", "instanceProperties": properties},
        "reservationSharingPolicy": {"serviceShareType": "ALLOW_ALL"},
    }
    answers = {"/aggregated/reservations": {"items": items}, "/reservations/gpus": reserved}
    fake = google(answers=answers)
    gpus = "--set=reservation=gpus"
    assert check(gpus).code == 0
    done = check(gpus, "--detach", command="submit")
    assert done.code == 0, done.err
    [job] = fake.jobs["customJobs"]
    machine = job["jobSpec"]["workerPoolSpecs"][1]["machineSpec"]
    full_name = "projects/demo-project/zones/us-central1-c/reservations/gpus"
    assert machine["reservationAffinity"]["values"] == [full_name]
    items["zones/us-central1-b"] = {"reservations": [{"name": "gpus"}]}
    twice = check(gpus, "--detach", "--no-check", "--new", command="submit")
    assert twice.code == 1
    assert "reservation gpus is in us-central1-b and us-central1-c; write ZONE/gpus" in twice.err
    assert len(fake.jobs["customJobs"]) == 1
