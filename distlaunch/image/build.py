"""A plan is carried out: what is missing is built and pushed."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError
from distlaunch.image.plan import BuildStrategy, BuiltImage
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distlaunch.image.context import ContextFile
    from distlaunch.image.engine.client import Engine
    from distlaunch.image.environment import Environment
    from distlaunch.image.layers import Layer
    from distlaunch.image.plan import BuildInputs, ImagePlan
    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.config import Settings
    from distlaunch.ui.events import Event


def execute_plan(
    plan: ImagePlan,
    see: Callable[[Event], None],
    *,
    push: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> BuiltImage:
    """Build what a plan says, and push it.

    Parameters
    ----------
    see
        Who is told what happens.
    push
        Whether to push; if not, the engine has the image afterwards, by its tag.
    progress
        Who is shown how far it is: a line that the next one replaces.

    Raises
    ------
    ImageError
        If something fails, with the remedy.
    """
    inputs = plan.inputs
    if inputs is None:
        if not push:
            _fetch(str(plan.reference), see, progress)
        return BuiltImage(str(plan.reference), plan.digest, plan.strategy, 0)
    work = _Work(inputs, plan.reference, see, progress)
    try:
        if not push:
            return work.build_locally()
        if plan.digest:
            return work.built(plan.digest, BuildStrategy.UP_TO_DATE, 0)
        if inputs.environment is None:
            return work.build_as_a_whole()
        if plan.environment_digest:
            return work.append(plan.environment_digest, BuildStrategy.APPEND, 0)
        return work.append(*work.environment(inputs.environment))
    finally:
        progress("")


@dataclass(frozen=True, slots=True)
class _Work:
    """An image that is being made.

    Parameters
    ----------
    target
        What it is going to be called.
    """

    inputs: BuildInputs
    target: Reference
    see: Callable[[Event], None]
    progress: Callable[[str], None]

    def built(self, digest: str, strategy: BuildStrategy, sent: int) -> BuiltImage:
        return BuiltImage(str(self.target.with_digest(digest)), digest, strategy, sent)

    def append(self, environment: str, strategy: BuildStrategy, sent: int) -> BuiltImage:
        """Lay the code over an environment that the registry has."""
        from distlaunch.image.layers import code_layer

        code = self.inputs.code
        if code is None:
            raise ImageError("the Dockerfile is not one that code can be appended to")
        base = self.target.with_digest(environment)
        with tempfile.TemporaryDirectory(prefix="distlaunch-") as folder:
            layer = code_layer(self.inputs.context, Path(folder, "code.tar.gz"), root=code.root)
            self._say(f"appending the code ({layer.size:,} bytes) to {self.target.name}")
            digest, more = self._appended(base, self.target, layer, code.settings)
        return self.built(digest, strategy, sent + more)

    def environment(self, environment: Environment) -> tuple[str, BuildStrategy, int]:
        """See that the registry gets it; return its digest, by what means, and bytes sent."""
        from distlaunch.image.engine.client import Engine
        from distlaunch.image.engine.problems import NoEngineError

        name = self.target.with_tag(environment.tag)
        try:
            engine = Engine(self.see, self.progress)
        except NoEngineError as problem:
            return self._from_wheels(environment, name, problem)
        with engine:
            self._build_environment(engine, environment, name)
            digest, sent = _pushed(engine, name)
        return digest, BuildStrategy.DOCKER, sent

    def build_as_a_whole(self) -> BuiltImage:
        """Have an engine build what nobody but it understands."""
        from distlaunch.image.engine.client import Engine

        with Engine(self.see, self.progress) as engine:
            self._build_whole(engine)
            digest, sent = _pushed(engine, self.target)
        return self.built(digest, BuildStrategy.DOCKER, sent)

    def build_locally(self) -> BuiltImage:
        """Build it and push nothing."""
        from distlaunch.image.engine.client import Engine

        inputs = self.inputs
        with Engine(self.see, self.progress) as engine:
            if inputs.environment is None:
                self._build_whole(engine)
            else:
                environment = self.target.with_tag(inputs.environment.tag)
                self._build_environment(engine, inputs.environment, environment)
                text = inputs.dockerfile.last_on(str(environment))
                self._build(engine, text, inputs.context.files, self.target)
        return BuiltImage(str(self.target), None, BuildStrategy.DOCKER, 0)

    def _from_wheels(
        self, environment: Environment, name: Reference, no_engine: ImageError
    ) -> tuple[str, BuildStrategy, int]:
        """Make an environment without an engine, where its Dockerfile does no more than pip can."""
        from distlaunch.image.wheels import environment_layer
        from distlaunch.image.wheels.from_wheels import what_pip_does

        inputs = self.inputs
        with tempfile.TemporaryDirectory(prefix="distlaunch-") as folder:
            scratch = Path(folder)
            job = inputs.job
            found = what_pip_does(job, inputs.folder, environment, scratch) if job else None
            if found is None:
                raise ImageError(
                    f"{no_engine}; nothing but pip can run without one, and the Dockerfile runs "
                    "more"
                ) from None
            self.see(Notice(f"{no_engine}; it is made of wheels, with pip alone", "warning"))
            try:
                layer = environment_layer(
                    found.base,
                    found.requirements,
                    Path(folder, "environment.tar.gz"),
                    link_cuda=found.link_cuda,
                    progress=self.progress,
                )
            except ImageError as problem:
                raise ImageError(f"{problem}; or with an engine: {no_engine}") from problem
            digest, sent = self._appended(found.base, name, layer, found.settings)
        return digest, BuildStrategy.WHEELS, sent

    def _appended(
        self, base: Reference, target: Reference, layer: Layer, settings: Settings
    ) -> tuple[str, int]:
        from distlaunch.image.registry.append import append

        done = append(base, target, [layer], settings, progress=self.progress)
        return done.digest, done.sent

    def _build_environment(self, engine: Engine, environment: Environment, name: Reference) -> None:
        """Have the engine build an environment, unless it has it."""
        from distlaunch.image.engine.pip_settings import pip_settings

        if engine.has(str(name)):
            return
        self._say(f"building the environment {name}")
        _pull(engine, environment.bases)
        settings = pip_settings(_texts(self.inputs.folder, environment))
        parts = environment.parted_at_pip() if settings else None
        if parts is None:
            self._build(engine, environment.text, environment.files, name)
            return
        before, command, after = parts
        image = self._build(engine, before, environment.files)
        self._say("installing with this machine's settings of pip, which stay out of the image")
        image = engine.run(image, settings.around(command), settings.environment())
        if after:
            image = self._build(engine, f"FROM {image}\n{after}", environment.files)
        engine.tag(image, name)  # not before it is whole

    def _build_whole(self, engine: Engine) -> None:
        self._say(f"building the image {self.target}")
        dockerfile, files = self.inputs.dockerfile, self.inputs.context.files
        if dockerfile.needs_buildkit:
            self._build_with_buildkit(dockerfile.text, files)
            engine.check(str(self.target))
        else:
            _pull(engine, dockerfile.bases)
            self._build(engine, dockerfile.text, files, self.target)

    def _build(
        self,
        engine: Engine,
        text: str,
        files: Iterable[ContextFile],
        name: Reference | None = None,
    ) -> str:
        """Have the engine build a Dockerfile and return the image's id."""
        from distlaunch.image.engine.build_context import DOCKERFILE, build_context

        with build_context(text, self.inputs.folder, files) as context:
            return engine.build(context, DOCKERFILE, tag=str(name) if name else None)

    def _build_with_buildkit(self, text: str, files: Iterable[ContextFile]) -> None:
        from distlaunch.image.engine import buildkit
        from distlaunch.image.engine.build_context import DOCKERFILE, build_context

        with build_context(text, self.inputs.folder, files) as context:
            buildkit.build(context, DOCKERFILE, str(self.target), self.see, self.progress)

    def _say(self, text: str) -> None:
        self.see(Notice(text))


