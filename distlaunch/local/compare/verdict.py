"""One sentence on a comparison: whether it pays, why, and what to change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.local.compare.figures import reference
from distlaunch.summary import milliseconds
from distlaunch.text import percent, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.local.compare.figures import VariantFigures
    from distlaunch.summary import Timing

# TensorFlow's profiler, op_stats_to_input_pipeline_analysis.cc: kModeratelyInfeedBoundThreshold-
# InPercent and kHighlyInfeedBoundThresholdInPercent, of the time of a step.
MODERATELY_INPUT_BOUND = 0.05
HIGHLY_INPUT_BOUND = 0.20
# Choices of this module, without a source.
GOOD_EFFICIENCY = 0.8
LEAST_GAIN = 0.05  # of speed, below which two variants count as equally fast
SPREAD = 1.3  # of the runs of a variant, from which something else is likely to have run


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence, and whether the variant with more workers pays.

    `pays` is None where the comparison cannot show it.
    """

    text: str
    pays: bool | None = None


def judge(figures: Sequence[VariantFigures], *, cores: int) -> Verdict:
    """Return what a comparison shows; `cores` are those of this machine."""
    verdict = _judge([each for each in figures if each.runs], cores)
    noisy = [each for each in figures if each.runs and each.fastest > SPREAD * each.slowest]
    if not noisy:
        return verdict
    worst = max(noisy, key=lambda each: each.fastest / each.slowest)
    note = (
        f"The runs of {_named(worst)} differ by a factor of {worst.fastest / worst.slowest:.1f}: "
        "repeat it with more --rounds while nothing else runs here."
    )
    return replace(verdict, text=f"{verdict.text} {note}")


def _judge(figures: Sequence[VariantFigures], cores: int) -> Verdict:
    measured = [each for each in figures if not each.variant.cores]
    if len(measured) < 2:
        return Verdict(f"Nothing to compare: {plural(len(measured), 'variant')} measured.")
    if len({each.variant.workers for each in measured}) == 1:
        return _judge_equal_workers(measured)
    whole = [each for each in figures if each.variant.cores]
    return _judge_workers(measured, whole, cores)


def _judge_equal_workers(measured: Sequence[VariantFigures]) -> Verdict:
    """Compare batches."""
    best = max(measured, key=lambda each: each.speed)
    worst = min(measured, key=lambda each: each.speed)
    if best.speed < worst.speed * (1 + LEAST_GAIN):
        return Verdict(f"All variants are equally fast within 5 %.{_input_hint(best)}")
    ratio = f"{best.speed / worst.speed:.2f} times as fast as {_named(worst)}"
    hint = _input_hint(best)
    if len({each.variant.global_batch for each in measured}) > 1:
        hint += " A larger batch makes fewer updates: compare the loss before you change it."
    return Verdict(f"{_capital(_named(best))} is {ratio}.{hint}")


def _judge_workers(
    measured: Sequence[VariantFigures], whole: Sequence[VariantFigures], cores: int
) -> Verdict:
    """Judge the fastest of several workers, which has cores of its own if any has."""
    scaled = [each for each in measured if each.efficiency is not None]
    if not scaled:
        return Verdict("No variant was measured with more workers than another.")
    own_cores = [each for each in scaled if not each.shares_cores]
    best = max(own_cores or scaled, key=lambda each: each.speedup or 0.0)
    base = reference(best, measured)
    batch = best.variant.global_batch
    alone = next((each for each in whole if each.variant.global_batch == batch), None)
    sentences, pays = _judge_best(best, base, alone, cores)
    shared = [each for each in scaled if each.shares_cores]
    if shared and not best.shares_cores:
        most = max(shared, key=lambda each: each.variant.workers)
        sentences.append(f"{_capital(_sharing(most, cores))}.")
    return Verdict(" ".join(sentences), pays)


def _judge_best(
    best: VariantFigures, base: VariantFigures, alone: VariantFigures | None, cores: int
) -> tuple[list[str], bool | None]:
    """Return sentences, and whether it pays; `alone` is one worker on the cores of several."""
    efficiency = best.efficiency or 0.0
    scaling = f"{_ratio(best, base)} (efficiency {percent(efficiency)})"
    if best.speed < base.speed * (1 + LEAST_GAIN):
        alone = None  # not even with more cores
    elif not alone or best.speed >= alone.speed * (1 + LEAST_GAIN):
        if efficiency >= GOOD_EFFICIENCY:
            return [f"It pays: {scaling}.{_input_hint(best)}"], True
        if best.shares_cores:
            return [f"It pays in part: {scaling}, because {_sharing(best, cores)}."], None
        cause, remedy = _explain(best, base)
        return [f"It pays in part: {scaling}, because {cause}. {remedy}"], True
    start = f"It does not pay here: {_ratio(best, alone or base)}, because"
    if best.shares_cores:
        return [f"{start} {_sharing(best, cores)}."], None
    cause, remedy = _explain(best, base)
    sentences = [f"{start} {cause}. {remedy}"]
    if alone:
        sentences.append(f"With equal cores for each worker, {scaling}, without a network.")
    return sentences, False


