from __future__ import annotations

import pytest

from distlaunch.render import templates

PLAIN = """\
FROM python:3.12-slim
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
ENTRYPOINT ["python", "-m", "trainer.task"]
"""
ON_GPUS = tuple(
    f"cluster.{pool}.accelerator={{type: NVIDIA_TESLA_T4, count: 1}}"
    for pool in ("chief", "workers")
)
DEFAULT = "image={repository: us-docker.pkg.dev/a/b/c, base: null}"
UNPINNED = "tensorflow==2.21.0\nkeras>=3.12,<3.16\nwandb\n"


@pytest.mark.parametrize(
    ("text", "are_checked"),
    [
        (PLAIN, True),
        (PLAIN.replace("RUN pip", "RUN cat <<< word && \\\n  pip"), True),
        (
            "ARG BASE=python:3.12\nFROM ${BASE} AS a\n" + PLAIN.replace("python:3.12-slim", "A"),
            True,
        ),
        (PLAIN.replace("requirements.txt", "other.txt"), False),
        (PLAIN.replace("RUN pip", "# RUN pip").replace("COPY req", "# COPY req"), False),
    ],
)
def test_the_requirements_that_a_dockerfile_names_are_checked(text, are_checked, bundled):
    bundled.write("Dockerfile", text)
    bundled.write("requirements.txt", UNPINNED)
    bundled.prepend("trainer/data.py", "import seaborn\n")  # the Dockerfile may install it
    unpinned = [("requirement-unpinned", "warning", "requirements.txt:3")]
    assert bundled.summary(DEFAULT) == unpinned * are_checked


def test_a_changed_copy_of_the_rendered_dockerfile_rewrites_the_requirements(bundled):
    bundled.write("requirements.txt", "tensorflow==2.21.0\nkeras>=3.12,<3.16\n")
    text = templates.recipe(bundled.order().job, bundled.folder).dockerfile
    bundled.write("Dockerfile", text + "# mine\n")
    assert bundled.problems() == []
    # It was rendered for machines without GPUs, and removes CUDA.
    [problem] = bundled.problems(*ON_GPUS)
    assert problem.code == "tensorflow-build"


@pytest.mark.parametrize(
    ("text", "override", "where"),
    [
        ("FROM company/base:1\n", "image.base=python:3.12", ["image.base"]),
        ("FROM python:3.12 AS a\nFROM a\n", "image.base=python:3.12", []),
        ("ARG B\nFROM $B\n", "image.base=python:3.12", []),
        ("FROM a\n", "image.requirements=requirements.txt", ["image.requirements"]),
        (PLAIN, "image.requirements=requirements.txt", []),
    ],
)
def test_settings_that_the_dockerfile_does_not_use(text, override, where, bundled):
    bundled.write("Dockerfile", text)
    problems = bundled.problems(DEFAULT, override)
    found = [each for each in problems if each.code == "dockerfile-wins"]
    assert [each.where for each in found] == where
    assert all("Dockerfile" in each.remedy for each in found)
