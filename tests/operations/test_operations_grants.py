"""Grants that admins register: the next revision holds, unless a file of the operator does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import Conflict, NotFound, Unreachable, UsageError, VersionMismatch
from noetl_stream.model.json import codec
from noetl_stream.model.messages import GrantsUse, MemoryUse
from noetl_stream.model.rights import GrantsDefault
from noetl_stream.operations.grants import DirectGrants, GrantsPorts
from noetl_stream.ports.operations.access import GrantsDocument
from noetl_stream.ports.stores.catalog import GrantsRevision, GrantsStore
from noetl_stream.settings.grants import Grants, GrantsSource
from noetl_stream.storage.grants import REFRESH_S, RegisteredGrants, grants_in_force, keep_fresh
from noetl_testkit.conformance.access import grants_revision
from noetl_testkit.memory.access import MemoryGrants
from noetl_testkit.waiting import until

ANN, BOB = "token:ann", "token:bob"
SHOP = b"grants:\n- paths: [shop]\n  credentials: [mailer]\n"
NOTHING = b"# for nobody\ngrants: []\n"


class Answering:
    """A bus on which a server of each of these uses answers."""

    def __init__(self, *uses: GrantsUse) -> None:
        self._answers = [codec.encode(MemoryUse("server", f"server-{use}", {}, grants=use)) for use in uses]

    async def ask_all(self, subject: str, data: bytes, wait_s: float) -> list[bytes]:
        return self._answers


@pytest.fixture
def store() -> MemoryGrants:
    return MemoryGrants()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def over(store: GrantsStore, in_force: GrantsSource | None = None, *uses: GrantsUse) -> DirectGrants:
    source = in_force or RegisteredGrants(store, None)
    return DirectGrants(GrantsPorts(store, source, cast(Any, Answering(*uses)), ManualClock(0)))


async def current(store: GrantsStore, default: GrantsDefault | None = None, *, is_open: bool = False) -> Grants | None:
    """What a process has that starts now."""
    source = grants_in_force(None, default, store, is_open=is_open)
    await source.refresh()
    return source.current()


async def test_grants_are_registered_as_they_are_written_and_every_revision_is_kept(store: MemoryGrants) -> None:
    verbs = over(store)
    assert await verbs.get() == GrantsDocument("none", 0, "")
    first = await verbs.put(1, NOTHING, ANN)
    assert await verbs.put(2, SHOP, BOB) == await verbs.get()
    assert await verbs.get(1) == first
    assert (first.origin, first.revision, first.source, first.registered_by) == ("registered", 1, NOTHING.decode(), ANN)
    assert first.registered == "1970-01-01T00:00:00.000+00:00"
    with pytest.raises(NotFound, match="no revision 3"):
        await verbs.get(3)


async def test_an_admin_does_not_overwrite_what_another_has_changed_meanwhile(store: MemoryGrants) -> None:
    verbs = over(store)
    await verbs.put(1, NOTHING, ANN)
    await verbs.put(2, SHOP, ANN)
    for revision, text, by in ((2, NOTHING, ANN), (2, SHOP, BOB), (1, SHOP, ANN), (4, SHOP, ANN)):
        with pytest.raises(VersionMismatch, match=rf"registered by token:ann: the next is 3, not {revision}"):
            await verbs.put(revision, text, by)
    with pytest.raises(VersionMismatch, match="have revision 0: the next is 1, not 2"):
        await over(MemoryGrants()).put(2, SHOP, ANN)


async def test_a_call_that_is_repeated_registers_once(store: MemoryGrants) -> None:
    verbs = over(store)
    assert await verbs.put(1, SHOP, ANN) == await verbs.put(1, SHOP, ANN) == await verbs.get()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"grants: [", "grants:1: "),
        (b"grants:\n- paths: [a]\n- paths: []\n", "grants:3: grant 2: paths is empty"),
        (b"grants: []\nnamespaces:\n  - ../a\n", "grants:3: namespaces: '../a' is not a path"),
        (b"\xff", "grants:1: byte 0xff is not UTF-8"),
        (b"", "grants:1: "),
        (b"g" * 600_000, "the limit is"),
    ],
)
async def test_a_mistake_is_refused_with_its_line_and_changes_nothing(
    store: MemoryGrants, text: bytes, says: str
) -> None:
    with pytest.raises(UsageError) as refused:
        await over(store).put(1, text, ANN)
    assert says in refused.value.message
    assert await store.latest() is None


@pytest.mark.parametrize("where", ["here", "on a server"])
async def test_grants_are_not_registered_where_a_file_of_the_operator_holds(
    store: MemoryGrants, tmp_path: Path, where: str
) -> None:
    (tmp_path / "grants.yaml").write_bytes(NOTHING)
    file = grants_in_force(tmp_path / "grants.yaml", None, store)
    verbs = over(store, file) if where == "here" else over(store, None, "restricted", "file")
    with pytest.raises(Conflict, match="a file of the operator says what playbooks may use: NOETL_GRANTS of"):
        await verbs.put(1, SHOP, ANN)
    assert await store.latest() is None
    if where == "here":
        await store.add(grants_revision(1))
        assert await verbs.get() == GrantsDocument("file", 0, NOTHING.decode())
        assert (await verbs.usable("shop")).credentials == []


async def test_the_grants_of_a_playbook_are_listed_by_sort(store: MemoryGrants) -> None:
    verbs = over(store)
    every = await verbs.usable("shop/x")
    assert (every.namespace, every.credentials, every.limits) == ("shop", ["*"], ["*"])
    await verbs.put(1, b"namespaces: [shop/x]\n" + SHOP, ANN)
    found = await verbs.usable("/shop/x/y/")
    assert (found.path, found.namespace) == ("shop/x/y", "shop/x")
    assert (found.credentials, found.calls, found.kinds) == (["mailer"], [], [])
    for path in ("shop/../other", "", "//"):
        with pytest.raises(UsageError, match="is not a path"):
            await verbs.usable(path)


# What holds


async def test_registered_grants_hold_with_the_default_for_the_rest(store: MemoryGrants) -> None:
    await over(store).put(1, SHOP, ANN)
    names = [("shop", "mailer"), ("shop", "shop.db"), ("other", "other.db"), ("other", "mailer")]
    for default, may in (
        (None, [True, False, False, False]),
        ("nothing", [True, False, False, False]),
        ("own", [True, False, True, False]),
        ("everything", [True, False, True, True]),
    ):
        for is_open in (False, True):
            found = await current(store, cast(GrantsDefault | None, default), is_open=is_open)
            assert found is not None
            assert [found.allows(path, "credentials", name) for path, name in names] == may


async def test_without_grants_the_default_of_the_installation_holds(store: MemoryGrants) -> None:
    assert await current(store) is None
    assert await current(store, "own") == Grants((), default="own")
    assert [grants_in_force(None, None, store, is_open=is_open).is_chosen for is_open in (False, True)] == [False, True]
    chosen = grants_in_force(None, None, store)
    await store.add(grants_revision(1))
    await chosen.refresh()
    assert chosen.is_chosen


async def test_nothing_may_be_used_before_the_grants_are_read(store: MemoryGrants) -> None:
    found = grants_in_force(None, "everything", store).current()
    assert found is not None
    assert not found.allows("shop", "credentials", "mailer")


async def test_a_change_holds_everywhere_within_two_seconds(store: MemoryGrants, clock: ManualClock) -> None:
    source = RegisteredGrants(store, "own")
    await source.refresh()
    following = asyncio.create_task(keep_fresh(source, clock))
    await asyncio.sleep(0)
    await over(store).put(1, SHOP, ANN)
    clock.advance(REFRESH_S)
    await until(lambda: source.current() != Grants((), default="own"))
    found = source.current()
    assert found is not None
    assert found.allows("shop", "credentials", "mailer")
    following.cancel()


class Counted(MemoryGrants):
    """Counts how often the latest revision is asked for; once it ``is_away``, nothing is answered."""

    asked, is_away = 0, False

    async def latest(self, known: GrantsRevision | None = None) -> GrantsRevision | None:
        self.asked += 1
        if self.is_away:
            raise Unreachable("Postgres is away")
        return await super().latest(known)


@pytest.mark.parametrize("kind", ["invalid", "away"])
async def test_an_unreadable_file_of_grants_leaves_the_former_in_force(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    store = Counted()
    await over(store).put(1, SHOP, ANN)
    source = RegisteredGrants(store, "own")
    await source.refresh()
    before = source.current()
    if kind == "away":
        store.is_away = True
    else:
        await store.add(grants_revision(2, source="of a later release"))
    following = asyncio.create_task(keep_fresh(source, clock))
    asked = store.asked + 3
    while store.asked < asked:
        clock.advance(REFRESH_S)
        await asyncio.sleep(0)
    assert source.current() == before
    assert not following.done()
    assert caplog.text.count("stay as they were: revision 2 of the grants: must have") == (kind == "invalid")
    following.cancel()


async def test_a_process_does_not_start_with_grants_that_it_cannot_read(store: MemoryGrants) -> None:
    await store.add(grants_revision(1, source="of a later release"))
    source = RegisteredGrants(store, "everything")
    for _ in range(2):
        with pytest.raises(UsageError, match="revision 1 of the grants"):
            await source.refresh()
    assert source.current() == Grants(())
