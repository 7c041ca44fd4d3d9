"""Build an image as planned, and push it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError
from distlaunch.events import Event, Notice
from distlaunch.image.cloud_build import secrets_refusal
from distlaunch.image.layers import Layer, code_layer, scratch_folder
from distlaunch.image.pip_secrets import dockerfile_secrets, pip_secrets, variable_refusals
from distlaunch.image.plan import (
    BuildInputs,
    BuildStrategy,
    Environment,
    ImagePlan,
    with_secrets,
)
from distlaunch.image.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distlaunch.image.cloud_build import CloudBuild
    from distlaunch.image.context import ContextFile
    from distlaunch.image.dockerfile_parser import Dockerfile
    from distlaunch.image.registry.manifests import ImageSettings

_NO_BUILDKIT = (
    "pip's settings on this machine (package index, certificate or login) are passed to a build as "
    "BuildKit secrets, and no docker command has BuildKit; install docker-buildx, or remove the "
    "settings"
)
_OR_IN_CLOUD = ", or build with --set image.builder=cloud-build"


def execute_plan(
    plan: ImagePlan,
    show: Callable[[Event], None],
    *,
    push: bool = True,
    progress: Callable[[str], None] = lambda _: None,
    cloud_build: CloudBuild | None = None,
) -> str:
    """Build and push what is missing of an image, and return its URI.

    `show` is called with a notice for each step, `progress` with a line that replaces the one
    before. Unless `push` is true, Docker has the image afterwards, by its tag, and the registry is
    left alone. `cloud_build` builds a plan for it. ImageError is raised with the remedy if
    something fails.
    """
    if plan.inputs is None:
        if not push:
            from distlaunch.image.docker import Docker

            with Docker(show, progress) as docker:
                docker.pull([str(plan.reference)])
        return str(plan.reference)
    builder = None
    if cloud_build and plan.strategy == BuildStrategy.CLOUD_BUILD:
        builder = replace(cloud_build, show=show, progress=progress)
    build = _Build(plan.inputs, plan.reference, show, progress, builder)
    environment = plan.inputs.environment
    try:
        digest = plan.digest if push else None
        if push and digest is None and environment:
            base = plan.environment_digest or build.push_environment(environment)
            digest = build.append_code(environment, base)
        digest = digest or build.build_image(push=push)
        return str(plan.reference.with_digest(digest) if digest else plan.reference)
    finally:
        progress("")


@dataclass(frozen=True, slots=True)
class _Build:
    """The build of one image, which gets the name `target`."""

    inputs: BuildInputs
    target: Reference
    show: Callable[[Event], None]
    progress: Callable[[str], None]
    cloud_build: CloudBuild | None = None  # in place of Docker

    def append_code(self, environment: Environment, digest: str) -> str:
        """Append the code to an environment that the registry has; return the image's digest."""
        code = environment.code
        with scratch_folder() as folder:
            file = folder / "code.tar.gz"
            layer = code_layer(self.inputs.context, file, root=code.workdir or "/")
            self.show(Notice(f"appending the code ({layer.size:,} bytes) to {self.target.name}"))
            return self._append(self.target.with_digest(digest), self.target, layer, code)

    def push_environment(self, environment: Environment) -> str:
        """Build the environment with Docker, Cloud Build or of wheels; return its digest."""
        from distlaunch.docker_client import NoDockerError

        reference = self.target.with_tag(environment.tag)
        try:
            self._build(environment.dockerfile, environment.files, reference)
        except NoDockerError as error:
            return self._push_wheels(environment, reference, error)
        return _digest(reference)

    def build_image(self, *, push: bool) -> str | None:
        """Build the whole image; return its digest if it is pushed."""
        from distlaunch.docker_client import NoDockerError

        try:
            self._build(self.inputs.dockerfile, self.inputs.files, self.target, push=push)
        except NoDockerError as error:
            raise ImageError(f"{error}{_OR_IN_CLOUD if push else ''}") from error
        return _digest(self.target) if push else None

    def _build(
        self,
        dockerfile: Dockerfile,
        files: Sequence[ContextFile],
        tag: Reference,
        *,
        push: bool = True,
    ) -> None:
        """Build a Dockerfile and push it, in Docker with pip's settings as secrets."""
        from distlaunch.image.docker import Docker

        spec = self.inputs.recipe.environment
        lines = spec.requirements.lines() if spec and spec.requirements else ()
        if refused := [*variable_refusals((each.location, each.text) for each in lines)]:
            raise ImageError(problems=refused)
        folder, building = self.inputs.folder, Notice(f"building {tag}")
        if self.cloud_build:
            if secrets := build_secrets(self.inputs):
                raise ImageError(problems=[secrets_refusal(secrets)])
            self.show(building)
            self.cloud_build.build(dockerfile, folder, files, tag)
            return
        with Docker(self.show, self.progress) as docker:
            if tag == self.target or not docker.has_image(str(tag)):
                self.show(building)
                secrets = build_secrets(self.inputs)
                if self.inputs.environment and secrets:
                    if not docker.has_buildkit:
                        raise ImageError(_NO_BUILDKIT)
                    dockerfile = with_secrets(dockerfile, secrets)
                docker.build(dockerfile, folder, files, tag, secrets)
            if push:
                docker.push(tag)

    def _push_wheels(
        self, environment: Environment, reference: Reference, no_docker: ImageError
    ) -> str:
        """Build the environment without Docker, if its Dockerfile is distlaunch's."""
        from distlaunch.image.wheels import install_environment

        spec = self.inputs.recipe.environment
        if spec is None:
            template = "the project's templates/Dockerfile.j2"
            raise ImageError(
                f"Docker is needed for {template}; {no_docker}{_OR_IN_CLOUD}"
            ) from no_docker
        base = Reference.parse(environment.dockerfile.stages[0].base)
        try:
            warning = f"{no_docker}; assembling the environment of wheels, with uv alone"
            self.show(Notice(warning, "warning"))
            with scratch_folder() as folder:
                layer, settings = install_environment(spec, base, folder, self.progress)
                return self._append(base, reference, layer, settings)
        except ImageError as error:
            if error.problems[0].where:  # lines of the requirements, with their remedy
                raise
            raise ImageError(f"{error}; with Docker: {no_docker}{_OR_IN_CLOUD}") from error

    def _append(
        self, base: Reference, target: Reference, layer: Layer, settings: ImageSettings
    ) -> str:
        from distlaunch.image.registry.client import append_layers

        return append_layers(base, target, [layer], settings, progress=self.progress)


def build_secrets(inputs: BuildInputs) -> dict[str, str]:
    """Return what the steps of a build may mount, by its id: pip's settings of this machine."""
    environment, text = inputs.environment, inputs.dockerfile.text
    if environment is None:
        return dockerfile_secrets() if "type=secret" in text else {}
    copied = [(inputs.folder / file.path).read_bytes() for file in environment.project_files]
    return pip_secrets([text, *(data.decode(errors="replace") for data in copied)])


def _digest(reference: Reference) -> str:
    """Return the digest of an image that was pushed."""
    from distlaunch.image.registry.client import Registry

    with Registry(reference) as registry:
        return registry.image().digest
