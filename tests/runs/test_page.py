"""Pages of runs, comparisons, searches and forecasts: what they have, and how Chromium shows it."""

from __future__ import annotations

import json
import math
import re
from copy import deepcopy
from pathlib import Path

import pytest

from distlaunch.job.model import Machine
from distlaunch.job.trial import Study, Trial
from distlaunch.local.compare.figures import Measurement, VariantFigures, with_ratios
from distlaunch.local.compare.report import build_page
from distlaunch.local.compare.rounds import Comparison
from distlaunch.local.compare.variants import Variant
from distlaunch.local.run_folder import RunFolder
from distlaunch.price import forecast_page
from distlaunch.price.forecast import Clusters
from distlaunch.price.step_time import MeasuredRun
from distlaunch.runs import page
from distlaunch.runs.view import RunView, view_run
from distlaunch.summary import Timing
from distlaunch.tune import search_page
from distlaunch.tune.search_view import SearchView
from distlaunch.ui.console import Console
from distlaunch.ui.page import Chart, Page, render

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/summary.json").read_text())
VALIDATION = (0.8, 0.4, 0.2, 0.3, 0.45)  # the third epoch is the best one
HOSTILE = "</script></title><script>document.title = 'hacked'</script><img src=x onerror=alert(1)>"
FIGURES = {"event": "figures", "time": 90.0, "cpu_cores": 1.5, "memory_gib": 2.0}


def summary() -> dict:
    """Return the summary of a run of five epochs."""
    content = deepcopy(GOLDEN)
    first = content["epochs"][0]
    logs = [{"loss": 2.0 / 9**n, "val_loss": loss} for n, loss in enumerate(VALIDATION)]
    content["epochs"] = [
        {**first, "epoch": number, "step": 23 * number, "logs": each}
        for number, each in enumerate(logs, 1)
    ]
    return content


def write_run(project: Path, name: str, content: dict, **record: object) -> RunView:
    """Write the folder of a run that has ended, and return what is known of it."""
    folder = RunFolder(project / ".distlaunch/local" / name)
    logs = folder.new_attempt().path
    (logs / "worker-0.log").write_text("out of memory\n")
    (logs / "chief.events.jsonl").write_text(json.dumps(FIGURES) + "\n")
    (folder.path / "summary.json").write_text(json.dumps(content))
    facts = {"id": name, "started": "2026-11-27T19:01:17Z", "ended": "2026-11-27T19:02:35Z"}
    facts |= {"state": "SUCCEEDED", "cluster": {"chief": 1, "worker": 1}, "job": {"name": "digits"}}
    facts |= {"versions": {"distlaunch": "0.1.0", "tensorflow-cpu": "2.21.0"}, "code": "3fcb"}
    (folder.path / "run.json").write_text(json.dumps(facts | record))
    return view_run(folder)


def charts_of(built: Page) -> dict[str, Chart]:
    parts = (part for parts in built.sections.values() for part in parts)
    return {part.title: part for part in parts if isinstance(part, Chart)}


def json_in(html: str, name: str) -> object:
    return json.loads(re.search(f'id="{name}">(.*)</script>', html)[1])


def failed_run(project: Path, text: str = "out of memory") -> RunView:
    failure = {"task": "worker:0", "reason": text, "remedy": "less", "lines": [text, "  at 0x0"]}
    return write_run(project, "failed", summary(), state="FAILED", exit_code=137, failure=failure)


def run_page(project: Path) -> Page:
    view = write_run(project, "20261127-190117", summary())
    return page.build([view], Path(view.folder) / page.FILE_NAME)


def runs_page(project: Path) -> Page:
    views = [write_run(project, "a", summary()), failed_run(project)]
    return page.build(views, project / "runs.html")


def failed_page(project: Path) -> Page:
    return page.build([failed_run(project)], project / "failed.html")


def compare_page(project: Path) -> Page:
    figures = [
        VariantFigures(
            Variant(workers, 64, name=f"{workers} workers"),
            tuple(
                Measurement(n, 9.0, speed, Timing(0.02, 0.002, 0.01, 0.005, 0.003, {}))
                for n, speed in ((1, 900.0 * workers), (2, 1100.0 * workers))
            ),
        )
        for workers in (1, 2)
    ]
    compared = Comparison(project, 2, 1, 2, tuple(with_ratios(figures)), is_interrupted=False)
    return build_page(compared, {"verdict": {"text": "It pays."}})


