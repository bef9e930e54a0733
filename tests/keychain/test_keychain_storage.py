"""Storing, showing and rotating credentials."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.errors import NotReady, UsageError
from noetl_stream.model.json import codec
from noetl_stream.operations.access import MAX_VALUE_BYTES, DirectCredentials
from noetl_stream.ports.operations.access import RotatedDocument
from noetl_stream.ports.stores.credentials import NewCredential
from noetl_stream.sealing.keys import KeyRing, SealedEnvelope, decrypt, new_key, read_key

OLD = read_key(new_key(), "a test")
NEW = read_key(new_key(), "a test")


@pytest.fixture
def store() -> MemoryCredentials:
    return MemoryCredentials(ManualClock())


@pytest.fixture
def keeper(store: MemoryCredentials) -> DirectCredentials:
    return DirectCredentials(store, KeyRing(OLD))


async def value_of(store: MemoryCredentials, name: str, keys: KeyRing) -> Any:
    stored = await store.get(name)
    assert stored is not None
    envelope = SealedEnvelope(stored.info.key_id, stored.sealed)
    return codec.decode_json(decrypt(keys, name, stored.info.version, envelope))


async def test_a_value_is_stored_encrypted(store: MemoryCredentials, keeper: DirectCredentials) -> None:
    info = await keeper.put(
        "pg", {"password": "very secret"}, "ann", kind="postgres", tags=("a",), description="the shop"
    )
    assert (info.name, info.kind, info.version, info.tags, info.description) == (
        "pg",
        "postgres",
        1,
        ["a"],
        "the shop",
    )
    stored = await store.get("pg")
    assert stored is not None and b"secret" not in stored.sealed
    assert await value_of(store, "pg", KeyRing(OLD)) == {"password": "very secret"}


async def test_a_new_value_keeps_metadata_that_is_not_given(
    store: MemoryCredentials, keeper: DirectCredentials
) -> None:
    await keeper.put("pg", "first value", "ann", kind="postgres", tags=("a",), description="the shop")
    info = await keeper.put("pg", "second value", "ann", description="the other shop")
    assert (info.kind, info.version, info.tags, info.description) == ("postgres", 2, ["a"], "the other shop")
    assert await value_of(store, "pg", KeyRing(OLD)) == "second value"


async def test_a_writer_that_comes_second_writes_the_version_after(keeper: DirectCredentials) -> None:
    class Raced(MemoryCredentials):
        """Somebody else writes just before each of the first two."""

        raced = 2

        async def put(self, new: NewCredential) -> bool:
            if self.raced:
                self.raced -= 1
                await super().put(replace(new, sealed=b"theirs"))
            return await super().put(new)

    store = Raced(ManualClock())
    info = await DirectCredentials(store, KeyRing(OLD)).put("pg", "ours at last", "ann")
    assert info.version == 3
    assert await value_of(store, "pg", KeyRing(OLD)) == "ours at last"


@pytest.mark.parametrize("value", ["abc", {"password": "abc"}, {"list": ["fine!", "no"]}, {"pin": 123}])
async def test_a_secret_too_short_to_be_hidden_is_not_stored(keeper: DirectCredentials, value: Any) -> None:
    with pytest.raises(UsageError, match="fewer than 4 characters"):
        await keeper.put("pg", value, "ann")


async def test_short_names_and_addresses_are_not_secrets(keeper: DirectCredentials) -> None:
    value = {"host": "db", "port": 1, "username": "me", "sslmode": "on", "password": "long enough", "tls": True}
    assert (await keeper.put("pg", value, "ann")).version == 1


@pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a/b", "a" * 129, "ä"])
async def test_a_name_that_could_not_be_written_is_refused(keeper: DirectCredentials, name: str) -> None:
    with pytest.raises(UsageError, match="not a valid credential name"):
        await keeper.put(name, "a value", "ann")


async def test_a_value_that_is_data_is_refused(keeper: DirectCredentials) -> None:
    with pytest.raises(UsageError, match="larger than 65536 bytes"):
        await keeper.put("pg", "x" * MAX_VALUE_BYTES, "ann")


async def test_nothing_is_stored_or_rotated_without_a_key(store: MemoryCredentials) -> None:
    keeper = DirectCredentials(store, None)
    with pytest.raises(NotReady, match="no key to encrypt credentials") as caught:
        await keeper.put("pg", "a value", "ann")
    assert "NOETL_CREDENTIAL_KEY" in str(caught.value)
    with pytest.raises(NotReady):
        await keeper.rotate("ann")
    assert await keeper.list_all() == []


async def test_an_unknown_name_is_answered_with_the_nearest(keeper: DirectCredentials) -> None:
    await keeper.put("sales_db", "a value", "ann")
    for asking in (keeper.get("sales-db"), keeper.delete("sales_bd", "ann")):
        with pytest.raises(UsageError, match="not found") as caught:
            await asking
        assert caught.value.hint == "did you mean `sales_db`?"
    await keeper.delete("sales_db", "ann")
    assert await keeper.list_all() == []


async def test_rotation_brings_everything_under_the_current_key(
    store: MemoryCredentials, keeper: DirectCredentials
) -> None:
    await keeper.put("one", "value one", "ann")
    await keeper.put("two", "value two", "ann")
    both = DirectCredentials(store, KeyRing(NEW, (OLD,)))
    await both.put("three", "value three", "ann")
    assert await both.rotate("ann") == RotatedDocument(["one", "two"], [])
    assert await both.rotate("ann") == RotatedDocument([], [])
    for name in ("one", "two", "three"):
        assert await value_of(store, name, KeyRing(NEW)) == f"value {name}"
    assert [info.version for info in await both.list_all()] == [1, 1, 1]


async def test_a_credential_without_its_key_is_reported_and_the_rest_is_rotated(
    store: MemoryCredentials, keeper: DirectCredentials
) -> None:
    await keeper.put("lost", "value lost", "ann")
    third = read_key(new_key(), "a test")
    await DirectCredentials(store, KeyRing(third)).put("kept", "value kept", "ann")
    rotated = await DirectCredentials(store, KeyRing(NEW, (third,))).rotate("ann")
    assert rotated.rotated == ["kept"]
    assert len(rotated.problems) == 1
    assert "'lost'" in rotated.problems[0] and OLD.id in rotated.problems[0]
