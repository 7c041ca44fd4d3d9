"""Batches that the functions of a project's ``trainer/data.py`` return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import keras
import tensorflow as tf

from distlaunch_trainer.errors import DataError
from distlaunch_trainer.input.batch_rows import as_tensor, count_rows, map_tensors, tensors_in
from distlaunch_trainer.input.order.plan import SharedBatchPlan
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.task.explain import from_user, user_code

from .user_batches import Opening, UserBatches, open_batches
from .user_dataset import batch_end

_NO_END = "has no end, or none that is known"


@dataclass(frozen=True)
class BatchSource:
    """Batches that a function of a project returns."""

    adapter: Any  # Keras's
    dataset: tf.data.Dataset  # that this has made
    kind: str = "data set"  # for messages; or ``PyDataset`` or ``generator``

    @property
    def is_endless(self) -> bool:
        """Whether there is no end, or none that is known, as of a generator."""
        is_endless = self.dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        return bool(is_endless) or self.kind == "generator"

    def resume_note(self, *, repeats: bool) -> str | None:
        """Return a warning where a run that is resumed reads other examples."""
        if self.is_endless:
            return (
                f"the {self.kind} {_NO_END}, and starts from its beginning when a run is resumed: "
                "examples may be seen more often or less often than others"
            )
        if not repeats:
            return None
        return (
            f"what was read is skipped: if the {self.kind} shuffles, examples of the interrupted "
            "pass may be seen twice or never; later ones are whole"
        )

    def check_end(self, name: str) -> None:
        """Refuse validation or test data without an end."""
        if self.is_endless:
            raise DataError(
                f"the {self.kind} of the {name} data {_NO_END}: remove .repeat(), end it with "
                ".take(n), or return Arrays or a PyDataset of known length"
            )


def source_of(
    name: str, value: Any, function: Callable[[], Any], *, shuffles: bool
) -> BatchSource | None:
    """Return what a function returned as batches, None if it is no data of Keras."""
    restart = value if callable(value) else function
    made = from_user(f"{name}()", restart) if callable(value) else value
    kind = "data set"
    if isinstance(made, keras.utils.PyDataset):
        kind = "PyDataset"
    elif isinstance(made, Iterator):
        kind, made = "generator", _endless(made, restart)
    elif not isinstance(made, tf.data.Dataset):
        return None

    def adapt() -> tuple[Any, tf.data.Dataset]:
        adapter = fit_calls.data_adapter(made, shuffle=shuffles and kind == "PyDataset")
        return adapter, adapter.get_tf_dataset()

    return BatchSource(*from_user(f"{name}()", adapt), kind)


def open_project_batches(source: BatchSource, opening: Opening, policy: str) -> UserBatches:
    """Open batches of a project, whose ``batch(n)`` is the global batch; a collective.

    The data are read once to count the batches only if nothing else gives their number: neither the
    type of the data set, nor the steps of an epoch.
    """
    cluster, kind, is_off = opening.cluster, source.kind, policy == "off"
    batch = _batch_size(source)
    if not cluster.all_equal(batch):
        raise DataError(
            f"the {kind} has batches of other sizes on other tasks ({cluster.role.name} has "
            f"{batch}): end it with the same .batch(n) on all, see trainer/data.py"
        )
    if source.is_endless and not opening.steps:
        raise DataError(f"the {kind} {_NO_END}, so an epoch has no length: set --steps-per-epoch")
    replicas = cluster.local_replicas if is_off else cluster.replicas
    SharedBatchPlan(batch, replicas)  # refuses batches that leave replicas idle
    data = open_batches(source.adapter, source.dataset, opening, is_off=is_off)
    data.global_batch = batch * (cluster.role.num_workers if data.form == "own" else 1)
    if data.examples is None and data.num_batches and _static_sizes(source) == {batch}:
        data.examples = data.num_batches * batch
    data.source = {"kind": "dataset", "batch": batch}
    return data


def _batch_size(source: BatchSource) -> int:
    """Return the rows of a batch; the first one is read if its type does not show it."""
    sizes = _static_sizes(source)
    end = batch_end(source.dataset)
    if end and not 0 <= end.rows < end.size:
        sizes = {end.size}
    elif None in sizes and 0 not in sizes:
        first = fit_calls.first_batch(source.adapter)
        with user_code("reading the data set failed"):
            batches = source.dataset.take(1) if first is None else [map_tensors(as_tensor, first)]
            parts = [part for data in batches for part in tensors_in(data)]
        if not parts:
            raise DataError(f"the {source.kind} is empty: see trainer/data.py")
        sizes = {int(count_rows(part)) for part in parts}
    if len(sizes) > 1 or 0 in sizes:
        raise DataError(
            f"the {source.kind} has no batches: end it with .batch(n), n the global batch"
        )
    return sizes.pop()


def _static_sizes(source: BatchSource) -> set[int | None]:
    """Return the rows of a batch's parts: None if a type does not have them, 0 for a scalar."""
    spec = tf.nest.flatten(source.dataset.element_spec)
    shapes = [part.shape for part in spec if hasattr(part, "shape")]  # None has no shape
    return {None if s.rank is None else s[0] if s.rank else 0 for s in shapes}


def _endless(generator: Iterator[Any], restart: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Yield the batches of generators, one after the other."""
    structure: Any = None
    for following in chain([generator], (restart() for _ in count())):
        first = next(following, None)
        if first is None:
            raise DataError(
                "the generator of trainer/data.py has ended: have it yield batches without end, or "
                "lower --steps-per-epoch or --epochs"
            )
        for batch in chain([first], following):
            batch = keras.tree.lists_to_tuples(batch)  # noqa: PLW2901 - data sets stack lists
            structure = batch if structure is None else structure
            try:
                tf.nest.assert_same_structure(structure, batch)
            except (TypeError, ValueError):
                raise DataError(
                    "the generator of trainer/data.py gives batches of different structures: the "
                    "first one differs from a later one"
                ) from None
            batch = map_tensors(as_tensor, batch)  # noqa: PLW2901
            yield batch if isinstance(batch, tuple) else (batch,)
