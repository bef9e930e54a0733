"""Who sees which limits: those of namespaces that a token covers, and of executions only those that it may see."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.errors import Conflict, NotFound
from noetl_stream.gateway.access.scoped import Scopes
from noetl_stream.ports.operations import PORTS, Operations
from noetl_stream.ports.operations.cluster import LimitDocument
from noetl_stream.ports.operations.executions import Start
from noetl_stream.settings.grants import GrantsFile
from noetl_testkit.simulation.work import work

GRANTS = """
namespaces: [team/a, team/b]
grants:
- paths: ["*"]
  pools: [default]
  kinds: [work]
- paths: [team/a, team/b]
  limits: ["payment*"]
"""


@pytest.fixture
async def granted(tmp_path: Path) -> AsyncIterator[OperationsStage]:
    """Operations with a server that has grants, and a worker."""
    (tmp_path / "grants.yaml").write_text(GRANTS)
    made = OperationsStage()
    await made.begin(grants=GrantsFile(tmp_path / "grants.yaml"))
    yield made
    await made.close()


async def begun(stage: OperationsStage, path: str, key: str) -> str:
    """Starts an execution of which one with its key runs at once, and lets it get its slot or its place."""
    policy = {"concurrency": {"key": key, "limit": 1}}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "it", "path": path}}
    steps = [{"step": "only", "tool": work("done", 5000.0)}]
    source = json.dumps({**head, "executor": {"spec": {"policy": policy}}, "workflow": steps})
    execution_id = (await stage.executions.start(Start(playbook=source), BY)).execution_id
    await stage.clock.sleep(2)
    return execution_id


def scoped(stage: OperationsStage, *paths: str) -> Operations:
    """The operations for a token with these paths."""
    parts: dict[str, Any] = {noun: getattr(stage, noun, None) for noun in PORTS}
    return Scopes()(Operations(**parts), paths)


async def listed(operations: Operations) -> list[tuple[str, str]]:
    """All limits that are listed, one a page, by namespace and key."""
    found: list[LimitDocument] = []
    cursor = None
    while True:
        page = await operations.cluster.limits(1, cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return [(one.namespace, one.key) for one in found]


async def sentence_of(operations: Operations, execution_id: str) -> str:
    (reason,) = [one for one in (await operations.executions.why(execution_id)).reasons if one.kind == "limit"]
    return reason.sentence


async def test_limits_of_other_namespaces_are_not_listed_and_not_found(granted: OperationsStage) -> None:
    for path in ("team/a/x", "team/b/x", "team/c", "other"):
        await begun(granted, path, "deploy")
    await begun(granted, "team/b/x", "customer-of-b")
    everything = await listed(cast(Operations, granted))
    assert everything == [
        ("team/b", "customer-of-b"),
        *((of, "deploy") for of in ("other", "team", "team/a", "team/b")),
    ]
    own = scoped(granted, "team/a")
    assert await listed(own) == [("team/a", "deploy")]
    assert (await own.cluster.limit("deploy")).namespace == "team/a"
    for key, namespace in (("deploy", "team/b"), ("customer-of-b", None), ("customer-of-b", "team/b"), ("deploy", "")):
        with pytest.raises(NotFound):
            await own.cluster.limit(key, namespace)
    assert await listed(scoped(granted, "team")) == [one for one in everything if one[0] != "other"]


async def test_a_cursor_does_not_name_the_limit_of_another_namespace(granted: OperationsStage) -> None:
    for number in range(5):
        await begun(granted, "team/b/x", f"customer-{number:02}")
    nothing = await scoped(granted, "other").cluster.limits(1, None)
    assert (nothing.items, nothing.next) == ([], None), "nothing of its own follows"
    for key in ("all-ours", "zero-ours"):
        await begun(granted, "other/x", key)
    page = await scoped(granted, "other").cluster.limits(1, None)
    assert [one.key for one in page.items] == ["all-ours"]
    raw = base64.urlsafe_b64decode((page.next or "") + "==")
    assert b"customer" not in raw and b"team" not in raw
    last = await scoped(granted, "other").cluster.limits(1, page.next)
    assert ([one.key for one in last.items], last.next) == (["zero-ours"], None)


async def test_a_token_for_part_of_a_namespace_sees_the_limits_that_its_playbooks_use(granted: OperationsStage) -> None:
    await begun(granted, "team/a/x", "deploy")
    holder = await begun(granted, "team/a/y", "nightly")
    own = scoped(granted, "team/a/x")
    assert await listed(own) == [("team/a", "deploy")]
    waits = await begun(granted, "team/a/x", "nightly")
    assert await listed(own) == [("team/a", "deploy"), ("team/a", "nightly")]
    found = await own.cluster.limit("nightly")
    assert (found.held, found.queued, found.holders) == (1, 1, [])
    assert [one.execution_id for one in found.waiting] == [waits]
    assert (found.set_by, found.used_by, found.replaced) == ("", ["team/a/x"], "")
    assert holder not in str(found)


async def test_holders_of_a_shared_key_in_other_namespaces_are_hidden(granted: OperationsStage) -> None:
    first = await begun(granted, "team/a/pay", "payment-api")
    second = await begun(granted, "team/b/pay", "payment-api")
    third = await begun(granted, "team/a/pay", "payment-api")
    a, b = scoped(granted, "team/a"), scoped(granted, "team/b")
    assert await listed(a) == await listed(b) == [("", "payment-api")]
    assert await listed(scoped(granted, "other")) == [], "none of its playbooks shares it"
    with pytest.raises(NotFound):
        await scoped(granted, "other").cluster.limit("payment-api")
    found = await b.cluster.limit("payment-api")
    assert (found.held, found.queued, found.holders) == (1, 2, [])
    assert [one.execution_id for one in found.waiting] == [second]
    sentence = await sentence_of(b, second)
    assert sentence.endswith("`payment-api`: it is number 1 of 2 in the queue, 1 of 1 are held.")
    assert (
        "`payment-api`: it is number 2 of 2 in the queue, 1 of 1 are held by execution " + first
        in await sentence_of(a, third)
    )
    shown = str(await b.executions.why(second))
    assert first not in shown and third not in shown and "team/a" not in shown


async def test_everything_is_shown_to_who_has_no_paths(granted: OperationsStage) -> None:
    first = await begun(granted, "team/a/pay", "payment-api")
    second = await begun(granted, "team/b/pay", "payment-api")
    assert f"held by execution {first}" in await sentence_of(cast(Operations, granted), second)
    found = await granted.cluster.limit("payment-api")
    assert [one.execution_id for one in found.holders + found.waiting] == [first, second]
    assert (found.namespace, found.used_by, found.set_by) == ("", ["team/a/pay", "team/b/pay"], "team/a/pay")


async def test_a_key_of_several_namespaces_is_asked_for_by_its_namespace(granted: OperationsStage) -> None:
    for path in ("team/a/x", "team/b/x", "other"):
        await begun(granted, path, "payment//api")
    await begun(granted, "other", "payment-api")
    with pytest.raises(Conflict, match="key payment//api is in use in 2 namespaces: none, as they share it, other"):
        await granted.cluster.limit("payment//api")
    for namespace, held in (("", 1), ("other", 1)):
        found = await granted.cluster.limit("payment//api", namespace)
        assert (found.namespace, found.held) == (namespace, held)
    assert (await granted.cluster.limit("payment-api")).namespace == "other"
    assert (await scoped(granted, "other").cluster.limit("payment//api")).namespace == "other"
