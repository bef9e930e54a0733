"""A verb is written once, on its port: no handler of the gateway only passes a call through to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import noetl_stream.gateway.resources

RESOURCES: Final = Path(noetl_stream.gateway.resources.__file__).parent


def handlers_in(text: str) -> Iterator[ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AsyncFunctionDef) and any("routes" in ast.unparse(one) for one in node.decorator_list):
            yield node


def passes_through(handler: ast.AsyncFunctionDef) -> bool:
    """Whether it does nothing but call a verb with what the request gives."""
    _, *before, last = handler.body
    known = {
        "call",
        *(ast.unparse(target) for line in before if isinstance(line, ast.Assign) for target in line.targets),
    }
    match last:
        case ast.Return(ast.Await(ast.Call(function, args, keywords))) | ast.Expr(
            ast.Await(ast.Call(function, args, keywords))
        ):
            given = [*args, *(keyword.value for keyword in keywords)]
            read = [line.value for line in before if isinstance(line, ast.Assign)]
            return (
                len(read) == len(before)
                and ast.unparse(function).startswith("call.operations.")
                and all(ast.unparse(one).split(".")[0] in known for one in (*read, *given))
                and all(isinstance(one, ast.Attribute | ast.Name) for one in (*read, *given))
            )
    return False


def test_no_handler_only_passes_a_call_through() -> None:
    found = [
        f"{file.stem}.{handler.name}"
        for file in sorted(RESOURCES.glob("*.py"))
        for handler in handlers_in(file.read_text(encoding="utf-8"))
        if passes_through(handler)
    ]
    assert found == []


def test_a_handler_that_passes_a_call_through_is_found() -> None:
    text = '''
@routes("GET", "/limits/{key}", "getLimit", "viewer")
async def limit(call):
    """Get a limit."""
    at = call.parameters
    return await call.operations.cluster.limit(at.key)
'''
    [handler] = handlers_in(text)
    assert passes_through(handler)
