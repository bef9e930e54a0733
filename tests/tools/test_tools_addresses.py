"""A secret where a name stands, and an address that cannot be asked, are refused before a run, without their text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())
DSN = "postgresql://bob:s3cret@localhost:5432/x"
SQL = {"kind": "postgres", "command": "select 1"}
NOT_A_NAME = "the name of a credential has"
NO_USER = "must not contain a user or password"


def problems(*tasks: dict[str, Any], **more: Any) -> list[tuple[str, str, str]]:
    workflow = [{"step": "s", "tool": list(tasks)}]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "p", "path": "p"}}
    found = check(json.dumps({**head, **more, "workflow": workflow}), KINDS).diagnostics
    return [(one.code, one.pointer, f"{one.message} {one.hint}") for one in found]


@pytest.mark.parametrize(
    ("task", "pointer", "message"),
    [
        ({**SQL, "auth": DSN}, "/auth", NOT_A_NAME),
        ({**SQL, "credential": ""}, "/credential", NOT_A_NAME),
        ({"kind": "nats", "action": "publish", "subject": "a", "auth": "nats://bob:s3cret@h"}, "/auth", NOT_A_NAME),
        ({"kind": "http", "url": "https://h/", "auth": "Bearer s3cret"}, "/auth", NOT_A_NAME),
        ({"kind": "secrets", "credential": DSN}, "/credential", NOT_A_NAME),
        (
            {"kind": "duckdb", "commands": "select 1", "attach": {"a": {"auth": DSN, "tables": ["t"]}}},
            "/attach/a/auth",
            NOT_A_NAME,
        ),
        ({"kind": "http", "url": "ftp://h/x"}, "/url", "must start with http:// or https://"),
        ({"kind": "http", "endpoint": "https://bob:s3cret@h/x"}, "/endpoint", NO_USER),
        ({"kind": "http", "url": "https://bob:s3cret/1@h/x"}, "/url", "its host or port is not valid"),
    ],
)
def test_a_check_refuses_an_invalid_address(task: dict[str, Any], pointer: str, message: str) -> None:
    [(code, at, text)] = problems(task)
    assert (code, at) == ("invalid_value", f"/workflow/0/tool/0{pointer}")
    assert message in text and "s3cret" not in text


def test_check_refuses_an_invalid_address_in_the_keychain() -> None:
    [(code, at, text)] = problems(
        SQL | {"auth": "db"}, keychain=[{"name": "db", "kind": "credential", "credential": DSN}]
    )
    assert (code, at) == ("invalid_value", "/keychain/0/credential")
    assert NOT_A_NAME in text and "s3cret" not in text


@pytest.mark.parametrize("auth", ["{{ workload.database }}", "warehouse", "own.db-1", {"dsn": DSN}])
def test_check_takes_a_name_a_value_and_what_is_rendered(auth: Any) -> None:
    assert (
        problems(
            SQL | {"auth": auth}, {"kind": "http", "url": "{{ workload.at }}/x"}, workload={"database": "d", "at": "h"}
        )
        == []
    )


async def test_a_rendered_name_that_is_none_is_an_error_of_the_credential(make_call: Any) -> None:
    with pytest.raises(ToolFailure) as caught:
        await HttpTool().run(make_call({"url": "https://h/", "auth": DSN}))
    assert caught.value.error.kind == "credential"
    assert caught.value.error.message.startswith(f"auth: {NOT_A_NAME}") and "s3cret" not in caught.value.error.message
