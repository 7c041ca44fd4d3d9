"""What is read of ``data.py``: each text is a module, and what is found of it."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from distlaunch.checks.data import source
from distlaunch.checks.trainer import find
from distlaunch.job.model import Program

IMPORT = "from trainer.distributed.input import Arrays, Records\n"
HERE = "/app/trainer/data.py"


@pytest.fixture
def read(project):
    def read(text: str, *, env: dict[str, str] | None = None, is_all: bool = True) -> source.Source:
        project.write("trainer/data.py", IMPORT + dedent(text))
        project.has(env=env or {})
        found = source.read(project.folder, project.job, find(project.order), is_all=is_all)
        assert found is not None
        return found

    return read


@pytest.fixture
def pattern(read):
    """Return the pattern that an expression comes to, behind some lines, as it is found."""

    def pattern(expression: str, before: str = "", **more) -> str | None:
        text = f"{dedent(before)}\ndef training():\n    return Records({expression}, parse=parse)\n"
        return read(text, **more).given["training"].pattern

    return pattern


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("'data/a-*'", "data/a-*"),
        ("'data/' 'a-*'", "data/a-*"),
        ("'data/' + 'a-*'", "data/a-*"),
        ("f'{DATA}/a-{3:03}'", "data/a-003"),
        ("f'{DATA!s}/a'", "data/a"),
        ("'%s/a-%d' % (DATA, 3)", "data/a-3"),
        ("'%s/a' % DATA", "data/a"),
        ("'{}/{name}'.format(DATA, name='a')", None),
        ("'{}/{}'.format(DATA, 'a')", "data/a"),
        ("DATA.rstrip('a') + '/x'", "dat/x"),
        ("DATAS['train']", "data/train"),
        ("DATAS['test']", None),
        ("MANY[1]", "b"),
        ("MANY[2]", None),
        ("MANY[9]", None),
        ("SPLIT", "train"),
        ("pattern='x'", "x"),
        ("parse, pattern='x'", None),
        ("str(Path(__file__).resolve().parents[1] / 'data' / 'a-*')", "/app/data/a-*"),
        ("Path(__file__).parent.parent / 'data'", "/app/data"),
        ("Path(__file__).with_name('a')", "/app/trainer/a"),
        ("Path(DATA, 'a').as_posix()", "data/a"),
        ("Path(DATA).joinpath('a').absolute()", "/app/data/a"),
        ("pathlib.Path.cwd() / DATA", "/app/data"),
        ("Path.home() / 'a'", "~/a"),
        (
            "os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'd')",
            "/app/trainer/../d",
        ),
        ("os.path.join(os.getcwd(), 'data')", "/app/data"),
        ("join(DATA, 'a')", "data/a"),
        ("os.path.expanduser('~/data')", "~/data"),
        ("os.path.normpath('a/../b')", "b"),
        ("tf.io.gfile.join('gs://b', 'a')", "gs://b/a"),
        ("os.path.abspath('gs://b/a')", None),
        ("DATA if SPLIT == 'train' else 'other'", "data"),
        ("DATA if SPLIT != 'train' else 'other'", "other"),
        ("DATA if SPLIT in ('test', 'validation') else 'other'", "other"),
        ("DATA if not SPLIT else 'other'", "other"),
        ("DATA if unknown() else 'other'", None),
        ("None or DATA", "data"),
        ("'' or DATA", "data"),
        ("DATA and 'x'", "x"),
        ("unknown() or DATA", None),
        ("[DATA][0]", "data"),
        ("WHO_KNOWS", None),
        ("'a' * 3", None),
        ("'%0999999999d' % 3", None),
        ("f'{3:0999999999}'", None),
        ("'{:999999999}'.format(3)", None),
        ("LONG", None),
        ("open('x').read()", None),
        ("lambda: 3", None),
        ("3", None),
        ("DATA()", None),
        ("DATA.missing", None),
        ("Path(DATA).parents[7]", None),
    ],
)
def test_patterns_that_are_put_together(pattern, expression, found):
    before = """\
        import os
        import pathlib
        from os.path import join
        from pathlib import Path

        import tensorflow as tf

        DATA: str = "data"
        SPLIT = "train"
        DATAS = {"train": f"{DATA}/train", "test": unknown()}
        MANY = ("a", "b", unknown())
        LONG = "x" * 3
    """
    before = dedent(before) + "LONG = 'x' + 'x'\n" + "LONG = LONG + LONG\n" * 60
    assert pattern(expression, before) == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("os.environ['DATA']", "gs://b/d"),
        ("os.environ.get('DATA')", "gs://b/d"),
        ("os.environ.get('DATA', 'data')", "gs://b/d"),
        ("os.getenv('DATA')", "gs://b/d"),
        ("os.environ.get('NONE', 'data')", "data"),
        ("os.environ.get('NONE') or 'data'", "data"),
        ("os.environ['NONE']", None),
        ("'x' if 'DATA' in os.environ else 'data'", "x"),
        ("'x' if 'NONE' not in os.environ else 'data'", "x"),
        ("'x' if 'AIP_MODEL_DIR' in os.environ else 'data'", None),
        ("os.environ.get('TF_CONFIG', 'data')", None),
        ("os.environ.get('CLOUD_ML_JOB_ID', 'data')", None),
    ],
)
def test_variables_are_those_of_the_container(pattern, expression, found):
    assert pattern(expression, "import os", env={"DATA": "gs://b/d"}) == found


def test_an_image_of_one_s_own_may_set_more_variables(pattern):
    expression = "os.environ.get('NONE', 'data')"
    assert pattern(expression, "import os", is_all=False) is None


def test_variables_of_the_chief_s_own(pattern, project):
    chief = replace(project.job.cluster.chief, program=Program(env={"DATA": "gs://c"}))
    project.has(cluster=replace(project.job.cluster, chief=chief))
    assert pattern("os.environ['DATA']", "import os", env={"DATA": "gs://b"}) == "gs://c"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def training():\n    name = 'a'\n    return Records(name)\n", "a"),
        ("def training():\n    return records('a')\ndef records(x):\n    return Records(x)\n", "a"),
        (
            "def training():\n    return records('a', end='b')\n"
            "def records(x, y='-', *, end, more=1):\n    return Records(x + y + end)\n",
            "a-b",
        ),
        (
            "def training():\n    return make('a', 'b')\ndef make(x):\n    return Records(x)\n",
            None,
        ),
        ("def training():\n    return records()\ndef records(x):\n    return Records(x)\n", None),
        (
            "def training():\n    return records(y=1)\ndef records(x):\n    return Records(x)\n",
            None,
        ),
        (
            "def training():\n    return records('a')\ndef records(*x):\n    return Records('b')\n",
            None,
        ),
        ("def training():\n    return training()\n", None),
        ("def training():\n    with open('x') as x:\n        return Records('a')\n", "a"),
        ("def training():\n    with name() as name:\n        return Records(name)\n", None),
        (
            "def training():\n    if True:\n        return Records('a')\n    return Records('b')\n",
            "a",
        ),
        (
            "def training():\n    if 0:\n        pass\n    else:\n        return Records('b')\n",
            "b",
        ),
        (
            "def training():\n    if x():\n        return Records('a')\n    return Records('b')\n",
            None,
        ),
        (
            "def training():\n    a = 'a'\n    if x():\n        a = 'b'\n    return Records(a)\n",
            None,
        ),
        ("def training():\n    if x():\n        raise ValueError\n    return Records('a')\n", "a"),
        ("def training():\n    for a in b:\n        pass\n    return Records(a)\n", None),
        (
            "def training():\n    try:\n        import a\n    except E:\n        a = 1\n"
            "    return Records(a)\n",
            None,
        ),
        ("def training():\n    a, b = 'a', 'b'\n    return Records(a)\n", None),
        ("def training():\n    a = 'a'\n    del a\n    return Records(a)\n", None),
        ("def training():\n    raise ValueError\n", None),
        ("def training():\n    pass\n", None),
        ("@cached\ndef training():\n    return Records('a')\n", None),
        ("training = lambda: Records('a')\n", None),
        ("A = 'a'\ndef training():\n    return Records(A)\nA = 'b'\n", "b"),
        (
            "if __name__ == '__main__':\n    A = 'a'\nelse:\n    A = 'b'\n"
            "def training():\n    return Records(A)\n",
            "b",
        ),
        ("def training():\n    return Records(*a)\n", None),
        ("def training():\n    return Records(**a)\n", None),
        ("def training():\n    return Records(pattern='a', parse=b)\n", "a"),
        ("def training():\n    return Records(parse=b, pattern='a')\n", "a"),
        ("raise ValueError\ndef training():\n    return Records('a')\n", None),
        ("class Data:\n    pass\ndef training():\n    return Records(Data.a)\n", None),
        ("def training():\n    def name():\n        return 'a'\n    return Records(name())\n", "a"),
        (
            "def training():\n    print('x')\n    x = 3\n    x += 1\n    return Records(f'{x}')\n",
            None,
        ),
    ],
)
def test_functions_are_followed(read, text, found):
    given = read(text).given.get("training")
    assert (given.pattern if given else None) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainer/config.py", "from trainer.config import DATA"),
        ("trainer/config.py", "from .config import DATA"),
        ("trainer/config.py", "from trainer import config\nDATA = config.DATA"),
        ("trainer/config.py", "from . import config as c\nDATA = c.DATA"),
        ("trainer/config.py", "import trainer.config\nDATA = trainer.config.DATA"),
        ("trainer/config/__init__.py", "from .config import DATA"),
        ("settings.py", "from settings import DATA"),
        ("settings.py", "import settings as s\nDATA = s.DATA"),
    ],
)
def test_names_of_the_project_s_own_modules(pattern, project, name, text):
    project.write(name, 'DATA = "gs://b/d"\n')
    assert pattern("DATA", text) == "gs://b/d"


def test_modules_that_import_each_other(pattern, project):
    project.write("trainer/config.py", "from trainer.data import NAME\nDATA = 'x'\n")
    assert pattern("DATA", "NAME = 'a'\nfrom .config import DATA") == "x"


def test_names_that_are_handed_on(pattern, project):
    project.write("trainer/config.py", "from .paths import DATA\n")
    project.write("trainer/paths.py", "from trainer.config import NONE\nDATA = 'x'\n")
    assert pattern("DATA", "from .config import DATA") == "x"
    project.write("trainer/config.py", "from .paths import NONE\n")
    assert pattern("NONE", "from .config import NONE") is None


def test_a_module_s_own_place_is_its_own(pattern, project):
    project.write("lib/paths.py", "from pathlib import Path\nROOT = Path(__file__).parent\n")
    assert pattern("ROOT / 'a'", "from lib.paths import ROOT") == "/app/lib/a"


@pytest.mark.parametrize(
    "text",
    [
        "from .distributed.input import Records as R\ndef training():\n    return R('a')\n",
        "from .distributed import input\ndef training():\n    return input.Records('a')\n",
        "import trainer.distributed.input as i\ndef training():\n    return i.Records('a')\n",
        "import trainer\ndef training():\n    return trainer.distributed.input.Records('a')\n",
    ],
)
def test_records_by_any_name(read, text):
    found = read(text)
    assert found.given["training"].kind == "Records"
    assert not found.is_own


@pytest.mark.parametrize(
    ("made", "batch"),
    [
        ("Dataset.range(9).shuffle(3).batch(60)", 60),
        ("Dataset.range(9).batch(batch_size=60).prefetch(tf.data.AUTOTUNE)", 60),
        ("Dataset.range(9).batch(ROWS, drop_remainder=True).map(f)", 60),
        ("Dataset.range(9).batch(rows())", None),
        ("Dataset.range(9)", None),
        ("Dataset.range(9).batch(60).unbatch()", None),
        ("Dataset.range(9).batch(2).batch(60)", 60),
    ],
)
def test_data_sets_of_one_s_own(read, made, batch):
    found = read(
        f"import tensorflow as tf\nROWS = 60\ndef training():\n    return tf.data.{made}\n"
    )
    assert found.is_own
    assert found.given["training"].kind == "Dataset"
    assert found.given["training"].batch == batch


def test_what_it_gives_is_taken_for_one_s_own_where_nothing_of_ours_is_imported(project):
    project.write("trainer/data.py", "def training():\n    return load()\n")
    found = source.read(project.folder, project.job, find(project.order), is_all=True)
    assert found.is_own
    assert not found.given


def test_arrays_and_no_validation(read):
    found = read("def training():\n    return Arrays(x)\ndef validation():\n    return None\n")
    assert found.given["training"].kind == "Arrays"
    assert not found.is_own
    assert "validation" not in found.given


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        ("import logging\nlogging.basicConfig()\nprint('x')\n", False),
        ("import numpy as np\nnp.random.seed(1)\nlog.info('x')\n'a text'\n", False),
        ("import keras\nkeras.utils.set_random_seed(1)\n", False),
        ("download()\n", True),
        ("import keras\nkeras.utils.get_file('x')\n", True),
        ("if unknown():\n    download()\n", True),
        ("for each in unknown:\n    download(each)\n", True),
        ("if __name__ == '__main__':\n    download()\n", False),
        ("def never():\n    download()\n", False),
        ("def now():\n    download()\n    return 1\nX = now()\n", True),
    ],
)
def test_what_is_done_before_the_data_are_read(read, text, acts):
    assert read(f"{text}def training():\n    return Records('a')\n").acts is acts


def test_a_module_that_takes_too_long_is_left(read):
    calls = "\n".join(f"def f{n}(): return f{n + 1}() + f{n + 1}()" for n in range(7))
    slow = f"{calls}\ndef f7(): return ({'1, ' * 1000})[0]\nX = f0()\n"
    assert read(f"{slow}def training():\n    return Records('a')\n").given == {}


def test_an_expression_that_is_too_deep_is_left(read, project):
    deep = f"X = {'+'.join(['1'] * 600)}\ndef training():\n    return Records('a')\n"
    assert read(deep).given["training"].pattern == "a"
    assert read(deep.replace("('a')", "(X)")).given["training"].pattern is None


@pytest.mark.parametrize(
    "use",
    [
        "X = 1 if T else 2",
        "X = T == U",
        "X = T in (U, U)",
        "X = {T: 1}",
        "X = T + U",
        "X = P / 'x'",
        "X = P.joinpath(P)",
    ],
)
def test_what_doubles_with_each_line_is_left(read, use):
    doubled = "T = (T, T)\nU = (U, U)\nP = P / P\n" * 60
    start = "from pathlib import Path\nT = U = (1, 1)\nP = Path('x')\n"
    given = "def training():\n    return Records('a' if T else P)\n"
    found = read(f"{start}{doubled}{use}\n{given}")
    assert found.given["training"].pattern is None
