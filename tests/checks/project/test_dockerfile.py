from __future__ import annotations

import pytest

from distlaunch.checks.project.dockerfile import Dockerfile
from distlaunch.render import templates

PLAIN = """\
FROM python:3.12-slim
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
ENTRYPOINT ["python", "-m", "trainer.task"]
"""
GPUS = tuple(
    f"cluster.{pool}.accelerator={{type: NVIDIA_TESLA_T4, count: 1}}"
    for pool in ("chief", "workers")
)
SILENT = "image={repository: us-docker.pkg.dev/a/b/c, base: null}"
WRONG = "tensorflow==2.15.0\nkeras==2.15.0\nkeras==3.1\nwandb\n"


def told(made, *sets):
    return [(each.code, each.severity, each.where) for each in made.problems(SILENT, *sets)]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("COPY requirements.txt .\n", "COPY . .\n"),
        PLAIN.replace("pip install", "python3 -m pip install --upgrade pip && pip3 install"),
        PLAIN.replace("RUN pip", "RUN apt-get update && apt-get install -y libgl1 && \\\n  pip"),
        PLAIN.replace(
            "RUN pip install --no-cache-dir -r requirements.txt",
            'RUN ["pip", "install", "--requirement=/tmp/requirements.txt"]',
        ),
        PLAIN.replace("FROM python:3.12-slim", "ARG BASE=python:3.12\nFROM ${BASE} AS a\nFROM A"),
    ],
)
def test_requirements_that_a_dockerfile_plainly_installs_are_looked_at(text, made):
    made.write("Dockerfile", text)
    made.write("requirements.txt", WRONG)
    made.begin("trainer/data.py", "import seaborn\n")
    found = told(made)
    assert ("requirement-clash", "error", "requirements.txt:3") in found
    assert ("requirement-clash", "error", "requirements.txt:1") in found
    assert ("requirement-unpinned", "warning", "requirements.txt:4") in found
    assert ("import-missing", "warning", "trainer/data.py:1") in found


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("python:3.12-slim", "company/base:1"),
        PLAIN.replace("python:3.12-slim", "$BASE"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt wandb"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt -c constraints.txt"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt -r more.txt"),
        PLAIN.replace("-r requirements.txt", "-r other.txt"),
        PLAIN.replace("-r requirements.txt", "-r requirements.txt && pip install wandb"),
        PLAIN.replace("pip install", "apt-get install nvidia-cuda-toolkit && pip install"),
        PLAIN.replace("RUN pip", "# RUN pip"),
        PLAIN.replace("COPY . .", "COPY --from=other /venv /venv"),
    ],
)
def test_what_a_dockerfile_installs_in_other_ways_is_its_own_business(text, made):
    made.write("Dockerfile", text)
    made.write("requirements.txt", WRONG)
    made.begin("trainer/model.py", "import seaborn\n")
    assert [code for code, *_ in told(made) if code != "requirement-clash"] == []
    assert ("requirement-unpinned", "warning", "requirements.txt:4") not in told(made)


def test_a_dockerfile_installs_the_tensorflow_that_stands_there(made):
    made.write("Dockerfile", PLAIN)
    for name, remedy in [
        ("tensorflow", "write tensorflow[and-cuda]"),
        ("tensorflow-cpu", "write tensorflow[and-cuda]"),
    ]:
        made.write("requirements.txt", f"{name}==2.21.0\nkeras>=3.12,<3.16\n")
        [problem] = made.problems(SILENT, *GPUS)
        assert (problem.code, problem.severity) == ("tensorflow-build", "error")
        assert problem.remedy == remedy
        assert told(made) == []
    made.write("requirements.txt", "tensorflow[and-cuda]==2.21.0\nkeras>=3.12,<3.16\n")
    assert told(made, *GPUS) == []


def test_a_rendered_dockerfile_that_was_changed_is_known_for_what_it_does(made):
    order = made.order()
    made.write("Dockerfile", templates.dockerfile(order.job, made.folder) + "# and mine\n")
    assert made.problems() == []
    made.write("requirements.txt", "tensorflow==2.21.0\nkeras>=3.12,<3.16\n")
    text = templates.dockerfile(order.job, made.folder) + "# and mine\n"
    made.write("Dockerfile", text)
    assert made.problems() == []
    # It was made for machines without GPUs, and takes CUDA out.
    [problem] = made.problems(*GPUS)
    assert problem.code == "tensorflow-build"


def test_the_base_to_name_is_named_in_the_dockerfile(made):
    made.write("Dockerfile", PLAIN)
    made.write("requirements.txt", "tensorflow==2.15.0\nkeras==2.15.0\n")
    problems = made.problems(SILENT)
    assert "write FROM python:3.11-slim in Dockerfile" in [each.remedy for each in problems]


def test_modules_that_the_dockerfile_may_put_elsewhere_are_not_missed(made):
    made.write("Dockerfile", PLAIN.replace("COPY . .", "COPY src/ ."))
    made.write("src/helpers.py", "")
    made.write("src/deep/__init__.py", "")
    made.begin("trainer/data.py", "import helpers\nimport deep.more\n")
    assert told(made) == []


@pytest.mark.parametrize(
    ("text", "sets", "where"),
    [
        ("FROM company/base:1\n", [SILENT, "image.base=python:3.12"], ["image.base"]),
        ("FROM python:3.12\n", [SILENT, "image.base=python:3.12"], []),
        ("FROM python:3.12 AS a\nFROM a\n", [SILENT, "image.base=python:3.12"], []),
        ("ARG B\nFROM $B\n", [SILENT, "image.base=python:3.12"], []),
        (
            "FROM python:3.12\n",
            [SILENT, "image.requirements=requirements.txt"],
            ["image.requirements"],
        ),
        (PLAIN, [SILENT, "image.requirements=requirements.txt"], []),
        (PLAIN, [SILENT], []),
    ],
)
def test_what_the_job_file_says_and_a_dockerfile_does_not_do_is_told(text, sets, where, made):
    made.write("Dockerfile", text)
    found = [each for each in made.problems(*sets) if each.code == "dockerfile-wins"]
    assert [each.where for each in found] == where
    assert all("Dockerfile" in each.remedy for each in found)


def test_of_a_file_that_cannot_be_read_nothing_else_is_told(made):
    made.write("Dockerfile", PLAIN)
    made.write("requirements.txt", "-r absent.txt\n")
    assert [code for code, *_ in told(made)] == ["requirement-unreadable"]


def test_stages_are_followed_to_their_image():
    text = "from --platform=linux/amd64 python:3.11 as One\nFROM one AS two\nFROM two\n"
    assert Dockerfile("Dockerfile", text).bases == ("python:3.11",) * 3
    assert Dockerfile("Dockerfile", "ARG A\nFROM $A\n").base is None
    assert Dockerfile("Dockerfile", "").base is None
