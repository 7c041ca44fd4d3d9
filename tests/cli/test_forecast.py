"""`distlaunch forecast` on recorded summaries; the law trains for real."""

from __future__ import annotations

import json

import pytest

# The steps of benchmarks/images on a machine with two cores: `small` and `wide`, in ms.
MEASURED = {
    "small-1": (1, 51_240, 0.555, 4.663, 0.0, 0.0),
    "small-2": (2, 51_240, 0.203, 4.58, 0.982, 0.937),
    "wide-1": (1, 481_448, 0.32, 69.851, 0.0, 0.0),
    "wide-2": (2, 481_448, 0.196, 69.409, 1.023, 0.908),
}


@pytest.fixture
def project(tmp_path):
    for name in MEASURED:
        write_run(tmp_path, name)
    return tmp_path


def write_run(project, name, **changes):
    """Write the record and the summary of a run, as the trainer does."""
    tasks, size, *parts = MEASURED[name]
    seconds = {part: ms / 1000 for part, ms in zip(PARTS, parts, strict=True)}
    timing = {"steps": 40, "total": sum(seconds.values()), **seconds, "slowest": {}, "tasks": {}}
    epoch = {"timing": timing}
    summary = {
        "tasks": ["chief", "worker:0", "worker:1"][:tasks],
        "replicas": tasks,
        "global_batch": 64 * tasks,
        "steps_per_epoch": 40,
        "examples_per_epoch": 60_000,
        "epochs": [epoch, epoch, epoch],
        "timing": timing,
        "gradient_bytes": size,
        "machine": {"cpus": 1, "gpus": [], "memory_bytes": 8 << 30},
    }
    folder = project / ".distlaunch/local" / name
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary | changes))
    record = {"id": name, "started": "2026-11-23T12:00:00Z", "ended": "2026-11-23T12:01:00Z"}
    record |= {"state": "SUCCEEDED", "exit_code": 0, "job_dir": str(folder)}
    record |= {"machine": f"{tasks} cores, no GPU", "cluster": {"chief": 1}}
    (folder / "run.json").write_text(json.dumps(record))


PARTS = ("input", "compute", "exchange", "wait")


def test_a_run_tells_time_and_money_of_clusters(run, project):
    done = run("forecast", "wide-1", "--machine", "n1-standard-4", "--workers", "1,4", cwd=project)
    assert done.code == 0, done.err
    head, one, four, *_ = done.out.splitlines()
    assert head.split() == [
        "machine",
        "workers",
        "rows",
        "step",
        "ms",
        "examples/s",
        "time",
        "money",
    ]
    assert one.split()[:3] == ["n1-standard-4", "1", "64"]
    assert four.split()[:3] == ["n1-standard-4", "4", "64"]
    assert "exchange: documented limit of 10 Gbit/s" in done.out
    assert "list prices of 20" in done.out
