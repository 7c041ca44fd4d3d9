"""A job on this machine, attempt after attempt."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError, OutputError
from distlaunch.events import JobFailed, Notice
from distlaunch.failure_reasons import FailureReport, explain
from distlaunch.local.attempt import Attempt
from distlaunch.local.host_resources import has_cpu_tensorflow, share_out, this_machine
from distlaunch.local.ports import HOST, HeldPorts, is_taken
from distlaunch.local.stop_policy import Done, Failure, Stopped
from distlaunch.local.task_folders import collect_files, task_folders
from distlaunch.local.task_plan import PEER_TIMEOUT, common_environment, plan_task
from distlaunch.resources import TENSORFLOW
from distlaunch.stop_signals import StopSignals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.events import Level
    from distlaunch.job.tasks import Task
    from distlaunch.local.run_plan import RunSpec
    from distlaunch.local.stop_policy import Verdict
    from distlaunch.local.task_process import TaskPlan
    from distlaunch.task_files import AttemptFolder
    from distlaunch.ui.progress_view import ProgressView

_NEW_PORTS = 3  # times that a group gets new ports, because another program took one
_PORT_TROUBLE = 2.0 * PEER_TIMEOUT  # seconds; what fails later does not fail for want of a port


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    The code is 0 when the primary task is done, otherwise the first failing task's own; 128 + n for
    signal n, 130 after Ctrl-C, 143 after SIGTERM. `event_files` are those of each attempt's
    training tasks, `has_cluster` is whether a task has listened at its address of TF_CONFIG, and
    `failure` the first failure of the last attempt.
    """

    code: int
    event_files: tuple[Mapping[str, Path], ...] = ()
    has_cluster: bool = True
    failure: FailureReport | None = None  # the last