def _ratio(best: VariantFigures, other: VariantFigures) -> str:
    return (
        f"{best.variant.name} train {best.speed / other.speed:.2f} times as fast as {_named(other)}"
    )


def _explain(best: VariantFigures, base: VariantFigures) -> tuple[str, str]:
    """Return why a variant is slower than its workers could be, and what to change."""
    timing, before = best.timing, base.timing
    longer_steps = f"A larger batch makes fewer, longer steps{_batches_to_try(best)}."
    if timing is None:
        cause = "a step takes longer than its share of the work (its parts were not measured)"
        return cause, longer_steps
    ratio = base.variant.workers / best.variant.workers
    losses = {
        "exchange": timing.exchange,
        "wait": timing.wait,
        "input": timing.input - (before.input * ratio if before else 0.0),
        "compute": timing.compute - (before.compute * ratio if before else timing.compute),
    }
    if timing.share("input") < MODERATELY_INPUT_BOUND:
        del losses["input"]
    cause = max(losses, key=lambda name: losses[name])
    if cause == "exchange":
        remedy = f"A larger batch makes fewer exchanges{_batches_to_try(best)}."
        return f"the exchange of gradients takes {_of_step(timing, 'exchange')}", remedy
    if cause == "input":
        return f"waiting for data takes {_of_step(timing, 'input')}", _input_remedy(best)
    if cause == "wait":
        return _explain_wait(timing)
    even = ratio * before.compute if before else 0.0
    cause = (
        f"a worker computes {milliseconds(timing.compute)} per step, and an even share would "
        f"be {milliseconds(even)}: a part of each step does not shrink with its rows, or "
        "workers slow each other down"
    )
    return cause, longer_steps


def _explain_wait(timing: Timing) -> tuple[str, str]:
    cause = f"waiting for the slowest worker takes {_of_step(timing, 'wait')}"
    if not timing.slowest:
        return cause, "Give all workers equal cores and equal work."
    name, share = max(timing.slowest.items(), key=lambda item: item[1])
    return (
        f"{cause}, and {name} is the last in {percent(share)} of the steps",
        f"Look at what else runs on the cores of {name}, or at rows that take longer than others.",
    )


def _batches_to_try(best: VariantFigures) -> str:
    """Return an option that compares larger batches, where the launcher can set them."""
    batch = best.variant.global_batch
    return f" (compare them with --batch-sizes {4 * batch},{16 * batch})" if batch else ""


def _input_remedy(figures: VariantFigures) -> str:
    """Return what helps, by the options that have an effect on the data of the runs."""
    options = figures.input_options
    if options is None:
        return "map(…, num_parallel_calls=tf.data.AUTOTUNE) and cache() of the data set may help."
    if "cache" in options:
        return "--cache memory keeps parsed examples."
    return "machines with more CPU cores help, as the data are in memory."


def _input_hint(best: VariantFigures) -> str:
    """Return a sentence on the input of the fastest variant, if it limits the speed."""
    timing = best.timing
    if timing is None or timing.share("input") < MODERATELY_INPUT_BOUND:
        return ""
    degree = "highly" if timing.share("input") >= HIGHLY_INPUT_BOUND else "moderately"
    return (
        f" With {_named(best)} waiting for data takes {_of_step(timing, 'input')}, so it is "
        f"{degree} input-bound: {_input_remedy(best)}"
    )


def _sharing(figures: VariantFigures, cores: int) -> str:
    """Return a clause on a variant with more workers than cores."""
    workers = figures.variant.workers
    return (
        f"{plural(workers, 'worker')} share {plural(cores, 'core')} of this machine, which cannot "
        "show how fast they are on machines of their own"
    )


def _of_step(timing: Timing, part: str) -> str:
    share, value = timing.share(part), getattr(timing, part)
    return f"{percent(share)} of a step ({milliseconds(value)} of {milliseconds(timing.total)})"


def _named(figures: VariantFigures) -> str:
    name = figures.variant.name
    return f"the {name}" if name.startswith("trainer") else name


def _capital(text: str) -> str:
    return text if text.startswith("fit") else text[0].upper() + text[1:]
