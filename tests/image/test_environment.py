import pytest

from distlaunch.image.context import Context, ContextFile
from distlaunch.image.cuda import LINK_COMMAND
from distlaunch.image.dockerfile import read_dockerfile
from distlaunch.image.environment import environment_of, pin_bases

DOCKERFILE = """\
FROM python:3.12 AS environment
ENV A=1
COPY ["requirements.txt", "/environment/requirements.txt"]
RUN sed -i s/a/b/ /environment/requirements.txt
RUN python -m pip install --no-cache-dir -r /environment/requirements.txt
WORKDIR /app
FROM environment
COPY . .
ENTRYPOINT ["python", "-m", "trainer.task"]
"""
DIGEST = "python@sha256:" + "0" * 64
FILES = ("a.txt", "requirements.txt", "trainer/task.py", "trainer/data/x.csv")


def context(tmp_path, **digests: str) -> Context:
    given = {path: digests.get(path.partition(".")[0], "0") for path in FILES}
    files = tuple(ContextFile(path, 0o644, 1, digest) for path, digest in given.items())
    return Context(tmp_path, files, repr(given), len(files))


def tag(tmp_path, text: str = DOCKERFILE, base: str = DIGEST, **digests: str) -> str:
    found = environment_of(
        pin_bases(read_dockerfile(text), {"python:3.12": base}), context(tmp_path, **digests)
    )
    assert found is not None
    return found.tag


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ENV A=1", "# a comment\n\nENV A=1"),
        ("COPY . .", "COPY . /app"),
        ("trainer.task", "trainer.other"),
        ("FROM environment", "# this image's own\nFROM environment"),
    ],
)
def test_what_is_no_part_of_the_environment_changes_nothing(before, after, tmp_path):
    assert tag(tmp_path, DOCKERFILE.replace(before, after)) == tag(tmp_path)


def test_code_changes_nothing(tmp_path):
    assert tag(tmp_path, a="1") == tag(tmp_path)


def test_each_part_of_the_environment_changes_its_tag(tmp_path):
    others = {
        tag(tmp_path),
        tag(tmp_path, base=DIGEST.replace("0", "1")),
        tag(tmp_path, requirements="1"),
        tag(tmp_path, DOCKERFILE.replace("A=1", "A=2")),
        tag(tmp_path, DOCKERFILE.replace("--no-cache-dir", "--no-deps")),
        tag(tmp_path, "ARG X=1\n" + DOCKERFILE),
    }
    assert len(others) == 6


@pytest.mark.parametrize(
    ("sources", "paths"),
    [
        ("requirements.txt", ("requirements.txt",)),
        ("./requirements.txt a.txt", ("a.txt", "requirements.txt")),
        ("*.txt", ("a.txt", "requirements.txt")),
        ("trainer", ("trainer/task.py", "trainer/data/x.csv")),
        ("trainer/", ("trainer/task.py", "trainer/data/x.csv")),
        ("trainer/data", ("trainer/data/x.csv",)),
        ("t*/*.py", ("trainer/task.py",)),
        (".", FILES),
        ("--chown=1:1 /a.txt", ("a.txt",)),
        ("--from=other a.txt", ()),
        ("https://example.com/a.txt", ()),
        ("missing.txt", ()),
    ],
)
def test_what_the_environment_copies_belongs_to_it(sources, paths, tmp_path):
    text = f"FROM a AS environment\nCOPY {sources} /x/\nFROM environment\n"
    found = environment_of(read_dockerfile(text), context(tmp_path))
    assert tuple(file.path for file in found.files) == paths


def test_without_such_a_stage_there_is_no_environment(tmp_path):
    assert environment_of(read_dockerfile("FROM a\nCOPY . .\n"), context(tmp_path)) is None


def test_stages_before_it_belong_to_it(tmp_path):
    text = "FROM b AS tools\nRUN make\n" + DOCKERFILE
    found = environment_of(read_dockerfile(text), context(tmp_path))
    assert found.bases == ("b", "python:3.12")
    assert found.text.startswith("FROM b AS tools\nRUN make\nFROM python:3.12 AS environment\n")
    assert tag(tmp_path, text) != tag(tmp_path)


def test_an_environment_is_parted_at_pip(tmp_path):
    before, command, after = environment_of(
        read_dockerfile(DOCKERFILE), context(tmp_path)
    ).parted_at_pip()
    assert before.splitlines()[-1] == "RUN sed -i s/a/b/ /environment/requirements.txt"
    told = "python -m pip install --no-cache-dir -r /environment/requirements.txt"
    assert command == ("/bin/sh", "-c", told)
    assert after == "WORKDIR /app\n"


def test_the_step_for_cuda_is_not_pips(tmp_path):
    text = DOCKERFILE.replace("WORKDIR", f"RUN {LINK_COMMAND}\nWORKDIR")
    before, command, after = environment_of(
        read_dockerfile(text), context(tmp_path)
    ).parted_at_pip()
    assert LINK_COMMAND not in before
    assert "pip install" in command[-1]
    assert after == f"RUN {LINK_COMMAND}\nWORKDIR /app\n"


def test_pip_in_the_form_of_an_array_is_run_as_that(tmp_path):
    text = 'FROM a AS environment\nRUN --network=host ["pip", "install", "x"]\nFROM environment\n'
    _, command, after = environment_of(read_dockerfile(text), context(tmp_path)).parted_at_pip()
    assert (command, after) == (("pip", "install", "x"), "")


def test_an_environment_without_pip_is_in_one_part(tmp_path):
    text = "FROM a AS environment\nRUN echo pip\nFROM environment\n"
    assert environment_of(read_dockerfile(text), context(tmp_path)).parted_at_pip() is None


def test_a_base_is_pinned_with_all_that_stands_beside_it():
    text = "FROM --platform=linux/amd64 python:3.12 as X\nRUN a\nFROM x\n"
    found = pin_bases(read_dockerfile(text), {"python:3.12": DIGEST})
    assert found.text == f"FROM --platform=linux/amd64 {DIGEST} AS x\nRUN a\nFROM x\n"
