"""A user's Dockerfile: whether Docker can build it, and what its containers start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks.project.dockerfile import image_problems
from distlaunch.image import plan_image
from distlaunch.image.dockerfile_parser import read_dockerfile
from distlaunch.image.entrypoint import read_contents
from distlaunch.job.load import load_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.checks.problem import Problem

HEAD = "FROM python:3.12-slim\nWORKDIR /app\nCOPY . .\n"
MODULE = 'ENTRYPOINT ["python", "-m", "trainer.task"]\n'
ARGS = "args=[--epochs=3]"
TUNED = (
    "tuning={metric: acc, goal: maximize, trials: 2, parameters: {epochs: {type: integer, min: 1, "
    "max: 3}}}"
)


@pytest.fixture
def problems(tmp_path) -> Callable[..., list[Problem]]:
    """Return the problems of a Dockerfile with the files trainer/task.py and src/run.py."""

    def find(text: str, *overrides: str, **files: str) -> list[Problem]:
        named = {"Dockerfile": text, "trainer/task.py": "", "src/run.py": ""} | files
        pool = "{chief: {machine: n1-standard-4}}"
        named["distlaunch.yaml"] = f"name: p\nimage: {{}}\ncluster: {pool}\n"
        for name, content in named.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
            path.chmod(0o755 if content.startswith("#!") else 0o644)
        job = load_job(tmp_path, overrides=overrides).job
        inputs = plan_image(job, tmp_path, push=False).inputs
        assert inputs
        return list(image_problems(job, inputs))

    return find


# The program and its args


@pytest.mark.parametrize("entry", ['ENTRYPOINT ["./run.sh"]', 'ENTRYPOINT ["bash", "run.sh"]'])
def test_a_script_that_does_not_use_its_args_drops_them(entry, problems):
    script = "#!/bin/sh\npython -m trainer.task\n"
    [problem] = problems(f"{HEAD}{entry}\n", ARGS, **{"run.sh": script})
    assert (problem.code, problem.severity) == ("args-not-passed", "warning")
    assert (problem.where, problem.remedy) == ("run.sh", 'end its program with "$@"')
    for used in (' "$@"', ' --epochs "$1"', "\nwhile getopts e: o; do :; done"):
        assert problems(f"{HEAD}{entry}\n", ARGS, **{"run.sh": f"{script[:-1]}{used}\n"}) == []
    assert problems(f"{HEAD}{entry}\n", **{"run.sh": script}) == []


@pytest.mark.parametrize("platform", ["linux/amd64", "$BUILDPLATFORM", "${TARGETPLATFORM}"])
def test_the_machines_run_amd64(platform, problems):
    text = HEAD.replace("FROM", f"FROM --platform={platform}") + MODULE
    assert problems(text) == []
    [problem] = problems(text.replace(platform, "linux/arm64"))
    assert (problem.code, problem.where) == ("image-architecture", "Dockerfile:1")
    assert problem.remedy == "remove --platform"


def test_a_base_of_tensorflow_starts_a_shell(problems):
    base = "tensorflow/tensorflow:2.16.1"
    for args, code in (((), "no-program"), ((ARGS,), "args-not-passed")):
        [problem] = problems(HEAD.replace("python:3.12-slim", base), *args)
        assert problem.code == code
    assert problems(HEAD.replace("python:3.12-slim", f"{base}-jupyter")) == []


@pytest.mark.parametrize(
    ("dockerfile", "line"),
    [
        (f'{HEAD}CMD ["python", "-m", "trainer.task"]\n', 4),
        (f"{HEAD}CMD python -m trainer.task\n", 4),
        (f"{HEAD}ENTRYPOINT python -m trainer.task\n", 4),
        (f"{HEAD}ENTRYPOINT ['python', '-m', 'trainer.task']\n", 4),
        (f'{HEAD}ENTRYPOINT ["sh", "-c", "python -m trainer.task"]\n', 4),
        (f'{HEAD}ENTRYPOINT exec python -m trainer.task "$@"\n', 4),  # the first one is $0
        (f'{HEAD}ENTRYPOINT ["python"]\nCMD ["-m", "trainer.task"]\n', 4),
        (f'{HEAD}ENTRYPOINT ["python"]\nCMD ["trainer/task.py"]\n', 4),
        (f"FROM python:3.12\nWORKDIR /app\nCOPY . .\n{MODULE}FROM python:3.12\nUSER 1\n", 5),
    ],
)
@pytest.mark.parametrize("override", [ARGS, TUNED])
def test_args_that_do_not_reach_the_program(problems, dockerfile, line, override):
    found = problems(dockerfile, override)
    [problem] = [each for each in found if each.severity == "error"]
    assert (problem.code, problem.where) == ("args-not-passed", f"Dockerfile:{line}")
    program = problem.remedy.partition("ENTRYPOINT ")[2].partition(" in its")[0]
    assert json.loads(program)[0] == "python"
    assert json.loads(program)[-1] in ("trainer.task", "trainer/task.py")


def test_an_image_without_a_program(problems):
    for end in ("", "CMD bash", 'ENTRYPOINT ["python"]', "ENTRYPOINT ['sh', 'a']", "ENTRYPOINT []"):
        [problem] = problems(f"{HEAD}{end}\n")
        assert problem.code == "no-program"
        assert 'write ENTRYPOINT ["python", "-m", "trainer.task"]' in problem.remedy


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)))
def test_any_array_is_the_program(words):
    dockerfile = read_dockerfile(f"FROM python:3\nENTRYPOINT {json.dumps(words)}\n")
    assert read_contents(dockerfile, []).argv((), ("a",)) == (*words, "a")


# Its file


@pytest.mark.parametrize(
    ("dockerfile", "path"),
    [
        (HEAD + MODULE.replace("task", "tsk"), "/app/trainer/tsk.py"),
        (HEAD.replace("COPY . .\n", "") + MODULE, "/app/trainer/task.py"),
        (f'{HEAD}ENTRYPOINT ["python", "-u", "run.py"]\n', "/app/run.py"),
        (f"{HEAD}ENTRYPOINT exec python run.py\n", "/app/run.py"),
        (f'{HEAD}ENTRYPOINT ["bash", "train.sh"]\n', "/app/train.sh"),
        (f'{HEAD}ENTRYPOINT ["/entrypoint.sh"]\n', "/entrypoint.sh"),
        (f"FROM python:3.12\nCOPY . /app\n{MODULE}", "/trainer/task.py"),
        (f"FROM python:3.12\nWORKDIR /app\nCOPY trainer .\n{MODULE}", "/app/trainer/task.py"),
        (
            "FROM python:3.12\nENV HOME=/x\nWORKDIR $HOME\nCOPY src src\nRUN pip install six\n"
            'CMD ["python", "run.py"]\n',
            "/x/run.py",
        ),
    ],
)
def test_a_program_that_is_not_in_the_image(problems, dockerfile, path):
    [problem] = problems(dockerfile)
    assert (problem.code, problem.what) == ("program-missing", f"{path} is not in the image")
    assert ("src/run.py" in problem.remedy) == path.endswith("run.py")
    if "COPY" not in dockerfile:
        assert problem.remedy.endswith("or COPY it to there")
    if path.endswith("tsk.py"):
        assert problem.remedy == "did you mean 'task.py'?"


@pytest.mark.parametrize(
    "dockerfile",
    [
        f"FROM nvidia/cuda:12.4.1-base\nCOPY . .\n{MODULE}",
        f'{HEAD}{MODULE}CMD ["--epochs=5"]\n',
        f'{HEAD}ENTRYPOINT ["python", "-m", "trainer.task", "train"]\nCMD ["/data/in"]\n',
        f'{HEAD}ENTRYPOINT ["sh", "-c", "exec python -m trainer.task \\"$@\\"", "sh"]\n',
        f"{HEAD}ENTRYPOINT python -m trainer.task $0 $@\n",
        "FROM made/elsewhere:1\nCOPY . .\n",
        f"FROM python:3.12 AS code\nWORKDIR /app\nCOPY . .\n{MODULE}FROM code\nUSER 1\n",
        f'{HEAD}RUN cp src/run.py .\nENTRYPOINT ["python", "run.py"]\n',
        f'{HEAD}COPY --from=python:3 /run.py .\nENTRYPOINT ["python", "run.py"]\n',
        f'{HEAD}ADD https://example.com/run.py .\nENTRYPOINT ["python", "run.py"]\n',
        'FROM made:1\nWORKDIR /app\nCOPY . .\nENTRYPOINT ["python", "run.py"]\n',
        'FROM made:1\nCOPY . .\nENTRYPOINT ["python", "run.py"]\n',
        f'{HEAD}ENTRYPOINT ["python", "-m", "official.train"]\n',
        f"FROM python:3.12\nENV PYTHONPATH /app\nCOPY . /app\n{MODULE}",
        f'{HEAD}ENTRYPOINT ["python", "src/run.py"]\n',
        'FROM python:3.12\nCOPY src/run.py /app/\nENTRYPOINT ["python", "/app/run.py"]\n',
        'FROM python:3.12\nCOPY src/run.py /app/a.py\nENTRYPOINT ["python", "/app/a.py"]\n',
        'FROM python:3.12\nCOPY ["sr*", "/app"]\nENTRYPOINT ["python", "/app/run.py"]\n',
        f'{HEAD}ENTRYPOINT ["/usr/local/bin/tool"]\n',
        f'{HEAD}ENTRYPOINT ["python", "symlink/run.py"]\n',
    ],
)
def test_a_program_that_is_in_the_image_or_may_be_gets_its_args(problems, tmp_path, dockerfile):
    (tmp_path / "symlink").symlink_to("src")
    for override in (ARGS, TUNED):
        assert problems(dockerfile, override) == []


SCRIPT = f'{HEAD}ENTRYPOINT ["/app/start.sh"]\n'


def test_a_script_that_linux_cannot_run(problems):
    found = problems(SCRIPT, **{"start.sh": "#!/bin/sh\r\nexit\r\n"})
    assert [(each.code, each.where) for each in found] == [("program-not-executable", "start.sh")]
    assert "CR LF" in found[0].what
    [problem] = problems(SCRIPT, **{"start.sh": "# no interpreter\n"})
    assert "chmod +x start.sh" in problem.remedy
    run = f'{HEAD}ENTRYPOINT ["bash", "start.sh"]\n'
    assert problems(run, **{"start.sh": "exit\n"}) == []
    assert len(problems(run, **{"start.sh": "exit\r\n"})) == 1
    chmod = "RUN chmod +x start.sh && sed -i 's/\\r//' start.sh"
    for step in (chmod, "COPY --chmod=755 start.sh ."):
        fixed = SCRIPT.replace("ENTRYPOINT", f"{step}\nENTRYPOINT")
        assert problems(fixed, **{"start.sh": "exit\n"}) == []


# The build


def test_sources_of_copy_that_are_not_in_the_build(problems):
    found = problems(
        "",
        "image.dockerfile=trainer/Dockerfile",
        **{
            "trainer/Dockerfile": "FROM x\nCOPY task.py trainer ./\nCOPY src/run.py .\n"
            "COPY nothing* [n]o <<EOF /x\nEOF\nCOPY ../up .\nADD https://a.b/c git@x:y .\n"
            "COPY src trainer/. /y/\n",
            ".dockerignore": "src/*\n",
        },
    )
    assert {each.code for each in found} == {"copy-source-missing"}
    lines = [(each.where, each.what, each.remedy) for each in found]
    assert [line[0] for line in lines] == [f"trainer/Dockerfile:{line}" for line in (2, 3, 6)]
    assert "write trainer/task.py" in lines[0][2]
    assert ".dockerignore excludes" in lines[1][1]
    assert "there is no ../up" in lines[2][1]


def test_an_argument_of_the_build_without_a_value(problems):
    text = (
        f"ARG HOST\nARG TAG=1\nFROM ${{HOST}}/base:$TAG\nARG FOLDER\nARG TARGETARCH\n"
        f"COPY ${{FOLDER}} ${{FOLDER}}/$TARGETARCH ${{OTHER:-src}} /app/\n{MODULE}"
    )
    found = [each for each in problems(text) if each.code == "build-arg-missing"]
    assert [each.where for each in found] == ["Dockerfile:3", *["Dockerfile:6"] * 2]
    assert "image.build_args: {HOST: VALUE}" in found[0].remedy
    found = problems(text, "image.build_args={HOST: localhost:1, FOLDER: src}")
    assert [each.what for each in found] == ["there is no src/amd64 in the project's folder"]


def test_stages_that_no_instruction_uses_and_stages_that_are_missing(problems):
    base = "FROM python:3.12 AS base\nWORKDIR /app\nCOPY . .\n"
    targets = f'{base}FROM base AS train\n{MODULE}FROM base AS serve\nENTRYPOINT ["/bin/serve"]\n'
    [problem] = problems(targets, ARGS)
    assert (problem.code, problem.severity) == ("stage-unused", "warning")
    assert (problem.where, problem.remedy) == (
        "Dockerfile:4",
        "set image.target: train, or the last one's name",
    )
    assert problems(targets, ARGS, "image.target=TRAIN") == []
    used = f"{base}FROM scratch AS tools\nFROM base\nRUN --mount=from=tools,target=/t x\n{MODULE}"
    assert problems(used) == []
    copies = (
        "COPY --from=bases /a /a\nCOPY --from=1 /a /a\nCOPY --from=0 / /b\nCOPY --from=nginx / /"
    )
    found = problems(f"{base}FROM base\n{copies}\n{MODULE}")
    assert [(each.code, each.where) for each in found] == [
        ("stage-missing", f"Dockerfile:{line}") for line in (5, 6)
    ]
    assert found[0].remedy == "did you mean 'base'?"


def test_secrets_and_keys_that_a_build_does_not_have(problems):
    mounts = [
        *("type=secret,id=github_token", "id=wandb,type=secret,env=KEY", "type=ssh"),
        *("type=secret,target=/root/.npmrc", "type=secret,id=pip.conf", "type=cache,target=/x"),
        "type=secret,id=netrc,target=/root/.netrc",
    ]
    steps = "".join(f"RUN --mount={mount} true\n" for mount in mounts)
    found = problems(f"{HEAD}{steps}{MODULE}")
    assert {each.code for each in found} == {"build-secret-missing"}
    names = [each.what.partition("the build has no ")[2] for each in found]
    assert names == ["secret github_token", "secret wandb", "ssh agent", "secret .npmrc"]


def test_a_rendered_dockerfile_has_no_problem(bundled):
    job = bundled.order().job
    inputs = plan_image(job, bundled.folder, push=False).inputs
    assert list(image_problems(job, inputs)) == []
