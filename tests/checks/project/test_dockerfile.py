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
PIP = "RUN pip install --no-cache-dir -r requirements.txt"
ON_GPUS = tuple(
    f"cluster.{pool}.accelerator={{type: NVIDIA_TESLA_T4, count: 1}}"
    for pool in ("chief", "workers")
)
DEFAULT = "image={repository: us-docker.pkg.dev/a/b/c, base: null}"
UNPINNED = "tensorflow==2.21.0\nkeras>=3.12,<3.16\nwandb\n"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("COPY requirements.txt .\n", "COPY . .\n"),
        PLAIN.replace("pip install", "python3 -m pip install --upgrade pip && pip3 install"),
        PLAIN.replace("RUN pip", "RUN apt-get update && apt-get install -y libgl1 && \\\n  pip"),
        PLAIN.replace(PIP, 'RUN ["pip", "install", "--requirement=/tmp/requirements.txt"]'),
        PLAIN.replace("FROM python:3.12-slim", "ARG BASE=python:3.12\nFROM ${BASE} AS a\nFROM A"),
        PLAIN.replace(PIP, f"RUN cat <<< word\n{PIP}"),
    ],
)
def test_the_requirements_that_a_dockerfile_installs_are_checked(text, bundled):
    bundled.write("Dockerfile", text)
    bundled.write("requirements.txt", UNPINNED)
    bundled.prepend("trainer/data.py", "import seaborn\n")
    assert bundled.found(DEFAULT) == [
        ("import-missing", "warning", "trainer/data.py:1"),
        ("requirement-unpinned", "warning", "requirements.txt:3"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("python:3.12-slim", "company/base:1"),
        PLAIN.replace("python:3.12-slim", "$BASE"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt wandb"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt -c constraints.txt"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt -r more.txt"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt --target /x"),
        PLAIN.replace("-r requirements.txt", "-r other.txt"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt && uv pip install wandb"),
        PLAIN.replace("pip install", "apt-get install nvidia-cuda-toolkit && pip install"),
        PLAIN.replace("RUN pip", "# RUN pip"),
        PLAIN.replace("COPY . .", "COPY --from=other /venv /venv"),
        PLAIN.replace(PIP, f"RUN <<EOF\npip install wandb\nEOF\n{PIP}"),
    ],
)
def test_other_dockerfiles_may_install_anything(text, bundled):
    bundled.write("Dockerfile", text)
    bundled.write("requirements.txt", UNPINNED)
    bundled.prepend("trainer/model.py", "import seaborn\n")
    assert bundled.problems(DEFAULT) == []


def test_a_changed_copy_of_the_rendered_dockerfile_rewrites_the_requirements(bundled):
    bundled.write("requirements.txt", "tensorflow==2.21.0\nkeras>=3.12,<3.16\n")
    text = templates.dockerfile(bundled.order().job, bundled.folder)
    bundled.write("Dockerfile", text + "# mine\n")
    assert bundled.problems() == []
    # It was rendered for machines without GPUs, and removes CUDA.
    [problem] = bundled.problems(*ON_GPUS)
    assert problem.code == "tensorflow-build"


def test_modules_that_the_dockerfile_may_move_are_not_missing(bundled):
    bundled.write("Dockerfile", PLAIN.replace("COPY . .", "COPY src/ ."))
    bundled.write("src/helpers.py", "")
    bundled.write("src/deep/__init__.py", "")
    bundled.prepend("trainer/data.py", "import helpers\nimport deep.more\n")
    assert bundled.problems(DEFAULT) == []


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


def test_nothing_else_is_reported_of_unreadable_requirements(bundled):
    bundled.write("Dockerfile", PLAIN)
    bundled.write("requirements.txt", "-r absent.txt\n")
    bundled.prepend("trainer/data.py", "import seaborn\n")
    assert bundled.found(DEFAULT) == [("requirement-unreadable", "error", "absent.txt")]
