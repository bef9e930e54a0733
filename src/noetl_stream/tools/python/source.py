"""Playbook code, compiled: like a module, and with ``return`` allowed at its top level (LANGUAGE §12 *python*)."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Final, cast

BODY: Final = "<module>"
"""The name of the function that code with a top-level ``return`` becomes: what a traceback shows for module level."""
MAX_PROGRAMS: Final = 256
"""Compiled programs kept in one child process."""


@dataclass(frozen=True, slots=True)
class Program:
    """Compiled code. With ``returns``, running ``code`` leaves a function called :data:`BODY` in its globals."""

    code: CodeType
    returns: bool


@lru_cache(maxsize=MAX_PROGRAMS)
def compile_program(source: str, filename: str) -> Program:
    """``source``, ready to run. Its lines are known to tracebacks under ``filename``.

    Raises:
        SyntaxError: if it does not parse.
    """
    try:
        tree = ast.parse(source, filename)
        remember_lines(source, filename)
        if not any(isinstance(node, ast.Return) for node in _own_nodes(tree)):
            return Program(compile(tree, filename, "exec", dont_inherit=True), returns=False)
        return Program(_with_return(source, tree, filename), returns=True)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "is nested too deep") from None


def remember_lines(source: str, filename: str) -> None:
    """Lets tracebacks show these lines: ``linecache`` keeps an entry without a modification time for ever."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def _with_return(source: str, tree: ast.Module, filename: str) -> CodeType:
    # Compiled once as a plain module without its returns, code that is wrong at module level (`yield`, `await`) says so
    # here: inside a function it would quietly mean something else.
    plain = cast(ast.Module, _WithoutReturns().visit(ast.parse(source, filename)))
    compile(ast.fix_missing_locations(plain), filename, "exec", dont_inherit=True)

    head = _head_length(tree)
    rest = ast.Module(body=tree.body[head:], type_ignores=[])
    body = cast(ast.Module, _WithoutAnnotations().visit(rest)).body
    names = _locals(_compile_body(tree, head, body, filename))
    if names:
        # The body's names stay globals, as they would be without the function around them.
        body = [ast.Global(names=names), *body]
    return _compile_body(tree, head, body, filename)


def _compile_body(tree: ast.Module, head: int, body: list[ast.stmt], filename: str) -> CodeType:
    function = ast.parse("def body(): ...").body[0]  # which fields a new one needs differs from Python to Python
    assert isinstance(function, ast.FunctionDef)
    function.name, function.body = BODY, body
    module = ast.Module(body=[*tree.body[:head], function], type_ignores=[])
    return compile(ast.fix_missing_locations(module), filename, "exec", dont_inherit=True)


def _locals(module: CodeType) -> list[str]:
    function = next(item for item in module.co_consts if isinstance(item, CodeType) and item.co_name == BODY)
    return sorted({*function.co_varnames, *function.co_cellvars})


def _head_length(tree: ast.Module) -> int:
    """How many first statements must stay at module level: a docstring and imports from ``__future__``."""
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
    """The nodes of this scope, without those of functions and classes in it."""
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
    """``x: int = 1`` becomes ``x = 1``: a global name cannot be annotated inside a function."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)
