"""Templates: the project's own before the bundled ones, and files that were written from them."""

from __future__ import annotations

import hashlib
import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import __version__, quoting, resources
from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import jinja2

OWN_TEMPLATES = "templates"  # the folder of a project's own

_STAMP = re.compile(r"# rendered by distlaunch \S+, sha256 ([0-9a-f]{64}); .*\n")
_DIRECTIVES = re.compile(r"(?:#[ \t]*[A-Za-z]+[ \t]*=.*\n)*")  # they have to stand before all else


def render_template(name: str, folder: Path | None, /, **values: Any) -> str:
    """Render a template, the project's own before the bundled one.

    ImageError is raised if it cannot be rendered.
    """
    try:
        return _environment(folder).get_template(f"{name}.j2").render(values)
    except Exception as problem:  # a template may raise whatever Python does
        if folder is None or not has_template(folder, name):
            if isinstance(problem, quoting.CannotBeQuoted):
                raise ImageError(str(problem), where=name) from None
            raise
        reason = " ".join(str(problem).split())
        raise ImageError(reason, where=_location(problem, folder, f"{name}.j2")) from None


def has_template(folder: Path, name: str) -> bool:
    """Return whether a project has a template of its own."""
    return (folder / OWN_TEMPLATES / f"{name}.j2").is_file()


def _environment(folder: Path | None) -> jinja2.Environment:
    """Return an environment for untrusted templates.

    They run in Jinja's sandbox, without access to Python's objects, and are read from no other
    folder than those of the project and of distlaunch.
    """
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Loader(jinja2.FileSystemLoader):
        """One that follows no symlink out of the project's folder."""

        def get_source(
            self, environment: jinja2.Environment, template: str
        ) -> tuple[str, str, Callable[[], bool]]:
            if folder:
                path = folder / OWN_TEMPLATES / template
                if path.is_file() and not path.resolve().is_relative_to(folder.resolve()):
                    raise jinja2.TemplateError(
                        f"{template} is a symlink out of the project's folder; copy the file there"
                    )
            return super().get_source(environment, template)

    folders = [*([folder / OWN_TEMPLATES] if folder else []), resources.templates()]
    environment = ImmutableSandboxedEnvironment(
        loader=Loader(folders),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters |= quoting.FILTERS
    return environment


def _location(problem: Exception, folder: Path, template: str) -> str:
    """Return which line of the project's templates raised, as ``templates/Dockerfile.j2:3``."""
    location = f"{OWN_TEMPLATES}/{template}"
    for frame in traceback.extract_tb(problem.__traceback__):
        file = Path(frame.filename)
        if file.is_relative_to(folder / OWN_TEMPLATES):
            location = f"{file.relative_to(folder).as_posix()}:{frame.lineno}"
    return location


def is_rendered(text: str) -> bool:
    """Whether distlaunch rendered a file that has not been changed since."""
    stamp = _STAMP.search(text)
    if stamp is None or not _DIRECTIVES.fullmatch(text, 0, stamp.start()):
        return False
    return stamp[1] == _hash(text[: stamp.start()] + text[stamp.end() :])


def stamped(text: str) -> str:
    """Put a line into a file that marks it as generated until it is changed."""
    stamp = (
        f"# rendered by distlaunch {__version__}, sha256 {_hash(text)}; "
        "once changed it is yours, and left as it is\n"
    )
    directives = _DIRECTIVES.match(text)
    end = directives.end() if directives else 0
    return text[:end] + stamp + text[end:]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
