"""``kind: noop`` and ``kind: secrets``. The worker's tests cover that later tasks can read the credential."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.pipeline import NoopTool, SecretsTool


async def described(name: str) -> dict[str, Any]:
    return {"name": name, "version": 3, "expires_at": None}


@pytest.mark.parametrize(
    ("inputs", "name"),
    [({"credential": "pg"}, "pg"), ({"auth": "pg"}, "pg"), ({"secret": "pg.main-1"}, "pg.main-1"), ({}, "task")],
)
async def test_a_credential_is_named_by_the_input_or_by_the_task(make_call: Any, inputs: Any, name: str) -> None:
    call = replace(make_call(inputs), describe_credential=described)
    assert await SecretsTool().run(call) == ToolResult({"name": name, "version": 3, "expires_at": None})


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        ({"credential": "a b"}, "credential"),
        ({"credential": 1}, "invalid_input"),
        ({"credential": "a", "auth": "b"}, "invalid_input"),
        ({"x": 1}, "invalid_input"),
    ],
)
async def test_other_inputs_of_secrets_are_refused(make_call: Any, inputs: Any, kind: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        await SecretsTool().run(make_call(inputs))
    assert caught.value.error.kind == kind


def test_the_name_is_a_constant() -> None:
    text = (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: a}\n"
        'workflow: [{step: start, tool: {kind: secrets, credential: "{{ workload.x }}"}}]\n'
    )
    assert "invalid_value" in [problem.code for problem in check(text, {"secrets": SecretsTool.spec}).diagnostics]


@pytest.mark.parametrize(
    ("inputs", "expected"), [({"args": {"a": [1]}}, {"a": [1]}), ({}, {}), ({"args": None}, {}), ({"args": {}}, {})]
)
async def test_noop_returns_its_args(make_call: Any, inputs: dict[str, Any], expected: Any) -> None:
    assert (await NoopTool().run(make_call(inputs))).result == expected


async def test_the_args_of_noop_must_be_a_mapping(make_call: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await NoopTool().run(make_call({"args": [1], "arg": 1}))
    assert failed.value.error.kind == "invalid_input"
    assert failed.value.error.message == "args: input should be a valid dictionary; arg: unknown input"
