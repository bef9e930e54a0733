"""Credentials as people use them: what goes in never comes out."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.errors import NotFound, NotReady
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.ports.operations.access import RotatedDocument
from noetl_stream.sealing.keys import Key, KeyRing

BY = "token:ada"
OLD, NEW = Key("old", b"o" * 32), Key("new", b"n" * 32)
SECRET = "a-long-secret"


async def test_a_credential_is_stored_shown_without_its_value_and_deleted() -> None:
    store = DirectCredentials(MemoryCredentials(ManualClock()), KeyRing(OLD))
    stored = await store.put("db", {"password": SECRET}, BY, "postgres", "the orders", ("prod",))
    assert (stored.version, stored.kind, stored.tags) == (1, "postgres", ["prod"])
    again = await store.put("db", {"password": SECRET}, BY)
    assert (again.version, again.kind, again.description) == (2, "postgres", "the orders")
    assert await store.list_all() == [await store.get("db")] == [again]
    assert SECRET not in str(again)
    await store.delete("db", BY)
    for work in (store.get("db"), store.delete("db", BY)):
        with pytest.raises(NotFound, match="credential 'db' not found"):
            await work


async def test_rotation_names_what_it_has_brought_under_the_new_key() -> None:
    credentials = MemoryCredentials(ManualClock())
    await DirectCredentials(credentials, KeyRing(OLD)).put("db", SECRET, BY)
    rotating = DirectCredentials(credentials, KeyRing(NEW, (OLD,)))
    assert await rotating.rotate(BY) == RotatedDocument(["db"], [])
    assert (await rotating.get("db")).key_id == "new"


async def test_without_a_key_nothing_is_stored() -> None:
    store = DirectCredentials(MemoryCredentials(ManualClock()), None)
    with pytest.raises(NotReady):
        await store.put("db", SECRET, BY)
