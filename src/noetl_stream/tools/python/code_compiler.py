"""Compiles playbook code like a module, with ``return`` allowed at the top level (LANGUAGE §12 *python*)."""

from __future__ import annotations

import ast
import builtins
import linecache
import symtable
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Final, cast

BODY: Final = "<module>"
"""The name of the function for code with a top-level ``return``, as tracebacks show module level."""
_OF_MODULES: Final = ("__name__", "__file__", "__doc__", "__builtins__", "__annotations__")
NOT_ASYNC: Final = "with python_shared the code must define `async def main(…)`, which is awaited"
NOT_ASYNC_FUNCTION: Final = "with python_shared the function must be `async def`"
MAX_PROGRAMS: Final = 256
"""The most compiled programs that a child keeps for its jobs."""


@dataclass(frozen=True, slots=True)
class Program:
    """Compiled code. With ``returns``, running ``code`` defines a function :data:`BODY` in its globals."""

    code: CodeType
    returns: bool


def file_of(place: str) -> str:
    """Returns the file name that tracebacks show for the code at ``step.task``."""
    return f"<{place}>"


@lru_cache(maxsize=MAX_PROGRAMS)
def compile_program(source: str, filename: str) -> Program:
    """Compiles ``source``. Tracebacks show its lines under ``filename``.

    Raises:
        SyntaxError: The source does not parse.
    """
    try:
        program = _compile(source, filename)
    except SyntaxError as error:
        raise _explain(error) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "nested too deeply") from None
    remember_lines(source, filename)
    return program


def syntax_error(source: str) -> SyntaxError | None:
    """Returns the reason why ``source`` compiles nowhere, or ``None``. Does not run it, and keeps nothing."""
    with warnings.catch_warnings(action="ignore"):
        try:
            _compile(source, "<code>")
        except SyntaxError as error:
            return _explain(error)
        except ValueError as error:
            return SyntaxError(str(error))
        except (RecursionError, MemoryError):
            return None  # how deep it may be nested depends on the process
    return None


@lru_cache(maxsize=MAX_PROGRAMS)
def lacks_async_main(source: str) -> bool:
    """Returns whether ``source`` parses and defines no ``async def main`` at its top level."""
    tree = _parsed(source)
    return tree is not None and not any(
        isinstance(node, ast.AsyncFunctionDef) and node.name == "main" for node in _own_nodes(tree)
    )


def _explain(error: SyntaxError) -> SyntaxError:
    if "outside" in error.msg and error.msg.startswith(("'await'", "'async ", "asynchronous ")):
        error.msg += "; write `async def main(): …`, which is awaited"
    return error


def unbound_names(source: str) -> dict[str, tuple[int, int]]:
    """Returns the names that code reads and neither binds nor finds among the builtins, each with the line and column
    of its first use. The code must parse; with ``import *`` nothing is known, nor of code that is nested too deeply
    here.
    """
    tree = _parsed(source)
    with warnings.catch_warnings(action="ignore"):
        try:
            tables = [symtable.symtable(source, "<code>", "exec")]
        except (RecursionError, MemoryError):
            return {}
    if tree is None or any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return {}
    bound, read = {*dir(builtins), *_OF_MODULES}, set[str]()
    for table in tables:
        tables += table.get_children()
        for symbol in table.get_symbols():
            is_global = symbol.is_global() or table.get_type() == "module"
            if is_global and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
                bound.add(symbol.get_name())
            elif is_global and symbol.is_referenced():
                read.add(symbol.get_name())
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in read - bound)
    first: dict[str, tuple[int, int]] = {}
    for node in sorted(names, key=lambda node: (node.lineno, node.col_offset)):
        first.setdefault(node.id, (node.lineno, node.col_offset + 1))
    return first


def attributes_of(source: str, name: str) -> dict[str, tuple[int, int]]:
    """The attributes that code reads of the variable ``name``, each with its first line and column; none if invalid."""
    tree = _parsed(source)
    found: dict[str, tuple[int, int]] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            variable = node.value
            if isinstance(variable, ast.Name) and variable.id == name:
                found.setdefault(node.attr, (variable.lineno, variable.col_offset + 1))
    return found


