"""No error of the driver of Postgres leaves its adapter: a role would end with a traceback for what it can wait for."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from noetl_stream.adapters import postgres
from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS, translating
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import NoetlError

PACKAGE = Path(inspect.getfile(postgres)).parent
DRIVER_CALLS = {
    *("fetch", "fetchrow", "fetchval", "execute", "executemany", "cursor", "transaction", "prepare", "reset"),
    *("copy_from_query", "copy_from_table", "copy_to_table", "copy_records_to_table", "set_type_codec", "acquire"),
}
TRANSLATING = {"translating", "separate_connection", "use", "use_untranslated"}
HOLDERS = {"_Snapshot", "_Target"}
"""Classes whose methods run in a block that translates: their users open it."""
UNDERNEATH = {
    "hosts.py: connect",
    "hosts.py: _look",
    "own_connections.py: _open",
    "own_connections.py: use_untranslated",
}
"""Functions of connections, on which the blocks that translate are built."""


def all_errors() -> list[type[Exception]]:
    def below(kind: type[Exception]) -> Iterator[type[Exception]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    named = [kind for base in DRIVER_ERRORS for kind in below(base)]
    return sorted(
        {kind for kind in named if kind.__module__.split(".")[0] in ("asyncpg", "builtins", "ssl", "socket")}, key=repr
    )


def made(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    error.args = ("broken",)
    for name in ("message", "detail", "hint", "table_name", "severity", "severity_en"):
        if kind.__module__.startswith("asyncpg") and not hasattr(error, name):
            setattr(error, name, None)
    return error


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_of_the_driver_becomes_one_of_ours(kind: type[Exception]) -> None:
    with pytest.raises(NoetlError) as caught, translating("postgresql://db/noetl"):
        raise made(kind)
    assert str(caught.value)


@pytest.mark.parametrize("kind", [asyncpg.AdminShutdownError, ConnectionResetError, asyncpg.InterfaceError])
async def test_a_connection_that_ends_in_any_use_is_translated(
    postgres_store: PostgresStore, kind: type[Exception]
) -> None:
    own = postgres_store.ticks

    async def end(connection: Any) -> None:
        raise made(kind)

    with pytest.raises(NoetlError):
        await own.use(end)
    assert await own.backend(), "the next call opens another"


def test_errors_of_the_driver_are_translated_where_it_is_awaited() -> None:
    """A function that is given a connection leaves that to whoever gave it; all others say it where they wait."""
    bare = [
        f"{path.name}: {name}" for path in PACKAGE.rglob("*.py") for name in bare_waits(ast.parse(path.read_text()))
    ]
    assert set(bare) == UNDERNEATH


def bare_waits(tree: ast.AST, *, holds: bool = False, translated: bool = False, name: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        held, safe, called = holds, translated, name
        if isinstance(node, ast.ClassDef):
            held = node.name in HOLDERS
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            held = held or bool(arguments & {"connection", "asking"})
            called = getattr(node, "name", name)
        elif isinstance(node, ast.With | ast.AsyncWith):
            safe = safe or any(called_name(item.context_expr) in TRANSLATING for item in node.items)
        elif isinstance(node, ast.Try):
            caught = {name for handler in node.handlers for name in names_in(handler.type)}
            safe = safe or "DRIVER_ERRORS" in caught
        elif isinstance(node, ast.Await) and not held and not safe and waits_for_driver(node.value):
            yield called
        yield from bare_waits(node, holds=held, translated=safe, name=called)


def waits_for_driver(call: ast.AST) -> bool:
    if not isinstance(call, ast.Call):
        return False
    if called_name(call) in TRANSLATING:
        return False
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in DRIVER_CALLS
    on_own = isinstance(call.func, ast.Attribute) and any(
        one in ast.unparse(call.func.value) for one in ("_database", "super()")
    )
    given = {name for argument in call.args for name in names_in(argument)}
    return (is_method and not on_own) or bool(given & {"connection", "asking"})


def called_name(expression: ast.AST) -> str:
    function = expression.func if isinstance(expression, ast.Call) else expression
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def names_in(expression: ast.AST | None) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)} if expression else set()
