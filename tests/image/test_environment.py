import pytest

from distlaunch.image.context import Context, ContextFile
from distlaunch.image.cuda import LINK_COMMAND
from distlaunch.image.dockerfile import read_dockerfile
from distlaunch.image.plan import environment_of, pin_bases

DOCKERFILE = """\
FROM python:3.12 AS environment
ENV A=1
COPY ["requirements.txt", "/environment/requirements.txt"]
RUN sed -i s/a/b/ /environment/requirements.txt
RUN python -m pip install --no-cache-dir -r /environment/requirements.txt
"""
LAST = """\
WORKDIR /app
FROM environment
COPY . .
ENTRYPOINT ["python", "-m", "trainer.task"]
"""
DOCKERFILE += LAST
DIGEST = "python@sha256:" + "0" * 64
FILES = ("a.txt", "requirements.txt", "trainer/task.py", "trainer/data/x.csv")


def context(tmp_path, **digests: str) -> Context:
    given = {path: digests.get(path.partition(".")[0], "0") for path in FILES}
    files = tuple(ContextFile(path, 0o644, 1, digest) for path, digest in given.items())
    return Context(tmp_path, files, repr(given), len(files))


def tag(tmp_path, text: str = DOCKERFILE, base: str = DIGEST, **digests: str) -> str:
    environment = environment_of(
        pin_bases(read_dockerfile(text), {"python:3.12": base}), context(tmp_path, **digests)
    )
    assert environment is not None
    return environment.tag


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ENV A=1", "# a comment\n\nENV A=1"),
        ("trainer.task", "trainer.other"),
        ("FROM environment", "# this image's own\nFROM environment"),
    ],
)
def test_what_is_no_part_of_the_environment_changes_nothing(before, after, tmp_path):
    assert tag(tmp_path, DOCKERFILE.replace(before, after)) == tag(tmp_path)


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
        ("*.txt", ("a.txt", "requirements.txt")),
        ("trainer", ("trainer/task.py", "trainer/data/x.csv")),
        ("t*/*.py", ("trainer/task.py",)),
        (".", FILES),
        ("--chown=1:1 /a.txt", ("a.txt",)),
        ("--from=other a.txt", ()),
        ("https://example.com/a.txt", ()),
    ],
)
def test_what_the_environment_copies_belongs_to_it(sources, paths, tmp_path):
    text = f"FROM a AS environment\nCOPY {sources} /x/\n{LAST}"
    environment = environment_of(read_dockerfile(text), context(tmp_path))
    assert tuple(file.path for file in environment.files) == paths


def test_stages_before_it_belong_to_it(tmp_path):
    text = "FROM b AS tools\nRUN make\n" + DOCKERFILE
    environment = environment_of(read_dockerfile(text), context(tmp_path))
    assert environment.dockerfile.bases == ("b", "python:3.12")
    assert environment.dockerfile.text.startswith(
        "FROM b AS tools\nRUN make\nFROM python:3.12 AS environment\n"
    )
    assert tag(tmp_path, text) != tag(tmp_path)


def test_secrets_are_mounted_into_pip_steps_alone(tmp_path):
    text = DOCKERFILE.replace("WORKDIR", f"RUN {LINK_COMMAND}\nWORKDIR")
    text = text.replace("ENV A=1", 'RUN --network=host ["pip", "install", "a b"]\nRUN echo pip')
    environment = environment_of(read_dockerfile(text), context(tmp_path))
    mounted = environment.with_secrets(["pip.env", "netrc"])
    mounts = " ".join(f"--mount=type=secret,id={name},mode=0444" for name in ("pip.env", "netrc"))
    variables = "set -a; . /run/secrets/pip.env; set +a;"
    before, after = environment.dockerfile.text.splitlines(), mounted.splitlines()
    assert [line for line in after if line not in before] == [
        f"RUN {mounts} --network=host {variables} pip install 'a b'",
        f"RUN {mounts} {variables} python -m pip install --no-cache-dir -r "
        "/environment/requirements.txt",
    ]
    assert len(before) == len(after)


def test_a_base_is_pinned_with_all_that_stands_beside_it():
    text = "FROM --platform=linux/amd64 python:3.12 as X\nRUN a\nFROM x\n"
    environment = pin_bases(read_dockerfile(text), {"python:3.12": DIGEST})
    assert environment.text == f"FROM --platform=linux/amd64 {DIGEST} AS x\nRUN a\nFROM x\n"