def keys_set_of(source: str, names: Collection[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """The keys that code sets of the variables ``names``, each with its first line and column; none if invalid."""
    tree = _parsed(source)
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", "")
            if isinstance(node.value, ast.Name) and node.value.id in names:
                found.setdefault((node.value.id, str(key)), (node.lineno, node.col_offset + 1))
    return found


def last_value_of(source: str) -> tuple[str, tuple[int, int]] | None:
    """The variable that code without a result assigns last, or an empty text, with its line and column; ``None`` if the
    code has a result, or does not parse.
    """
    tree = _parsed(source)
    if tree is None or not tree.body:
        return None
    nodes = list(_own_nodes(tree))
    bound = {getattr(node, "name", "") or getattr(node, "id", "") for node in nodes}
    if {"main", "result"} & bound or any(isinstance(node, ast.Return | ast.Global) for node in nodes):
        return None
    last = next((node for node in reversed(tree.body) if isinstance(node, ast.Assign)), None)
    if last is not None and isinstance(last.targets[0], ast.Name):
        return last.targets[0].id, (last.lineno, last.col_offset + 1)
    return "", (tree.body[-1].lineno, tree.body[-1].col_offset + 1)


@lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module | None:
    """Parses code, once for all questions of a check; ``None`` if it is not Python, or nests too deeply."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def params_of_main(source: str) -> dict[str, tuple[int, int]]:
    """The params without a default of the ``main`` that code is run by, each with its line and column; none if the
    code does not parse, or gives its result in another way.
    """
    tree = _parsed(source)
    if tree is None:
        return {}
    names = {node.id for node in _own_nodes(tree) if isinstance(node, ast.Name)}
    main = next((node for node in tree.body if getattr(node, "name", "") == "main"), None)
    returns = any(isinstance(node, ast.Return) for node in _own_nodes(tree))
    if not isinstance(main, ast.FunctionDef | ast.AsyncFunctionDef) or returns or {"main", "result"} & names:
        return {}
    given, named = (
        [*main.args.posonlyargs, *main.args.args],
        zip(main.args.kwonlyargs, main.args.kw_defaults, strict=True),
    )
    needed = given[: len(given) - len(main.args.defaults)] + [arg for arg, default in named if default is None]
    return {arg.arg: (arg.lineno, arg.col_offset + 1) for arg in needed}


def _compile(source: str, filename: str) -> Program:
    tree = ast.parse(source, filename)
    if not any(isinstance(node, ast.Return) for node in _own_nodes(tree)):
        return Program(compile(tree, filename, "exec", dont_inherit=True), returns=False)
    return Program(_with_return(source, tree, filename), returns=True)


def remember_lines(source: str, filename: str) -> None:
    """Lets tracebacks show these lines. ``linecache`` never evicts an entry without a modification time."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def _with_return(source: str, tree: ast.Module, filename: str) -> CodeType:
    # Compile once as a module without the returns, so that `yield` and `await` at module level are errors: inside a
    # function they would silently mean something else.
    plain = cast(ast.Module, _WithoutReturns().visit(ast.parse(source, filename)))
    compile(ast.fix_missing_locations(plain), filename, "exec", dont_inherit=True)

    head = _head_length(tree)
    rest = ast.Module(body=tree.body[head:], type_ignores=[])
    body = cast(ast.Module, _WithoutAnnotations().visit(rest)).body
    names = _locals(_compile_body(tree, head, body, filename))
    if names:
        # Keep the body's names global, as they would be at module level.
        body = [ast.Global(names=names), *body]
    return _compile_body(tree, head, body, filename)


def _compile_body(tree: ast.Module, head: int, body: list[ast.stmt], filename: str) -> CodeType:
    function = ast.parse("def body(): ...").body[0]  # its required fields depend on the Python version
    assert isinstance(function, ast.FunctionDef)
    function.name, function.body = BODY, body
    module = ast.Module(body=[*tree.body[:head], function], type_ignores=[])
    return compile(ast.fix_missing_locations(module), filename, "exec", dont_inherit=True)


def _locals(module: CodeType) -> list[str]:
    function = next(item for item in module.co_consts if isinstance(item, CodeType) and item.co_name == BODY)
    return sorted({*function.co_varnames, *function.co_cellvars})


def _head_length(tree: ast.Module) -> int:
    """Returns how many leading statements must stay at module level: a docstring and imports from ``__future__``."""
    length = 0
    for statement in tree.body:
        docstring = length == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (docstring or future):
            break
        length += 1
    return length


_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of this scope, without nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _own_nodes(child)


class _OwnScope(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _SCOPES):
            return node
        changed: ast.AST = super().visit(node)
        return changed


class _WithoutReturns(_OwnScope):
    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Expr(node.value or ast.Constant(None)), node)


class _WithoutAnnotations(_OwnScope):
    """Rewrites ``x: int = 1`` to ``x = 1``: a global name cannot be annotated inside a function."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)
