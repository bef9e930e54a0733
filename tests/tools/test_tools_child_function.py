"""Functions of plugins in confined child processes."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.python.function import ChildFunction


async def test_a_function_runs_in_a_child_that_has_imported_its_module(make_call: Any) -> None:
    shorten = ChildFunction("textwrap:shorten", ChildSettings(), environment={"INK": "blue"}, max_children=1)
    variable = ChildFunction("os:getenv", ChildSettings(), environment={"INK": "blue"}, max_children=1)
    try:
        assert await shorten(make_call({}), {"text": "a bird sings", "width": 10}) == "a [...]"
        assert await variable(make_call({}), {"key": "INK"}) == "blue"
    finally:
        await shorten.close()
        await variable.close()


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "message"),
    [
        ("textwrap:shorten", {"text": "a"}, "exception", "missing 1 required positional argument: 'width'"),
        ("no_such_module_here:f", {}, "exception", "No module named 'no_such_module_here'"),
        ("noetl_stream.tools.python.job:JobFailed", {"kind": "a", "message": "b"}, "result_not_json", "JobFailed"),
        ("textwrap:indent", {"text": "a\n" * 9, "prefix": "b" * 9}, "result_too_large", "the limit is 60"),
    ],
)
async def test_its_failure_is_that_of_the_task(
    make_call: Any, function: str, arguments: dict[str, Any], kind: str, message: str
) -> None:
    failing = ChildFunction(function, ChildSettings(), max_children=1)
    try:
        with pytest.raises(ToolFailure) as failed:
            await failing(make_call({}), arguments, max_result_bytes=60)
    finally:
        await failing.close()
    assert failed.value.error.kind == kind
    assert message in failed.value.error.message
