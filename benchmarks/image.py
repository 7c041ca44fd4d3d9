"""A change of code until a registry has it, against docker's: `python benchmarks/image.py`.

The project that `init` makes, with TensorFlow, and 100 files more (1.3 MB); a line of code changes.
Measured are the seconds from the start of the process until the image is there, and the bytes on
the wire. `distlaunch build` is held against `docker build` and `docker push` of the Dockerfile that
`distlaunch render` writes; once with an engine that has built it before (warm), once with one that
has no more of it than Debian and Python (cold), as a CI runner has. They alternate, so that a busy
machine is busy for all. The medians and their ratios are printed, and a ratio below its limit is
exit code 1. It needs root, and the Debian packages of tests/engine.py, which it installs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from common import Limit, alternate, distlaunch, make_project, options, show, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

OURS, WARM, COLD = "distlaunch", "docker, warm", "docker, cold"
LIMITS = (Limit(COLD, OURS, least=50), Limit(WARM, OURS, least=1.4))
LABEL = "distlaunch-bench"
FILES, BYTES = 100, 13_000  # beside what `init` writes
JOB = """\
name: digits
image: {{repository: "{repository}", base: "{base}"}}
cluster: {{chief: {{machine: n1-standard-4}}}}
"""


class Counter:
    """A loopback proxy that counts bytes; `address` is another name for the registry behind it."""

    def __init__(self, registry: str) -> None:
        self.sent = 0
        self.received = 0
        self._port = int(registry.rpartition(":")[2])
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"localhost:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._answer, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):  # the server is closed
            while True:
                caller, _ = self._server.accept()
                behind = socket.create_connection(("127.0.0.1", self._port))
                for way in ((caller, behind, "sent"), (behind, caller, "received")):
                    threading.Thread(target=self._hand_on, args=way, daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                with self._lock:
                    setattr(self, name, getattr(self, name) + len(data))
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        if name == "received":
            source.close()
            target.close()


@dataclass
class Bench:
    """A project, Docker, and a proxy before the registry that counts bytes."""

    engine: engines.Engine
    counter: Counter
    folder: Path
    repository: str
    sent: dict[str, list[float]] = field(default_factory=dict)

    def ours(self, _: int) -> float:
        # There is no Docker at that address.
        return self._measured(
            OURS, lambda: distlaunch(["build"], self.folder, DOCKER_HOST="unix:///no")
        )

    def warm(self, number: int) -> float:
        self.build_and_push(f"{self.repository}:before-{number}")
        image = f"{self.repository}:warm-{number}"
        return self._measured(WARM, lambda: self.build_and_push(image))

    def cold(self, number: int) -> float:
        self.forget()
        image = f"{self.repository}:cold-{number}"
        return self._measured(COLD, lambda: self.build_and_push(image))

    def forget(self) -> None:
        """Take all of it away from the engine."""
        label = f"label={LABEL}={os.getpid()}"
        self._docker("image", "prune", "--all", "--force", "--filter", label)

    def _measured(self, name: str, way: Callable[[], object]) -> float:
        """Change a line, run a way, and keep the bytes that went in either direction."""
        with (self.folder / "trainer/task.py").open("a") as program:
            program.write(f"SEED = {os.urandom(8)!r}\n")
        before, began = (self.counter.sent, self.counter.received), time.perf_counter()
        way()
        seconds = time.perf_counter() - began
        for what, count, start in zip(
            ("up", "down"), (self.counter.sent, self.counter.received), before, strict=True
        ):
            self.sent.setdefault(f"{name}, {what}", []).append((count - start) / 1e6)
        return seconds

    def build_and_push(self, image: str) -> None:
        """Do as a user would who has docker alone."""
        self._docker("build", "--tag", image, ".")
        self._docker("push", image)

    def _docker(self, *words: str) -> str:
        done = self.engine.docker(*words, cwd=self.folder)
        if done.returncode:
            raise SystemExit(f"docker {' '.join(words)}: code {done.returncode}\n{done.stderr}")
        return done.stdout


def main() -> int:
    """Measure and print; return 1 if a limit does not hold."""
    parser = options("code change to pushed image, against docker build and push", rounds=3)
    text = "the line of requirements.txt, in place of the starter's"
    parser.add_argument("--requirements", metavar="LINE", help=text)
    given = parser.parse_args()
    with (
        engines.running(install=True) as engine,
        Counter(engine.registry) as counter,
        tempfile.TemporaryDirectory() as name,
    ):
        bench = prepared(engine, counter, Path(name) / "digits", given.requirements)
        figures = alternate({OURS: bench.ours, WARM: bench.warm, COLD: bench.cold}, given.rounds)
        bench.forget()
    show(figures, "s until it is pushed", digits=2)
    for name, sizes in bench.sent.items():
        print(f"{name:18} {statistics.median(sizes):9,.3f} MB")
    return verdict(figures, *LIMITS)


def prepared(
    engine: engines.Engine, counter: Counter, folder: Path, requirements: str | None
) -> Bench:
    """Write the project, and have the registry get its environment."""
    repository = engine.repository("bench").replace(engine.registry, counter.address)
    base = f"{repository}-base:1"
    bench = Bench(engine, counter, make_project(folder), repository)
    for number in range(FILES):
        text = os.urandom(BYTES // 2).hex()
        (folder / f"trainer/module_{number}.py").write_text(f'TEXT = "{text}"\n')
    if requirements:
        (folder / "requirements.txt").write_text(f"{requirements}\n")
    (folder / "distlaunch.yaml").write_text(JOB.format(repository=repository, base=base))
    # All that comes of it has the label, by which it is found and taken away again.
    (folder / "Dockerfile").write_text(f"FROM {engine.base}\nLABEL {LABEL}={os.getpid()}\n")
    bench.build_and_push(base)
    (folder / "Dockerfile").unlink()
    distlaunch(["build"], folder, **engine.environment)
    distlaunch(["render"], folder)
    return bench


if __name__ == "__main__":
    sys.exit(main())