class Runner:
    """Runs a job, restarting the group of its tasks as often as its specification allows."""

    def __init__(self, spec: RunSpec, view: ProgressView) -> None:
        self._spec = spec
        self._view = view
        self._tasks = spec.cluster.tasks()
        self._is_contained = spec.program.kind == "image"
        self._faults = list(spec.options.faults)
        self._restarts = 0
        self._new_ports_left = _NEW_PORTS
        self._has_cluster = False
        self._failure: FailureReport | None = None
        self._folders: dict[Task, Path] = {}

    def run(self) -> Outcome:
        """Run the job and return how it ended.

        DistlaunchError is raised if it cannot be run at all; BrokenPipeError or OutputError if
        stdout is closed or cannot be written, and the tasks have been stopped.
        """
        self._share_machine()
        try:
            outcome = self._run_attempts()
        except OSError as problem:
            if problem.errno != errno.EMFILE:
                raise
            raise DistlaunchError(
                "too many open files for so many tasks; allow more with 'ulimit -n' or start fewer"
            ) from None
        views = {*self._folders.values()} - {self._spec.work_dir}
        collect_files(sorted(views), self._spec.work_dir)
        if self._faults:
            self._notify(f"fault not triggered: {', '.join(map(str, self._faults))}", "warning")
        return outcome

    def _run_attempts(self) -> Outcome:
        code, event_files = None, []
        with StopSignals(self._view.console.hurry) as signals:
            while code is None:
                folder = self._spec.folder.new_attempt()
                training = [task for task in self._tasks if task.is_training]
                event_files.append({str(task): folder.events(task) for task in training})
                code = self._run_attempt(folder, signals)
        return Outcome(code, tuple(event_files), self._has_cluster, self._failure)

    def _notify(self, text: str, level: Level = "info") -> None:
        self._view.handle(Notice(text, level))

    def _share_machine(self) -> None:
        self._env = common_environment(self._spec)
        machine = this_machine(self._env)
        if self._spec.cores is not None:
            machine = replace(machine, cores=self._spec.cores)
        if machine.gpus and self._runs_without_cuda():
            self._notify(
                f"{machine.describe()}: GPUs are not used, as tensorflow-cpu is installed; remove "
                f"it with pip uninstall, and run pip install 'tensorflow[and-cuda]{TENSORFLOW}'",
                "warning",
            )
            machine = replace(machine, gpus=())
        self._shares = share_out(machine, self._tasks)
        shares = [share for task, share in self._shares.items() if task.is_training]
        per_task = len(shares[0].gpus)
        unused = len(machine.gpus) - per_task * len(shares)
        if unused:
            self._notify(
                f"{machine.describe()} for {len(shares)} training tasks: "
                f"GPUs per task: {per_task}, unused: {unused}",
                "warning",
            )

    def _runs_without_cuda(self) -> bool:
        """Whether tasks get no GPUs, because none were chosen and TensorFlow here has no CUDA."""
        is_chosen = "CUDA_VISIBLE_DEVICES" in self._env
        return not is_chosen and not self._is_contained and has_cpu_tensorflow()

    def _run_attempt(self, folder: AttemptFolder, signals: StopSignals) -> int | None:
        """Run the group once and return the exit code, or None where it is to be restarted."""
        with HeldPorts(len(self._tasks)) as ports:
            attempt = Attempt(
                self._plans(folder, ports.numbers),
                env=os.environ if self._is_contained else self._env,
                folder=folder,
                ports=ports,
                faults=self._faults if self._restarts == 0 else [],
                view=self._view,
                signals=signals,
                debugger=self._spec.debugger,
                can_restart=self._restarts < self._spec.options.restarts,
            )
            verdict = attempt.run()
        self._failure = None  # the tasks of this attempt have not failed
        self._has_cluster = self._has_cluster or attempt.has_cluster
        self._raise_if_output_lost(verdict, attempt)
        if isinstance(verdict, Done):
            return 0
        if isinstance(verdict, Stopped):
            return 128 + (verdict.signal or 0)
        return self._handle_failure(verdict, attempt, ports.numbers)

    def _plans(self, folder: AttemptFolder, ports: tuple[int, ...]) -> dict[Task, TaskPlan]:
        addresses = {task: f"{HOST}:{port}" for task, port in zip(self._tasks, ports, strict=True)}
        self._folders = task_folders(self._spec, self._tasks)
        return {
            task: plan_task(
                self._env,
                self._spec,
                task,
                share,
                work_dir=self._folders[task],
                addresses=addresses,
                attempt=folder,
                restarts=self._restarts,
            )
            for task, share in self._shares.items()
        }

    def _handle_failure(
        self, failure: Failure, attempt: Attempt, ports: tuple[int, ...]
    ) -> int | None:
        """Show a failure and return the exit code, or None where the group is to be restarted."""
        can_restart = attempt.output_problem is None and not attempt.policy.is_interrupted
        is_early = failure.seconds is not None and failure.seconds <= _PORT_TROUBLE
        # A port that another program took shows before any task is ready; later its user is a task.
        may_want_port = can_restart and is_early and attempt.policy.first_ready is None
        taken = list(filter(is_taken, ports)) if may_want_port else []
        if taken:
            self._use_new_ports(taken[0])
            return None
        self._show_failure(failure, attempt)
        if self._restarts == self._spec.options.restarts or not can_restart:
            return failure.ended.exit_code
        reason = attempt.policy.reason_against_restart()
        if reason:
            self._notify(f"not restarted: {reason}")
            return failure.ended.exit_code
        # All of them: a task cannot rejoin a running MultiWorkerMirroredStrategy.
        self._restarts += 1
        self._notify(f"restarting all tasks ({self._restarts} of {self._spec.options.restarts})")
        return None

    def _use_new_ports(self, taken: int) -> None:
        problem = f"another program has taken port {taken} on {HOST}"
        if not self._new_ports_left:
            raise DistlaunchError(
                f"{problem}, and others before; end what takes them and try again"
            )
        self._new_ports_left -= 1
        self._notify(f"{problem}; starting again on new ports", "warning")

    def _raise_if_output_lost(self, verdict: Verdict, attempt: Attempt) -> None:
        """Raise a lost output if it ended the job; show it otherwise."""
        problem = attempt.output_problem
        if problem and verdict == Stopped(None):
            raise problem
        if isinstance(problem, OutputError):
            if verdict == Done():
                raise problem
            self._notify(str(problem), "error")

    def _show_failure(self, failure: Failure, attempt: Attempt) -> None:
        after = "" if failure.seconds is None else f" after {failure.seconds:.1f} s"
        self._notify(f"{failure.task} {failure.ended}{after}", "error")
        for cause in failure.likely:
            self._notify(f"likely cause: {cause}", "warning")
        output = attempt.outputs[failure.task]
        last, name = output.last_lines().rstrip("\n"), str(failure.task)
        code = None if failure.task in attempt.killed else failure.ended.exit_code
        reason = explain(last, exit_code=code)
        report = FailureReport.of(name, reason, last.split("\n"), str(output.log))
        self._failure = report
        is_shown = self._view.is_in_sight(name)
        self._view.handle(JobFailed(report, shows_lines=not is_shown, names_task=False))
        self._notify(f"full log: {output.log}", "error")
