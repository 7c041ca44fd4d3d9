"""What is read from an environment's Dockerfile, where no engine runs it."""

from __future__ import annotations

from dataclasses import replace

import projects
import pytest
import registries

from distlaunch.image.context import read_context
from distlaunch.image.dockerfile import read_dockerfile
from distlaunch.image.environment import environment_of
from distlaunch.image.wheels.from_wheels import what_pip_does
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.render.templates import recipe

T4 = Cluster(Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)))


@pytest.fixture
def installation(registry, tmp_path):
    """Read the Dockerfile of a project for GPUs on an image that sets no variables."""

    def read_installation(change=lambda text: text):
        base = registries.fresh(registry, "base")
        registries.Recipe(config={}).push(base)
        folder = projects.project(tmp_path / "digits")
        job = replace(projects.job(None, str(base)), cluster=T4)
        rendered = recipe(job, folder)
        context = read_context(folder, rendered.ignore)
        environment = environment_of(read_dockerfile(change(rendered.dockerfile)), context)
        return what_pip_does(job, folder, environment, tmp_path)

    return read_installation


def test_a_base_without_path_has_dockers(installation):
    found = installation()
    assert found.link_cuda
    assert found.settings.env["PATH"] == (
        "/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )


def test_an_older_template_without_the_cuda_step_is_still_read(installation):
    found = installation(lambda text: text[: text.index("# CUDA")] + text[text.index("WORKDIR") :])
    assert not found.link_cuda
    assert "LD_LIBRARY_PATH" not in found.settings.env


def test_a_changed_cuda_step_needs_an_engine(installation):
    assert installation(lambda text: text.replace("ln -sf", "ln -s")) is None