def search_page_of(project: Path) -> Page:
    study = Study("val_accuracy", "maximize", ("learning-rate", "optimizer"), 3)
    trials = [
        Trial(1, {"learning-rate": 0.001, "optimizer": "adam"}, "SUCCEEDED", 0.9, 5, 60.0),
        Trial(2, {"learning-rate": 0.1, "optimizer": "sgd"}, "SUCCEEDED", 0.95, 5, 70.0),
        Trial(3, {"learning-rate": 9.0, "optimizer": "sgd"}, "INFEASIBLE", reason="NaN"),
    ]
    view = SearchView(Console("error"), study, ["distlaunch", "local"])
    data, table = view.summarise(trials, as_json=True, job="digits", state="SUCCEEDED")
    (project / "trial-2").mkdir()
    (project / "trial-2/run.html").touch()
    return search_page.build(data, table, project / "search.html")


def forecast_page_of(project: Path) -> Page:
    numbers = {"cores": 8.0, "batch": 64.0, "examples": 1e6, "gradient_bytes": 1e8, "epochs": 3}
    step = {"compute": 0.1, "exchange": 0.05, "spread": 0.05, "noise": 0.05, "tasks": 2}
    run = MeasuredRun(name="a", machine=Machine("n1-standard-8"), gpus=(), **numbers, **step)
    clusters = Clusters(project)
    targets = [clusters.target("n1-standard-8"), clusters.target("n1-standard-16")]
    return forecast_page.build(*clusters.forecast_all([run], targets, [1, 2, 4]))


PAGES = (run_page, failed_page, runs_page, compare_page, search_page_of, forecast_page_of)


def test_a_run_has_its_curves_with_the_best_epoch_and_the_parts_of_a_step(tmp_path):
    built = run_page(tmp_path)
    assert built.title == "digits · run 20261127-190117"
    assert built.lead == (
        "Best epoch: 3 of 5, with loss 0.02469, val_loss 0.2. After it val_loss did not fall "
        "further; at the end it is 0.45."
    )
    assert built.about["versions"] == "distlaunch 0.1.0, TensorFlow 2.21.0"
    charts = charts_of(built)
    assert list(charts) == ["loss", "examples/s", "Shares of a step by epoch"]
    loss = charts["loss"]
    assert (loss.xs, loss.mark, loss.logarithmic) == ([1, 2, 3, 4, 5], (3, "lowest val_loss"), "y")
    assert [each.name for each in loss.series] == ["training", "validation"]
    assert loss.series[1].ys == list(VALIDATION)
    shares = {each.name: each.ys[0] for each in charts["Shares of a step by epoch"].series}
    assert shares == {"compute": 50, "exchange": 25, "waiting for the slowest task": 12.5} | {
        "input": 12.5
    }
    bars = built.sections["Where the time of a step goes"][2]
    assert [(row[0], row[2]) for row in bars.rows] == [
        ("chief", "500 ms, last in 100 %"),
        ("worker:0", "500 ms, last in 0 %"),
    ]
    assert built.sections["Use of the machines"] == [
        "In the last minute: CPU chief 1.5 cores 2.0 GiB."
    ]
    assert built.sections["Files"][0]["log of worker:0"].href == "task-logs/attempt-1/worker-0.log"


def test_a_failed_run_has_the_task_the_reason_and_the_log(tmp_path):
    built = failed_page(tmp_path)
    assert (built.state, built.lead.startswith("out of memory. Best epoch")) == ("FAILED", True)
    text, log = built.sections["Why it failed"]
    assert text.startswith("worker:0 failed first\nreason: out of memory\nnext: less\n")
    assert log["log"].href == ".distlaunch/local/failed/task-logs/attempt-1/worker-0.log"


def test_several_runs_are_drawn_together_and_differ(tmp_path):
    built = runs_page(tmp_path)
    names = [each.name for each in charts_of(built)["loss"].series]
    assert names == ["a training", "a validation", "failed training", "failed validation"]
    [differing] = built.sections["What differs"]
    assert ("state", "SUCCEEDED", "FAILED", "") in differing
    assert built.sections["Runs"][1]["a"].startswith("Best epoch: 3 of 5, with loss")
    html = render(built)
    assert "<td>SUCCEEDED</td>" in html
    assert "\x1b" not in html  # the colours of a terminal


