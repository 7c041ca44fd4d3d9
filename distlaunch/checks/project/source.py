"""What one Python file says of itself, read and not run: whether it parses, and what it imports."""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Need = Literal["always", "sometimes", "optional"]
"""Whether an import is made whenever the file is, in some case only, or may fail."""

# What binds names in ways that cannot be told without running them.
_UNTELLABLE = re.compile(
    rb":=|\b(?:globals|locals|vars|exec|setattr)\(|__getattr__|sys\.modules|import \*|__path__|"
    rb"global_enum|_convert_\("
)
_SEARCHES_ELSEWHERE = re.compile(rb"\bsys\.path\b|\baddsitedir\b|\bpath_hooks\b|\bmeta_path\b")
# What Pythons after 3.10 took in: groups of exceptions, `type`, parameters of types, quotes in the
# braces of f-strings, stars in brackets.
_NEWER = re.compile(
    r"except\s*\*|^\s*type\s+\w+|^\s*(async\s+)?(def|class)\s+\w+\s*\[|\b[rR]?[fF][rR]?[\"']|\[\s*\*"
)
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


@dataclass(frozen=True, slots=True)
class Import:
    """One module, or one name of a module, that a file imports.

    Parameters
    ----------
    line
        Where it says so.
    module
        The module, as it is written behind the dots of a relative import.
    level
        How many dots stand before it.
    name
        What is taken from the module, None where the module itself is imported.
    need
        Whether it is always imported with the file.
    """

    line: int
    module: str
    level: int = 0
    name: str | None = None
    need: Need = "always"


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of a Python file.

    Parameters
    ----------
    problem
        Where and why it does not parse, None where it does.
    imports
        What it imports, anywhere in it.
    names
        What can be imported from it, and maybe more; None where that cannot be told.
    searches_elsewhere
        Whether it changes where modules are looked for.
    """

    problem: tuple[int, str] | None = None
    imports: tuple[Import, ...] = ()
    names: frozenset[str] | None = frozenset()
    searches_elsewhere: bool = False


def verdict(text: bytes) -> tuple[int, str] | None:
    """Return where and why a file does not parse, None where it does.

    The table of symbols takes three fifths of the time of a tree, and refuses a little more.
    """
    # It takes bytes as `compile` does, for they may say what encoding they are in.
    return _refusal(lambda: symtable.symtable(text, "file", "exec"))  # type: ignore[arg-type]


def read(text: bytes, python: tuple[int, int] | None = None) -> Source:
    """Return what a file says of itself.

    Parameters
    ----------
    python
        The version that is to run it, None for this one; an older one may not know all syntax.
    """
    tree = ast.Module([], [])

    def parse() -> None:
        nonlocal tree
        tree = ast.parse(text, feature_version=python)
        compile(tree, "file", "exec", dont_inherit=True)  # refuses a return outside of functions

    problem = _refusal(parse)
    if problem:
        return Source(problem, names=None)
    searches_elsewhere = _SEARCHES_ELSEWHERE.search(text) is not None
    try:
        imports = tuple(_imports(tree.body, "always"))
        names = None if _UNTELLABLE.search(text) else frozenset(_bound(tree.body))
    except RecursionError:  # a very long elif, which Python itself can read
        return Source(names=None, searches_elsewhere=searches_elsewhere)
    return Source(None, imports, names, searches_elsewhere)


def may_be_newer(text: bytes, line: int) -> bool:
    """Whether a line that does not parse may be what only a newer Python takes."""
    lines = text.decode(errors="replace").split("\n")[line - 1 : line]
    return any(_NEWER.search(each) for each in lines)


def _refusal(parse: Callable[[], object]) -> tuple[int, str] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in a string is nothing to tell here
        try:
            parse()
        except SyntaxError as problem:
            return problem.lineno or 1, _said(problem)
        except ValueError:
            return 1, "it holds a null byte, so it is no text"
        except (RecursionError, MemoryError):
            return 1, "it is nested too deeply"
    return None


def _said(problem: SyntaxError) -> str:
    said = " ".join(str(problem.msg).split())
    return said[:1].lower() + said[1:]


def _imports(body: Iterable[ast.stmt], need: Need) -> Iterator[Import]:
    for line in body:
        match line:
            case ast.Import():
                for alias in line.names:
                    yield Import(line.lineno, alias.name, need=need)
            case ast.ImportFrom():
                for alias in line.names:
                    module, level = line.module or "", line.level
                    name = None if alias.name == "*" else alias.name
                    yield Import(line.lineno, module, level, name, need)
            case ast.Try() if _is_forgiving(line):
                yield from _imports([*line.body, *_handled(line)], "optional")
                yield from _imports([*line.orelse, *line.finalbody], need)
            case ast.Try():
                yield from _imports([*line.body, *line.orelse, *line.finalbody], need)
                yield from _imports(_handled(line), _less(need))
            case ast.If():
                yield from _of_branches(line, need)
            case ast.With() | ast.AsyncWith() | ast.ClassDef():
                yield from _imports(line.body, _suppressed(line, need))
            case _:
                yield from _imports(_below(line), _less(need))


def _of_branches(line: ast.If, need: Need) -> Iterator[Import]:
    condition = ast.unparse(line.test)
    if condition.endswith("TYPE_CHECKING") and not condition.startswith("not "):
        yield from _imports(line.orelse, need)
    elif condition in ("__name__ == '__main__'", "'__main__' == __name__"):
        yield from _imports(line.body, need)
    else:
        yield from _imports([*line.body, *line.orelse], _less(need))


def _less(need: Need) -> Need:
    return "optional" if need == "optional" else "sometimes"


def _is_forgiving(line: ast.Try) -> bool:
    """Whether a failing import in it is told to somebody, or to nobody, but does not end it."""
    kinds = [kind for handler in line.handlers for kind in _caught(handler)]
    return any(kind in _IMPORT_ERRORS for kind in kinds)


def _caught(handler: ast.ExceptHandler) -> list[str]:
    match handler.type:
        case None:
            return ["BaseException"]
        case ast.Tuple(elts=kinds):
            return [ast.unparse(kind) for kind in kinds]
        case kind:
            return [ast.unparse(kind)]


def _suppressed(line: ast.stmt, need: Need) -> Need:
    if isinstance(line, ast.With) and any(
        "suppress(" in ast.unparse(item.context_expr) for item in line.items
    ):
        return "optional"
    return need


def _handled(line: ast.Try) -> list[ast.stmt]:
    return [each for handler in line.handlers for each in handler.body]


def _below(line: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements that stand in a statement, one level below."""
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(line, field, ())
    for field in ("handlers", "cases"):
        for each in getattr(line, field, ()):
            yield from each.body


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements bind, those of functions' own variables left out."""
    for line in body:
        match line:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield line.name
                yield from _declared_global(line.body)
            case ast.ClassDef():
                yield line.name
            case _:
                yield from _bound_by(line)
                yield from _bound(_below(line))


