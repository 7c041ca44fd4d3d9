from __future__ import annotations

import importlib

import pytest

from distlaunch.checks.project.source import Import, read, verdict

MODULES = (
    *("argparse", "ast", "collections", "csv", "dataclasses", "datetime", "decimal", "email"),
    *("enum", "functools", "hashlib", "http", "inspect", "json", "logging", "mimetypes", "os"),
    *("pathlib", "pickle", "platform", "queue", "random", "re", "shutil", "socket"),
    *("ssl", "statistics", "string", "subprocess", "tarfile", "tempfile", "threading", "types"),
    *("typing", "unittest", "urllib", "uuid", "warnings", "weakref", "zipfile"),
)


ALWAYS, SOMETIMES, OPTIONAL = ([("a", None, how)] for how in ("always", "sometimes", "optional"))


def imports(text):
    return [(each.module, each.name, each.need) for each in read(text.encode()).imports]


@pytest.mark.parametrize("name", MODULES)
def test_what_can_be_imported_from_a_module_is_among_its_names(name):
    module = importlib.import_module(name)
    with open(module.__file__, "rb") as file:  # noqa: PTH123
        found = read(file.read())
    assert found.problem is None
    if found.names is not None:
        below = {each for each in vars(module) if each.startswith("_")}
        submodules = {
            each for each, value in vars(module).items() if isinstance(value, type(importlib))
        }
        assert vars(module).keys() - below - submodules <= found.names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a.b as c, d", [("a.b", None, "always"), ("d", None, "always")]),
        ("from a import b, c", [("a", "b", "always"), ("a", "c", "always")]),
        ("from a import *", ALWAYS),
        ("def f():\n  import a", SOMETIMES),
        ("class A:\n  import a", ALWAYS),
        ("with open(x):\n  import a", ALWAYS),
        ("with contextlib.suppress(ImportError):\n  import a", OPTIONAL),
        ("try:\n  import a\nfinally:\n  pass", ALWAYS),
        ("try:\n  import a\nexcept KeyError:\n  import b", [*ALWAYS, ("b", None, "sometimes")]),
        ("try:\n  import a\nexcept ImportError:\n  import b", [*OPTIONAL, ("b", None, "optional")]),
        ("try:\n  import a\nexcept (E, ModuleNotFoundError):\n  pass", OPTIONAL),
        ("try:\n  if x:\n    import a\nexcept:\n  pass", OPTIONAL),
        ("if TYPE_CHECKING:\n  import a\nelse:\n  import b", [("b", None, "always")]),
        ("if typing.TYPE_CHECKING:\n  import a", []),
        ("if not TYPE_CHECKING:\n  import a", SOMETIMES),
        ("if x:\n  import a", SOMETIMES),
        ('if __name__ == "__main__":\n  import a', ALWAYS),
        ("for x in y:\n  import a", SOMETIMES),
        ("match x:\n  case 1:\n    import a", SOMETIMES),
    ],
)  # fmt: skip
def test_an_import_counts_by_where_it_stands(text, expected):
    assert imports(text) == expected


def test_dots_before_a_module_are_counted():
    found = read(b"\nfrom ..a import b\nfrom . import c")
    assert found.imports == (Import(2, "a", 2, "b"), Import(3, "", 1, "c"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = [b, *c] = d = 1", {"a", "b", "c", "d"}),
        ("a: int = 1\na.b = 2\na[0] = 3", {"a"}),
        ("for a, (b, [c]) in d: e = 1\nelse: f = 2", {"a", "b", "c", "e", "f"}),
        ("with a as b, c as (d, e): pass", {"b", "d", "e"}),
        ("try: a = 1\nexcept E: b = 2\nelse: c = 3\nfinally: d = 4", {"a", "b", "c", "d"}),
        ("def a():\n  global b\n  if c:\n    global d\n  e = 1", {"a", "b", "d"}),
        ("async def a(): pass\nclass B:\n  c = 1", {"a", "B"}),
        ("match a:\n  case [b, *c]: d = 1\n  case {**e}: pass", {"b", "c", "d", "e"}),
        ("while a: b = 1", {"b"}),
    ],
)  # fmt: skip
def test_names_are_those_that_a_module_binds(text, names):
    assert read(text.encode()).names == names


@pytest.mark.parametrize(
    "text",
    ["from a import *", "globals()['a'] = 1", "def __getattr__(name): pass", "print(a := 1)",
     "sys.modules[__name__] = A()", "exec('a = 1')"],
)  # fmt: skip
def test_names_that_only_a_run_would_tell_are_not_told(text):
    assert read(text.encode()).names is None


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (b"a = 1\nb = (", 2, "'(' was never closed"),
        (b"print 'a'", 1, "missing parentheses"),
        (b"def f():\nreturn 1", 2, "expected an indented block"),
        (b"<<<<<<< HEAD\n", 1, "invalid syntax"),
        ("a = 'ä'".encode("latin-1"), 1, "utf-8"),
        (b"a = 1\0", 1, "null byte"),
        (b"-" * 100_000 + b"1", 1, "nested too deeply"),
    ],
)
def test_what_is_no_python_is_told_alike_whether_or_not_it_is_looked_into(text, line, said):
    for problem in (verdict(text), read(text).problem):
        assert problem is not None
        assert problem[0] == line
        assert said in problem[1]


def test_a_file_may_say_its_encoding_and_bear_a_mark():
    assert verdict("# coding: latin-1\na = 'ä'".encode("latin-1")) is None
    assert verdict("\ufeffa = 1".encode()) is None
    assert read("# coding: latin-1\na = 'ä'".encode("latin-1")).names == {"a"}


def test_what_only_the_compiler_refuses_is_told_of_what_is_run():
    found = read(b"a = 1\nreturn a")
    assert found.problem == (2, "'return' outside function")


def test_syntax_that_the_image_is_too_old_for_is_told():
    text = b"try:\n  pass\nexcept* ValueError:\n  pass"
    if verdict(text):
        pytest.skip("this Python is too old for it itself")
    problem = read(text, (3, 10)).problem
    assert problem is not None
    assert "3.11" in problem[1]
    assert read(text, (3, 11)).problem is None


def test_odd_escapes_are_no_matter():
    assert read(rb"a = '\d'").problem is None
    assert verdict(rb"a = '\d'") is None


@pytest.mark.parametrize(
    ("text", "searches"),
    [("import sys\nsys.path.insert(0, 'lib')", True), ("import sys\nsys.exit()", False)],
)
def test_it_is_seen_whether_modules_are_looked_for_elsewhere(text, searches):
    assert read(text.encode()).searches_elsewhere is searches
