"""Print the runs that W&B, offline, and MLflow recorded in a folder, as JSON.

A process of its own: pytest turns warnings into errors, also those of these packages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from wandb.proto import wandb_internal_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK, HEADER = 1 << 15, 7  # of LevelDB's log format, which is behind W&B's own header
LAST_PARTS = (1, 4)  # types of parts: a whole record, the last part of one


def wandb_records(path: Path) -> Iterator[Any]:
    content, at, record = path.read_bytes(), HEADER, b""
    while at + HEADER < len(content):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        at += HEADER
        record += content[at : at + size]
        at += size
        if kind in LAST_PARTS:
            yield wandb_internal_pb2.Record.FromString(record)
            record = b""


def wandb_attempt(path: Path) -> dict[str, Any]:
    attempt: dict[str, Any] = {"history": [], "exit_code": None}
    for record in wandb_records(path):
        if record.HasField("run"):
            run = record.run
            config = {item.key: json.loads(item.value_json) for item in run.config.update}
            attempt |= {"id": run.run_id, "name": run.display_name, "config": config}
        elif record.HasField("history"):
            row = {
                "/".join([*item.nested_key] or [item.key]): json.loads(item.value_json)
                for item in record.history.item
            }
            attempt["history"].append({k: v for k, v in row.items() if not k.startswith("_")})
        elif record.HasField("exit"):
            attempt["exit_code"] = record.exit.exit_code
    return attempt


def mlflow_run(client: mlflow.MlflowClient, run: Any) -> dict[str, Any]:
    metrics = {
        name: [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    info = {"name": run.info.run_name, "status": run.info.status}
    return info | {"metrics": metrics, "params": run.data.params, "tags": run.data.tags}


def main() -> None:
    folder = Path(sys.argv[1])
    attempts = [wandb_attempt(path) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]
    runs = []
    if (folder / "mlflow.db").exists():
        client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
        ids = [experiment.experiment_id for experiment in client.search_experiments()]
        runs = [mlflow_run(client, run) for run in client.search_runs(ids)]
    print(json.dumps({"wandb": attempts, "mlflow": runs}))


if __name__ == "__main__":
    main()
