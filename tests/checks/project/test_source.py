from __future__ import annotations

import pytest

from distlaunch.checks.project.imports import read_source


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"a = 1\nb = (", 2, "'(' was never closed"),
        (b"print 'a'", 1, "missing parentheses"),
        (b"a = 1\nreturn a", 2, "'return' outside function"),
        ("a = 'ä'".encode("latin-1"), 1, "utf-8"),
        (b"a = 1\0", 1, "null byte"),
        (b"-" * 100_000 + b"1", 1, "nested too deeply"),
        ("# coding: latin-1\na = 'ä'".encode("latin-1"), None, None),
        ("\ufeffa = 1".encode(), None, None),
        (rb"a = '\d'", None, None),
    ],
)
def test_a_file_that_python_cannot_parse(text, line, message):
    problem = read_source(text).problem
    assert (problem and problem[0]) == line
    assert problem is None or message in problem[2]


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import a.b as c, d", [("a.b", True), ("d", True)]),
        ("from a import *", [("a", True)]),
        ("def f():\n  import a", [("a", False)]),
        ("if x:\n  import a\nelse:\n  import b", [("a", False), ("b", False)]),
        ("class A:\n  import a", [("a", True)]),
        ("with open(x):\n  import a", [("a", True)]),
        ("with contextlib.suppress(ImportError):\n  import a", []),
        ("try:\n  import a\nfinally:\n  import b", [("a", True), ("b", True)]),
        ("try:\n  import a\nexcept (E, ModuleNotFoundError):\n  import b", []),
        ("try:\n  import a\nexcept:\n  pass\nelse:\n  import b", [("b", True)]),
        ("if typing.TYPE_CHECKING:\n  import a\nelse:\n  import b", [("b", True)]),
        ('if __name__ == "__main__":\n  import a', [("a", True)]),
        ("match x:\n  case 1:\n    import a", [("a", False)]),
    ],
)
def test_imports_in_functions_and_branches_are_not_required(text, imports):
    actual = read_source(text.encode()).imports
    assert [(each.module, each.is_required) for each in actual] == imports
