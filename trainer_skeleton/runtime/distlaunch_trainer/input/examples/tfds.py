"""Examples of TensorFlow Datasets: ``Tfds``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import DataError, summarize
from distlaunch_trainer.input.records.record_index import Index, index_files
from distlaunch_trainer.input.records.records import Records, RecordSource
from distlaunch_trainer.task import messages

from .example_source import DEFAULT, Examples, InputOptions

_FILE_FORMAT = "tfrecord"


@dataclass(frozen=True)
class Tfds(Examples):
    """A split of a dataset of TensorFlow Datasets.

    A dataset that is not prepared yet is downloaded and prepared by the chief, and once more on
    each machine that does not see the chief's files.

    Parameters
    ----------
    name
        As ``tfds.builder`` takes it, e.g. ``svhn_cropped`` or ``cats_vs_dogs:4.0.1``.
    split
        As ``tfds.load`` takes it, e.g. ``train``, ``train[:80%]`` or ``train+test``.
    data_dir
        Folder of prepared datasets: a local path, ``/gcs/BUCKET/...`` or ``gs://BUCKET/...``; by
        default ``TFDS_DATA_DIR``, or ``~/tensorflow_datasets``.
    as_supervised
        Whether an example is ``(image, label)`` or what else the dataset has for supervised
        learning, or a dict of all features.
    map
        From an example to ``(x, y)`` or ``(x, y, sample_weight)``, as ``Dataset.map`` takes it:
        of two arguments for ``(image, label)``. Without a batch dimension.
    decoders
        As ``tfds.load`` takes them, e.g. ``{"image": tfds.decode.SkipDecoding()}``.
    class_weight
        The weight of each class of ``y`` in the loss, 1 for those left out.
    """

    name: str
    split: str = "train"
    data_dir: str | None = None
    as_supervised: bool = True
    map: Callable[..., Any] | None = None
    decoders: Mapping[str, Any] | None = None
    class_weight: Mapping[int, float] | None = None

    def open(
        self, cluster: Cluster, fallback_dir: str, options: InputOptions = DEFAULT
    ) -> RecordSource:
        """Prepare the dataset if it is not prepared, and index its files; a collective."""
        builder = self._prepared_builder(_import_tfds(), cluster)
        parts = self._file_parts(builder)
        paths = sorted({str(part.filename) for part in parts})
        index = index_files(paths, cluster, fallback_dir)
        files = {file.path: file for file in index.files}
        for part in parts:
            if files[str(part.filename)].records != part.examples_in_shard:
                raise DataError(
                    f"{part.filename} has {files[str(part.filename)].records:,} records, and "
                    f"dataset_info.json has {part.examples_in_shard:,}: remove "
                    f"{builder.data_path}, and {_prepare_command(self.name, self.data_dir)}"
                )
        used = [
            replace(files[str(part.filename)], first=part.skip, records=part.take) for part in parts
        ]
        records = Records(
            str(builder.data_path), parse=self._parser(builder), class_weight=self.class_weight
        )
        used_index = Index(used, index.bytes_read)
        source = RecordSource(records, used_index, options, cluster.role.num_workers)
        source.facts = {"kind": "tfds", "name": builder.info.full_name, "split": self.split}
        return source

    def _prepared_builder(self, tfds: ModuleType, cluster: Cluster) -> Any:
        """Return the builder of the dataset, which one task of each file system has prepared."""
        builder = self._builder(tfds)
        for prepares in (cluster.role.is_chief, _is_first_of_its_machine(cluster.role)):
            missing = np.array([not builder.data_path.exists()], np.int64)
            if not cluster.all_reduce_sum(missing)[0]:
                break
            problem = self._prepare(tfds, builder) if prepares and missing[0] else None
            failures = cluster.all_reduce_sum(np.array([problem is not None], np.int64))[0]
            if problem or failures:
                raise DataError(problem or f"another task could not prepare {self.name}")
            builder = self._builder(tfds)  # it has read what was prepared
        file_format = builder.info.file_format
        if file_format is not None and file_format.value != _FILE_FORMAT:
            raise DataError(
                f"{builder.data_path} has files of the format {file_format.value}, which cannot "
                f"be read here: remove it, and "
                f"{_prepare_command(self.name, self.data_dir)}"
            )
        return builder

    def _builder(self, tfds: ModuleType) -> Any:
        try:
            return tfds.builder(self.name, data_dir=self.data_dir)
        except Exception as error:
            # The names of all datasets follow.
            raise DataError(f"Tfds({self.name!r}): {summarize(error)}") from error

    def _prepare(self, tfds: ModuleType, builder: Any) -> str | None:
        """Download and prepare the dataset; return why that failed, if it did."""
        messages.info(f"preparing {self.name} in {builder.data_path}")
        tfds.disable_progress_bar()
        try:
            builder.download_and_prepare(file_format=_FILE_FORMAT)
        except Exception as error:  # noqa: BLE001 - of any network, disk, archive or package
            return (
                f"{self.name} is not in {builder.data_path} and cannot be prepared: "
                f"{summarize(error)}; install a package that is missing, or on a machine where it "
                f"can be prepared, {_prepare_command(self.name, self.data_dir)}"
            )
        return None

    def _file_parts(self, builder: Any) -> list[Any]:
        """Return the files of the split, each with the records that belong to it."""
        try:
            return list(builder.info.splits[self.split].file_instructions)
        except (KeyError, ValueError, AssertionError) as error:
            raise DataError(
                f"{self.name} has no split {self.split!r}, but "
                f"{', '.join(sorted(builder.info.splits))}, and parts such as train[:80%]"
            ) from error

    def _parser(self, builder: Any) -> Callable[[tf.Tensor], Any]:
        """Return the function from a serialized record to an example."""
        keys, features = builder.info.supervised_keys, builder.info.features
        if self.as_supervised and not keys:
            raise DataError(
                f"{self.name} has no label of its own: use as_supervised=False and map=, from "
                f"{', '.join(sorted(features))} to (x, y)"
            )

        def parse(record: tf.Tensor) -> Any:
            example = features.deserialize_example(record, decoders=self.decoders)
            if self.as_supervised:
                example = tf.nest.map_structure(example.__getitem__, keys)
            if self.map is None:
                return example
            return self.map(*example) if isinstance(example, tuple) else self.map(example)

        return parse


def _import_tfds() -> ModuleType:
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            f"Tfds needs the package tensorflow-datasets ({summarize(error)}): add "
            "tensorflow-datasets to requirements.txt, and install it here with pip"
        ) from error
    return tfds


def _prepare_command(name: str, data_dir: str | None) -> str:
    folder = f" --data_dir={data_dir}" if data_dir else ""
    return f"run: tfds build {name} --file_format={_FILE_FORMAT}{folder}"


def _is_first_of_its_machine(role: Role) -> bool:
    """Return whether no task of a lower rank has this one's host."""
    hosts = [address.rpartition(":")[0] for address in role.addresses]
    return not hosts or hosts.index(hosts[role.rank]) == role.rank
