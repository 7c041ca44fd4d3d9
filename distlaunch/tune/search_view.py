"""What is shown of a search: a live table on a terminal, lines elsewhere, and the result."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from decimal import Decimal
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.events import JobChanged, TrialsChanged
from distlaunch.job.trial import INFEASIBLE, SUCCEEDED, argument, best_trial, sort_trials
from distlaunch.text import Table, duration, plural
from distlaunch.ui.progress_view import ProgressView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.events import Event
    from distlaunch.job.trial import Study, Trial, Value
    from distlaunch.ui.console import Console

_HOUR = 3600  # seconds
_MOST_LETTERS = 300  # of a reason in a line; Vertex AI quotes the last lines of the log


class TrialPrice(NamedTuple):
    """The price of an hour of one trial."""

    an_hour: Decimal
    currency: str
    is_estimate: bool


class SearchView:
    """Shows the trials of a search.

    The best trial's options are appended to `train`, the command that trains. `price` is None if it
    is unknown.
    """

    def __init__(
        self,
        console: Console,
        study: Study,
        train: Sequence[str],
        *,
        price: TrialPrice | None = None,
    ) -> None:
        self._console = console
        self._study = study
        self._train = train
        self._price = price
        self._reported: set[int] = set()
        self._is_live = console.has_progress

    def update(self, trials: Sequence[Trial]) -> None:
        """Show trials: the table on a terminal, elsewhere a line for each that has ended."""
        for trial in trials:
            if trial.has_ended and trial.id not in self._reported:
                self._reported.add(trial.id)
                self._report_end(trial)
        if trials:
            ended = sum(trial.has_ended for trial in trials)
            status = f"{ended} of {plural(self._study.trials, 'trial')} done"
            self._console.progress(f"{self.table(trials)}\n{status}")

    def summarise(
        self, trials: Sequence[Trial], *, as_json: bool, job: str, state: str
    ) -> tuple[dict[str, Any], Table]:
        """Print the result on stdout, and return it as ``--json`` has it and as a table."""
        self._console.progress("")
        best, table = best_trial(trials, self._study), self.table(trials)
        data = {
            "job": job,
            "state": state,
            "metric": self._study.metric,
            "goal": self._study.goal,
            "trials": [self._as_json(trial) for trial in sort_trials(trials, self._study)],
            "best": best.id if best else None,
            "command": self._command(best) if best else None,
        }
        if as_json:
            self._console.result(json.dumps(data, ensure_ascii=False))
        elif trials:
            self._console.draw(table)
            if best:
                text = f"\nbest: trial {best.id}; train with its parameters:\n  {data['command']}"
                self._console.result(text)
        return data, table

    def table(self, trials: Sequence[Trial]) -> Table:
        """Return the trials, the best first."""
        names = list(self._study.parameters)
        heads = ["TRIAL", *names, self._study.metric, "STATE", "TIME"]
        rows = [
            [
                str(trial.id),
                *(_short(trial.parameters.get(name, "")) for name in names),
                "" if trial.metric is None else f"{trial.metric:.5g}",
                trial.state,
                "" if trial.seconds is None else duration(trial.seconds),
                *([_money(self._cost(trial), self._price.currency)] if self._price else []),
            ]
            for trial in sort_trials(trials, self._study)
        ]
        cost = "COST (ESTIMATE)" if self._price and self._price.is_estimate else "COST"
        shown = [[*heads, *([cost] if self._price else [])], *rows]
        left_out = [heads.index("TIME"), heads.index("STATE")]
        return Table(shown, flush_left=True, optional=left_out)

    def _report_end(self, trial: Trial) -> None:
        values = ", ".join(f"{name} {_short(value)}" for name, value in trial.parameters.items())
        took = "" if trial.seconds is None else f" after {duration(trial.seconds)}"
        text = f"trial {trial.id} ({values})"
        if trial.state == INFEASIBLE:
            reason = shorten(trial.reason, _MOST_LETTERS, placeholder=" …")
            self._console.log(f"{text}: INFEASIBLE{took}: {reason}", "warning")
        elif not self._is_live:
            number = "not reported" if trial.metric is None else f"{trial.metric:.5g}"
            self._console.log(f"{text}: {self._study.metric} {number}{took}")

    def _command(self, best: Trial) -> str:
        dashes = [] if "--" in self._train else ["--"]
        return shlex.join([*self._train, *dashes, *best.options])

    def _cost(self, trial: Trial) -> Decimal | None:
        if self._price is None or trial.seconds is None:
            return None
        return self._price.an_hour * Decimal(trial.seconds) / _HOUR

    def _as_json(self, trial: Trial) -> dict[str, Any]:
        cost = self._cost(trial)
        return asdict(trial) | {
            "seconds": None if trial.seconds is None else round(trial.seconds, 3),
            "reason": trial.reason or None,
            "cost": None if cost is None else round(float(cost), 6),
            "currency": self._price.currency if self._price else None,
        }


class TuningJobView(ProgressView):
    """Shows a tuning job: its states, and its trials as a table, which is the result, too."""

    shows_lines = shows_result = False

    def __init__(self, console: Console, job: str, search: SearchView) -> None:
        super().__init__(console, ["chief"])
        self._job = job  # its id
        self._search = search
        self._trials: tuple[Trial, ...] = ()
        self._job_state = ""

    def submitted(self, facts: Mapping[str, str | None]) -> None:
        self._job = str(facts["job"])  # a job that is moved has another id

    def summarise_search(self, *, as_json: bool) -> tuple[dict[str, Any], Table]:
        """Print the result on stdout and return it."""
        job, state = self._job, self._job_state
        return self._search.summarise(self._trials, as_json=as_json, job=job, state=state)

    def handle(self, event: Event) -> None:
        if isinstance(event, TrialsChanged):
            self._trials = event.trials
            self._search.update(event.trials)
            return
        if isinstance(event, JobChanged):
            self._job_state = event.state
        super().handle(event)


def exit_code_of(trials: Sequence[Trial]) -> int:
    """Return 0 if a trial has succeeded, 1 otherwise."""
    return int(all(trial.state != SUCCEEDED for trial in trials))


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else argument(value)


def _money(amount: Decimal | None, currency: str) -> str:
    return "" if amount is None else f"{amount:.3f} {currency}"