def _fetch(image: str, see: Callable[[Event], None], progress: Callable[[str], None]) -> None:
    """Have the engine get an image, unless it has it."""
    from distlaunch.image.engine.client import Engine

    with Engine(see, progress) as engine:
        _pull(engine, [image])


def _pull(engine: Engine, images: Iterable[str]) -> None:
    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.credentials import credentials

    for image in images:
        if not engine.has(image):
            reference = Reference.parse(image)
            engine.pull(reference, credentials(reference.host))


def _pushed(engine: Engine, reference: Reference) -> tuple[str, int]:
    """Push an image; return its digest, and the bytes of the layers that were sent."""
    from distlaunch.image.registry.client import Registry
    from distlaunch.image.registry.credentials import credentials

    pushed = engine.push(reference, credentials(reference.host))
    with Registry(reference) as registry:
        image = registry.image(pushed.digest)
    layers = zip(image.config["rootfs"]["diff_ids"], image.manifest["layers"], strict=True)
    sent = sum(layer["size"] for diff_id, layer in layers if pushed.has_sent(diff_id))
    return image.digest, sent


def _texts(folder: Path, environment: Environment) -> list[str]:
    """Return what says where packages are from: the Dockerfile, and the requirements files."""
    read = ((folder / file.path).read_bytes() for file in environment.files)
    return [environment.text, *(data.decode(errors="replace") for data in read)]
