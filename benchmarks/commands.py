"""`status`, `list` and `cancel` against gcloud's: `python benchmarks/commands.py`.

Seconds from the start of the process to its end, both at a server on this machine that answers in
Vertex AI's place, without credentials. The commands alternate, so that a busy machine is busy for
all; the medians and their ratios are printed, and a ratio above the limit is exit code 1. It needs
gcloud.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from common import Limit, alternate, options, show, verdict

import distlaunch

MOST = 0.5
COMMANDS = {"status": "describe", "list": "list", "cancel": "cancel"}
NAME = "projects/1/locations/us-central1/customJobs/77"
JOB = {
    "name": NAME,
    "displayName": "digits",
    "state": "JOB_STATE_RUNNING",
    "createTime": "2026-11-21T17:00:00Z",
    "labels": {"distlaunch-launch": "digits-20261121-170000-3f9a"},
    "jobSpec": {
        "workerPoolSpecs": [{"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1"}]
    },
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._send(JOB if self.path.partition("?")[0].endswith("/77") else {"customJobs": [JOB]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send({})

    def _send(self, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    rounds = options("status, list and cancel against gcloud's", rounds=10).parse_args().rounds
    if shutil.which("gcloud") is None:
        raise SystemExit("gcloud is not installed, so there is nothing to compare with")
    compileall.compile_dir(Path(distlaunch.__file__).parent, quiet=2)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory() as folder:
        ways = {}
        for ours, theirs in COMMANDS.items():
            ways[f"distlaunch {ours}"] = partial(seconds, of_distlaunch(ours, endpoint), folder)
            ways[f"gcloud {theirs}"] = partial(seconds, of_gcloud(theirs, endpoint), folder)
        figures = alternate(ways, rounds)
    show(figures, "s", digits=2)
    limits = [
        Limit(f"distlaunch {ours}", f"gcloud {theirs}", most=MOST)
        for ours, theirs in COMMANDS.items()
    ]
    return verdict(figures, *limits)


def of_distlaunch(command: str, endpoint: str) -> list[str]:
    """Return a command line of ours, with no variables before it."""
    job = [] if command == "list" else ["77"]
    place = ["--endpoint", endpoint, "--project", "p", "--region", "us-central1"]
    return [sys.executable, "-m", "distlaunch", command, *job, *place]


def of_gcloud(command: str, endpoint: str) -> list[str]:
    """Return a command line of gcloud's, with the variables that lead it to the endpoint."""
    job = [] if command == "list" else ["77"]
    place = ["--project", "p", "--region", "us-central1"]
    variables = [
        f"CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM={endpoint}/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS=1",
    ]
    return ["env", *variables, "gcloud", "ai", "custom-jobs", command, *job, *place]


def seconds(command: list[str], folder: str, number: int) -> float:  # noqa: ARG001
    """Return how long a command takes, in an empty folder and without a configuration."""
    environment = os.environ | {"CLOUDSDK_CONFIG": folder}
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: code {done.returncode}\n{done.stderr}")
    return took


if __name__ == "__main__":
    sys.exit(main())
