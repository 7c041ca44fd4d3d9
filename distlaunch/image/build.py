"""Build an image as planned, and push it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError
from distlaunch.image.plan import BuildStrategy, BuiltImage
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.image.docker import Docker
    from distlaunch.image.environment import Environment
    from distlaunch.image.layers import Layer
    from distlaunch.image.plan import BuildInputs, ImagePlan
    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.append import AppendedImage
    from distlaunch.image.registry.manifests import ImageSettings
    from distlaunch.ui.events import Event


def execute_plan(
    plan: ImagePlan,
    show: Callable[[Event], None],
    *,
    push: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> BuiltImage:
    """Build and push what is missing of an image.

    Parameters
    ----------
    show
        Called with a notice for each step.
    push
        If false, Docker has the image afterwards, by its tag, and the registry is left alone.
    progress
        Called with a line that replaces the one before.

    Raises
    ------
    ImageError
        If something fails, with the remedy.
    """
    if plan.inputs is None:
        if not push:
            from distlaunch.image.docker import Docker

            with Docker(show, progress) as docker:
                docker.pull([str(plan.reference)])
        return BuiltImage(str(plan.reference), plan.digest, plan.strategy, 0)
    build = _Build(plan.inputs, plan.reference, show, progress)
    try:
        if not push:
            return build.build_locally()
        if plan.digest:
            return build.built(plan.digest, BuildStrategy.UP_TO_DATE, 0)
        if plan.inputs.environment is None:
            return build.build_whole()
        if plan.environment_digest:
            return build.append_code(plan.environment_digest, BuildStrategy.APPEND, 0)
        return build.append_code(*build.push_environment(plan.inputs.environment))
    finally:
        progress("")


@dataclass(frozen=True, slots=True)
class _Build:
    """The build of one image, which gets the name `target`."""

    inputs: BuildInputs
    target: Reference
    show: Callable[[Event], None]
    progress: Callable[[str], None]

    def docker(self) -> Docker:
        from distlaunch.image.docker import Docker

        return Docker(self.show, self.progress)

    def built(self, digest: str, strategy: BuildStrategy, sent: int) -> BuiltImage:
        return BuiltImage(str(self.target.with_digest(digest)), digest, strategy, sent)

    def append_code(self, environment: str, strategy: BuildStrategy, sent: int) -> BuiltImage:
        """Append the code to an environment that the registry has."""
        from distlaunch.image.layers import code_layer

        code = self.inputs.code
        if code is None:
            raise ImageError("the Dockerfile is not one that the code can be appended to")
        base = self.target.with_digest(environment)
        with tempfile.TemporaryDirectory(prefix="distlaunch-") as folder:
            layer = code_layer(self.inputs.context, Path(folder, "code.tar.gz"), root=code.root)
            self.show(Notice(f"appending the code ({layer.size:,} bytes) to {self.target.name}"))
            digest, more = self._append(base, self.target, layer, code.settings)
        return self.built(digest, strategy, sent + more)

    def push_environment(self, environment: Environment) -> tuple[str, BuildStrategy, int]:
        """Build the environment with Docker or of wheels; return its digest and the bytes sent."""
        from distlaunch.image.docker import NoDockerError

        reference = self.target.with_tag(environment.tag)
        try:
            docker = self.docker()
        except NoDockerError as error:
            digest, sent = self._push_wheels(environment, reference, error)
            return digest, BuildStrategy.WHEELS, sent
        with docker:
            self._build_environment(docker, environment, reference)
            digest, sent = _push(docker, reference)
        return digest, BuildStrategy.DOCKER, sent

    def build_whole(self) -> BuiltImage:
        """Build the user's own Dockerfile and push the image."""
        with self.docker() as docker:
            self._build_dockerfile(docker)
            digest, sent = _push(docker, self.target)
        return self.built(digest, BuildStrategy.DOCKER, sent)

    def build_locally(self) -> BuiltImage:
        """Build the image in Docker and push nothing."""
        inputs = self.inputs
        with self.docker() as docker:
            if inputs.environment is None:
                self._build_dockerfile(docker)
            else:
                environment = self.target.with_tag(inputs.environment.tag)
                self._build_environment(docker, inputs.environment, environment)
                text = inputs.dockerfile.last_on(str(environment))
                docker.build(text, inputs.folder, inputs.context.files, self.target)
        return BuiltImage(str(self.target), None, BuildStrategy.DOCKER, 0)

    def _build_environment(
        self, docker: Docker, environment: Environment, reference: Reference
    ) -> None:
        """Build the environment in Docker, unless it is there."""
        from distlaunch.image.pip_secrets import pip_secrets

        if docker.has_image(str(reference)):
            return
        self.show(Notice(f"building the environment {reference}"))
        text, secrets = environment.text, {}
        if environment.has_pip_step:
            folder = self.inputs.folder
            files = [(folder / file.path).read_bytes() for file in environment.files]
            secrets = pip_secrets([text, *(data.decode(errors="replace") for data in files)])
        if secrets and not docker.has_buildkit:
            raise ImageError(
                "pip's settings on this machine (package index, certificate or login) are passed "
                "to a build as BuildKit secrets, and no docker command has BuildKit; install "
                "docker-buildx, or remove the settings"
            )
        if secrets:
            text = environment.with_secrets(secrets).text
        docker.pull(environment.bases)
        docker.build(text, self.inputs.folder, environment.files, reference, secrets)

    def _build_dockerfile(self, docker: Docker) -> None:
        from distlaunch.image.pip_secrets import dockerfile_secrets

        dockerfile = self.inputs.dockerfile
        self.show(Notice(f"building the image {self.target}"))
        if dockerfile.needs_buildkit and not docker.has_buildkit:
            raise ImageError(
                "the Dockerfile needs BuildKit (RUN --mount, a here-document or '# syntax'), and "
                "no docker command has it; install docker-buildx"
            )
        docker.pull(dockerfile.bases)
        secrets = dockerfile_secrets() if "type=secret" in dockerfile.text else {}
        files = self.inputs.context.files
        docker.build(dockerfile.text, self.inputs.folder, files, self.target, secrets)

    def _push_wheels(
        self, environment: Environment, reference: Reference, no_docker: ImageError
    ) -> tuple[str, int]:
        """Build the environment without Docker, if its Dockerfile runs nothing but pip."""
        from distlaunch.image.wheels import environment_layer, plan_installation

        try:
            plan = plan_installation(environment, self.inputs.folder)
            warning = f"{no_docker}; assembling the environment of wheels, with pip alone"
            self.show(Notice(warning, "warning"))
            with tempfile.TemporaryDirectory(prefix="distlaunch-") as folder:
                layer = environment_layer(plan, Path(folder), progress=self.progress)
                return self._append(plan.base, reference, layer, plan.settings)
        except ImageError as error:
            raise ImageError(f"{error}; with Docker: {no_docker}") from error

    def _append(
        self, base: Reference, target: Reference, layer: Layer, settings: ImageSettings
    ) -> AppendedImage:
        from distlaunch.image.registry.append import append_layers

        return append_layers(base, target, [layer], settings, progress=self.progress)


def _push(docker: Docker, reference: Reference) -> tuple[str, int]:
    """Push an image; return its digest, and the bytes of the layers that were sent."""
    from distlaunch.image.docker import is_sent
    from distlaunch.image.registry.client import Registry

    digest, sent = docker.push(reference)
    with Registry(reference) as registry:
        image = registry.image(digest)
    layers = zip(image.config["rootfs"]["diff_ids"], image.manifest["layers"], strict=True)
    return image.digest, sum(layer["size"] for diff_id, layer in layers if is_sent(diff_id, sent))