def _bound_by(line: ast.stmt) -> Iterator[str]:
    match line:
        case ast.Import():
            yield from ((each.asname or each.name).partition(".")[0] for each in line.names)
        case ast.ImportFrom():
            yield from (each.asname or each.name for each in line.names)
        case ast.Assign():
            yield from _stored(line.targets)
        case ast.AnnAssign() | ast.AugAssign() | ast.For() | ast.AsyncFor():
            yield from _stored([line.target])
        case ast.With() | ast.AsyncWith():
            yield from _stored([item.optional_vars for item in line.items])
        case ast.Match():
            yield from _captured(line)
        case _ if type(line).__name__ == "TypeAlias":  # since Python 3.12
            yield from _stored([getattr(line, "name", None)])


def _stored(targets: Iterable[ast.expr | None]) -> Iterator[str]:
    for target in targets:
        match target:
            case ast.Name(id=name):
                yield name
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                yield from _stored(parts)
            case ast.Starred(value=value):
                yield from _stored([value])


def _captured(line: ast.Match) -> Iterator[str]:
    for node in ast.walk(line):
        if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


def _declared_global(body: Iterable[ast.stmt]) -> Iterator[str]:
    for line in body:
        if isinstance(line, ast.Global):
            yield from line.names
        yield from _declared_global(_below(line))
