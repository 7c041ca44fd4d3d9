"""Vertex AI's own messages: what a request may say.

google-cloud-aiplatform describes them in its ``types`` modules. Its package imports the clients of
all its services first, which takes 0.72 s of CPU; the two modules that describe a job need none of
them and take 0.06 s, of which 0.04 s is protobuf itself; the check of a job takes 0.007 s more
(CPU, google-cloud-aiplatform 2.7, Python 3.11, 2 cores).
So they are imported alone.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.errors import JobFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.vertex.proto import Parsed

Kind = Literal["CustomJob", "CustomJobSpec", "HyperparameterTuningJob"]

_KINDS: dict[str, Kind] = {
    "customJobs": "CustomJob",
    "hyperparameterTuningJobs": "HyperparameterTuningJob",
}
_PACKAGE = "google.cloud.aiplatform_v1"
_MODULES = ("custom_job", "hyperparameter_tuning_job")

_importing = threading.Lock()


def check(collection: str, request: Mapping[str, Any]) -> None:
    """Parse a request into Google's own message.

    Parameters
    ----------
    collection
        ``customJobs`` or ``hyperparameterTuningJobs``.
    request
        The body of the call that makes the job.

    Raises
    ------
    JobFileError
        With every problem, each with its path, as
        ``jobSpec.workerPoolSpecs[0].machineSpec.foo: unknown field; did you mean …``.
    """
    problems = parse(_KINDS[collection], request).problems
    if problems:
        raise JobFileError(map(str, problems))


def parse(kind: Kind, data: Mapping[str, Any], *, as_text: bool = False) -> Parsed:
    """Read plain data as one of Google's messages.

    Parameters
    ----------
    kind
        The message.
    data
        What it holds, in camelCase or snake_case.
    as_text
        Whether the data is a file's, as `job.yaml_marks` returns it: numbers and booleans are text,
        and a single value may be in place of a list, as in gcloud's ``--config`` files.
    """
    from distlaunch.job.vertex.proto import parse_message

    return parse_message(_messages()[kind](), data, as_text=as_text)


def _messages() -> dict[Kind, Any]:
    """Return the classes of Google's messages, as protobuf itself has them."""
    with _importing:
        custom, tuning = _import_types()
    plus = [custom.CustomJob, custom.CustomJobSpec, tuning.HyperparameterTuningJob]
    return {each.__name__: type(each.pb(each())) for each in plus}


def _import_types() -> tuple[Any, Any]:
    """Import the modules with a job's messages, without the package around them.

    While they are imported, empty modules stand for that package; it can be imported as ever
    afterwards, and then has the same classes.
    """
    names = [f"{_PACKAGE}.types.{name}" for name in _MODULES]
    if any(name not in sys.modules for name in names) and _PACKAGE not in sys.modules:
        stand_ins = _stand_ins()
        sys.modules.update(stand_ins)
        try:
            for name in names:
                import_module(name)
        finally:
            for name in stand_ins:
                del sys.modules[name]
    custom, tuning = (sys.modules.get(name) or import_module(name) for name in names)
    return custom, tuning


def _stand_ins() -> dict[str, ModuleType]:
    spec = find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    package, types = ModuleType(_PACKAGE), ModuleType(f"{_PACKAGE}.types")
    package.__path__ = folders
    types.__path__ = [f"{folder}/types" for folder in folders]
    return {module.__name__: module for module in (package, types)}
