from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.noop import NoopTool


@pytest.mark.parametrize(
    ("inputs", "expected"), [({"args": {"a": [1]}}, {"a": [1]}), ({}, {}), ({"args": None}, {}), ({"args": {}}, {})]
)
async def test_it_returns_its_args(make_call: Any, inputs: dict[str, Any], expected: Any) -> None:
    assert (await NoopTool().run(make_call(inputs))).result == expected


async def test_args_must_be_a_mapping(make_call: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await NoopTool().run(make_call({"args": [1], "arg": 1}))
    assert failed.value.error.kind == "invalid_input"
    assert failed.value.error.message == "args: input should be a valid dictionary; arg: unknown input"