def test_searches_and_forecasts_have_their_points(tmp_path):
    built = search_page_of(tmp_path)
    assert built.lead == "3 trials; the best is trial 2, with val_accuracy 0.95."
    by_name = charts_of(built)["val_accuracy by optimizer; the numbers are those of trials"]
    assert (by_name.x_labels, by_name.xs) == (["adam", "sgd"], [0, 1])
    assert built.sections["Trials"][0][1][0].href == "trial-2/run.html"
    assert built.sections["Trials"][1] == {"trial 3": "NaN"}
    [money] = charts_of(forecast_page_of(tmp_path)).values()
    assert (money.x, money.y) == ("hours", "USD")
    assert money.xs == sorted(money.xs)
    assert {each.name for each in money.series} == {"n1-standard-8", "n1-standard-16"}
    ranges = money.series[0].ranges
    assert all(low < x < high for x, (low, high, *_) in zip(money.xs, ranges, strict=True))


def test_values_that_are_no_numbers_are_left_out_of_the_json(tmp_path):
    content = summary()
    content["epochs"][1]["logs"] = {"loss": math.nan, "val_loss": math.inf}
    content["epochs"][0]["logs"]["val_loss"] = math.nan
    content["model"] = "m" * 5000  # longer than a path may be
    built = page.build([write_run(tmp_path, "a", content)], tmp_path / "a.html")
    assert built.lead.startswith("Best epoch: 3 of 5")
    html = render(built)
    assert json_in(html, "charts")[0]["series"][0]["ys"][1] is None


def test_a_link_is_a_web_page_or_a_file(tmp_path):
    view = RunView("job", "a", "FAILED", console="javascript:alert(1)", tensorboard="https://a.b/c")
    html = render(page.build([view], tmp_path / "a.html"))
    assert re.findall('href="([^"]*)"', html) == ["https://a.b/c"]


@pytest.mark.parametrize("make", PAGES)
def test_pages_are_drawn_without_errors_and_fit_the_window(browser, make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    built, path = make(tmp_path), tmp_path / "page.html"
    path.write_text(render(built))
    for width, is_dark in ((400, True), (1200, False)):
        browser.open(path, width, is_dark=is_dark)
        assert browser.problems == []
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.evaluate("innerWidth") == width
        drawn = browser.evaluate(
            "[...document.querySelectorAll('canvas')].map(canvas => new Set(canvas.getContext('2d')"
            ".getImageData(0, 0, canvas.width, canvas.height).data).size)"
        )
        assert len(drawn) == len(charts_of(built))
        assert all(colours > 10 for colours in drawn)
        shown = browser.evaluate("document.body.innerText")
        assert all(title in shown for title, parts in built.sections.items() if parts and parts[0])
    assert browser.evaluate("document.querySelectorAll('.bar').length") == html_bars(built)


def html_bars(built: Page) -> int:
    parts = (part for parts in built.sections.values() for part in parts)
    return sum(len(part.rows) for part in parts if hasattr(part, "rows"))


def test_a_click_changes_the_scale_of_losses(browser, tmp_path):
    (tmp_path / "page.html").write_text(render(run_page(tmp_path)))
    browser.open(tmp_path / "page.html", 1200)
    state = "document.querySelector('figure input').checked"
    before = browser.evaluate(f"[{state}, document.querySelector('canvas').toDataURL()]")
    browser.evaluate("document.querySelector('figure input').click()")
    after = browser.evaluate(f"[{state}, document.querySelector('canvas').toDataURL()]")
    assert (before[0], after[0]) == (True, False)
    assert before[1] != after[1]


def test_nothing_of_a_run_is_html_in_its_page(browser, tmp_path):
    content = summary()
    for epoch in content["epochs"]:
        epoch["logs"][HOSTILE] = epoch["logs"]["loss"]
    hostile = {"job": {"name": HOSTILE, HOSTILE: HOSTILE}, "command": [HOSTILE]}
    failure = {"task": HOSTILE, "reason": HOSTILE, "remedy": HOSTILE, "lines": [HOSTILE] * 2}
    view = write_run(tmp_path, "a", content, **hostile, failure=failure, machine=HOSTILE)
    built = page.build([view], tmp_path / "page.html")
    (tmp_path / "page.html").write_text(render(built))
    browser.open(tmp_path / "page.html", 400)
    assert browser.problems == []
    assert browser.evaluate("document.title") == f"{HOSTILE} · run a"
    assert browser.evaluate("document.querySelectorAll('script, img').length") == 3
    assert browser.evaluate("document.querySelectorAll('canvas').length") == len(charts_of(built))
    # The policy of the page stops what would get in.
    browser.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'document.title = 1'}))"
    )
    assert browser.evaluate("document.title") == f"{HOSTILE} · run a"
    assert "Content Security Policy" in browser.problems[0]
