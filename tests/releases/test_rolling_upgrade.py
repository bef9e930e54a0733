"""Roles of two releases side by side on one stack, under load: nothing is lost or doubled, no client sees an error."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from release_wheels import previous_release, program_of, this_program
from rolling_load import EFFECTS, Ledger, Load, playbook
from rolling_stack import Program, RollingStack

from homes import folder_for_home
from noetl_stream.local import cluster_archive
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.protocol.nats_permissions import GATEWAY
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.storage.journal import events_of
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.stack import embedded_endpoint
from noetl_stream.wiring.stores import connect
from noetl_testkit.waiting import until_it_is

pytestmark = [pytest.mark.xdist_group("own_stacks"), pytest.mark.verify]

KINDS = ("server", "server", "worker", "worker", "gateway", "gateway")
"""The roles of the stack, in the order in which they are replaced."""

BETWEEN = 12
"""So many executions end between two steps of an upgrade."""

SETTLED_S = 60.0


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EmbeddedStack]:
    monkeypatch.setattr(cluster_archive, "FOLDER", tmp_path)  # a packed cluster would have the schema of this release
    with folder_for_home("rolling") as folder, EmbeddedStack.join(folder / "home") as stack:
        yield stack


@pytest.fixture
def stack(embedded: EmbeddedStack, tmp_path: Path) -> Iterator[RollingStack]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = RollingStack(embedded.address, tmp_path, listening)
        yield made
        made.close()


@asynccontextmanager
async def under_load(stack: RollingStack, program: Program) -> AsyncIterator[Load]:
    """A stack of this program that clients use. At the end, everything that was started has ended as it should."""
    await asyncio.to_thread(stack.prepare, program)
    create_token = (program, "token", "create", "load", "--role", "admin")
    token = await asyncio.to_thread(stack.run, *create_token, identity=GATEWAY)
    for kind in KINDS:
        stack.start(program, kind)
    async with Ledger().open() as ledger:
        load = Load(stack.url, token.strip(), playbook(ledger))
        async with load.running():
            yield load
    assert Counter(load.ended.values()) == {"completed": len(load.ended)}
    once = {(execution_id, effect): 1 for execution_id in load.ended for effect in EFFECTS}
    assert ledger.effects == once


async def replace_all(stack: RollingStack, program: Program, load: Load) -> None:
    for role in list(stack.roles):
        await asyncio.to_thread(stack.replace, role, program)
        await load.more(BETWEEN)


async def check_books(embedded: EmbeddedStack, load: Load) -> None:
    """Both servers have their share, and journals have no gap and each task once."""
    endpoint = embedded_endpoint(embedded, Settings(), GATEWAY)
    connected = await connect(endpoint, name="rolling")
    cluster = DirectOperations(connected, endpoint).cluster
    try:

        async def shares() -> list[int]:
            return sorted(Counter(one.owner for one in await cluster.partitions()).values())

        await until_it_is([PARTITIONS // 2] * 2, shares, SETTLED_S)
        ended = dict.fromkeys(load.ended, 0)
        journals = await connected.store.journals(ended)
        assert journals.keys() == ended.keys()
        for execution_id, entries in journals.items():
            journal = list(events_of(execution_id, entries))
            assert [row.position for row in journal] == list(range(1, len(journal) + 1))
            assert sum(row.name == "task.processed" for row in journal) == len(EFFECTS)
        assert await connected.store.dead_letters.page(10, None) == []
    finally:
        await connected.close()


async def test_the_previous_release_is_replaced_and_comes_back(
    embedded: EmbeddedStack, stack: RollingStack, tmp_path: Path
) -> None:
    ref = previous_release()
    old = program_of(ref, tmp_path / "old")
    new = this_program(tmp_path / "new")
    async with under_load(stack, old) as load:
        await load.more(BETWEEN)
        await asyncio.to_thread(stack.prepare, new)
        await load.more(BETWEEN)
        await replace_all(stack, new, load)
        await replace_all(stack, old, load)
        await check_books(embedded, load)


async def test_this_release_is_replaced_by_itself_and_comes_back(
    embedded: EmbeddedStack, stack: RollingStack, tmp_path: Path
) -> None:
    this = this_program(tmp_path / "this")
    async with under_load(stack, this) as load:
        await load.more(BETWEEN)
        await replace_all(stack, this, load)
        await replace_all(stack, this, load)
        await check_books(embedded, load)
