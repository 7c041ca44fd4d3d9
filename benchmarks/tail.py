"""The memory that following a long log takes, against a short one: `python benchmarks/tail.py`.

A server on this machine gives the lines of a job page by page, as Cloud Logging does, every tenth
one twice; `distlaunch logs --follow` reads them to the job's end. It is checked that each line
comes out once and in its place. The peak memory of both and the ratio are printed, and a ratio
above the limit is exit code 1.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from common import Limit, alternate, options, show, verdict

from distlaunch import timestamps

LIMIT = Limit("long", "short", most=1.2)
NAME = "projects/1/locations/us-central1/customJobs/77"
PAGE = 1_000
A_SECOND = 500  # lines that the job writes in a second
TWICE = 10  # each line of so many is there a second time


class Job(ThreadingHTTPServer):
    """A job that has written its lines, and ends when the last of them was read."""

    daemon_threads = True

    def __init__(self, lines: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines = lines
        self.began = time.time() - lines / A_SECOND
        self.is_read = False

    def state(self) -> dict[str, object]:
        """Return the job as Vertex AI answers."""
        job = {
            "name": NAME,
            "createTime": timestamps.format(self.began),
            "startTime": timestamps.format(self.began),
            "state": "JOB_STATE_RUNNING",
            "jobSpec": {"workerPoolSpecs": [{"replicaCount": "1"}]},
        }
        if self.is_read:
            job |= {"state": "JOB_STATE_SUCCEEDED", "endTime": timestamps.format(time.time())}
        return job

    def entries(self, query: dict[str, str]) -> bytes:
        """Return a page of lines as Cloud Logging gives them."""
        (since,) = re.findall(r'timestamp>="([^"]*)"', query["filter"])
        first = max(0, int((timestamps.parse(since) - self.began) * A_SECOND))
        first = int(query.get("pageToken") or first)
        last = min(first + PAGE, self.lines)
        written = [self._entry(n) for n in range(first, last)]
        written += [self._entry(n) for n in range(first, last, TWICE)]
        self.is_read |= last == self.lines
        token = f',"nextPageToken":"{last}"' if last < self.lines else ""
        return f'{{"entries":[{",".join(written)}]{token}}}'.encode()

    def _entry(self, number: int) -> str:
        stamp = timestamps.format(self.began + number / A_SECOND)
        return (
            f'{{"insertId":"{number:x}","timestamp":"{stamp}","severity":"INFO",'
            '"resource":{"type":"ml_job","labels":{"job_id":"77","task_name":"workerpool0-0"}},'
            f'"jsonPayload":{{"message":"line {number} of what a task writes"}}}}'
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Job

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._send(json.dumps(self.server.state()).encode())

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(self.server.entries(query))

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> int:
    """Measure and print; return 1 if the limit does not hold."""
    parser = options("memory of following a long log against a short one", rounds=1)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the long one (1,000,000)")
    arguments = parser.parse_args()
    ways = {
        "short": partial(megabytes, arguments.lines // 10),
        "long": partial(megabytes, arguments.lines),
    }
    figures = alternate(ways, arguments.rounds)
    show(figures, f"MB ({arguments.lines // 10:,} and {arguments.lines:,} lines)", digits=1)
    return verdict(figures, LIMIT)


def megabytes(lines: int, number: int) -> float:  # noqa: ARG001 - one round is as another
    """Return the peak memory of following a job with so many lines."""
    job = Job(lines)
    threading.Thread(target=job.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{job.server_address[1]}"
    command = [sys.executable, "-m", "distlaunch", "--quiet", "logs", NAME, "--follow"]
    command += ["--project", "p", "--endpoint", endpoint]
    began, ended = time.perf_counter(), 0.0
    reader, writer = os.pipe()
    process = subprocess.Popen(command, stdout=writer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as out:
        for count in range(lines):
            line = out.readline()
            if line != f"chief  | line {count} of what a task writes\n":
                raise SystemExit(f"line {count} came out as {line!r}")
        ended = time.perf_counter()
        rest = out.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    job.shutdown()
    if rest or status:
        raise SystemExit(f"code {process.returncode}; more lines than were written: {rest[:200]!r}")
    rate = lines / (ended - began)
    print(f"{lines:,} lines: {rate:,.0f} lines/s", file=sys.stderr, flush=True)
    return usage.ru_maxrss / 1024  # kilobytes on Linux


if __name__ == "__main__":
    sys.exit(main())
