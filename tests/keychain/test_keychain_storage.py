"""Storing, showing and rotating credentials."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.adapters.memory.clock import ManualClock
from noetl_stream.adapters.memory.credentials import MemoryCredentials
from noetl_stream.client.credentials.storage import MAX_VALUE_BYTES, CredentialStorage
from noetl_stream.errors import NotReady, UsageError
from noetl_stream.model import codec
from noetl_stream.ports.credentials import NewCredential
from noetl_stream.sealing.keys import KeyRing, SealedEnvelope, decrypt, new_key, read_key

OLD = read_key(new_key(), "a test")
NEW = read_key(new_key(), "a test")


@pytest.fixture
def store() -> MemoryCredentials:
    return MemoryCredentials(ManualClock())


@pytest.fixture
def keeper(store: MemoryCredentials) -> CredentialStorage:
    return CredentialStorage(store, KeyRing(OLD))


async def value_of(store: MemoryCredentials, name: str, keys: KeyRing) -> Any:
    stored = await store.get(name)
    assert stored is not None
    envelope = SealedEnvelope(stored.info.key_id, stored.sealed)
    return codec.decode_json(decrypt(keys, name, stored.info.version, envelope))


async def test_a_value_is_stored_encrypted(store: MemoryCredentials, keeper: CredentialStorage) -> None:
    info = await keeper.store("pg", {"password": "very secret"}, kind="postgres", tags=("a",), description="the shop")
    assert (info.name, info.kind, info.version, info.tags, info.description) == (
        "pg",
        "postgres",
        1,
        ("a",),
        "the shop",
    )
    stored = await store.get("pg")
    assert stored is not None and b"secret" not in stored.sealed
    assert await value_of(store, "pg", KeyRing(OLD)) == {"password": "very secret"}


async def test_a_new_value_keeps_metadata_that_is_not_given(
    store: MemoryCredentials, keeper: CredentialStorage
) -> None:
    await keeper.store("pg", "first value", kind="postgres", tags=("a",), description="the shop")
    info = await keeper.store("pg", "second value", description="the other shop")
    assert (info.kind, info.version, info.tags, info.description) == ("postgres", 2, ("a",), "the other shop")
    assert await value_of(store, "pg", KeyRing(OLD)) == "second value"


async def test_a_writer_that_comes_second_writes_the_version_after(keeper: CredentialStorage) -> None:
    class Raced(MemoryCredentials):
        """Somebody else writes just before each of the first two."""

        raced = 2

        async def put(self, new: NewCredential) -> bool:
            if self.raced:
                self.raced -= 1
                await super().put(new._replace(sealed=b"theirs"))
            return await super().put(new)

    store = Raced(ManualClock())
    info = await CredentialStorage(store, KeyRing(OLD)).store("pg", "ours at last")
    assert info.version == 3
    assert await value_of(store, "pg", KeyRing(OLD)) == "ours at last"


@pytest.mark.parametrize("value", ["abc", {"password": "abc"}, {"list": ["fine!", "no"]}, {"pin": 123}])
async def test_a_secret_too_short_to_be_hidden_is_not_stored(keeper: CredentialStorage, value: Any) -> None:
    with pytest.raises(UsageError, match="fewer than 4 characters"):
        await keeper.store("pg", value)


async def test_short_names_and_addresses_are_not_secrets(keeper: CredentialStorage) -> None:
    value = {"host": "db", "port": 1, "username": "me", "sslmode": "on", "password": "long enough", "tls": True}
    assert (await keeper.store("pg", value)).version == 1


@pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a/b", "a" * 129, "ä"])
async def test_a_name_that_could_not_be_written_is_refused(keeper: CredentialStorage, name: str) -> None:
    with pytest.raises(UsageError, match="no name for a credential"):
        await keeper.store(name, "a value")


async def test_a_value_that_is_data_is_refused(keeper: CredentialStorage) -> None:
    with pytest.raises(UsageError, match="larger than 65536 bytes"):
        await keeper.store("pg", "x" * MAX_VALUE_BYTES)


async def test_nothing_is_stored_or_rotated_without_a_key(store: MemoryCredentials) -> None:
    keeper = CredentialStorage(store, None)
    with pytest.raises(NotReady, match="no key is configured") as caught:
        await keeper.store("pg", "a value")
    assert "NOETL_CREDENTIAL_KEY" in str(caught.value)
    with pytest.raises(NotReady):
        await keeper.rotate()
    assert await keeper.list_all() == []


async def test_an_unknown_name_is_answered_with_the_nearest(keeper: CredentialStorage) -> None:
    await keeper.store("sales_db", "a value")
    for asking in (keeper.show("sales-db"), keeper.delete("sales_bd")):
        with pytest.raises(UsageError, match="no credential is stored as") as caught:
            await asking
        assert caught.value.hint == "did you mean `sales_db`?"
    await keeper.delete("sales_db")
    assert await keeper.list_all() == []


async def test_rotation_brings_everything_under_the_current_key(
    store: MemoryCredentials, keeper: CredentialStorage
) -> None:
    await keeper.store("one", "value one")
    await keeper.store("two", "value two")
    both = CredentialStorage(store, KeyRing(NEW, (OLD,)))
    await both.store("three", "value three")
    assert await both.rotate() == (["one", "two"], [])
    assert await both.rotate() == ([], [])
    for name in ("one", "two", "three"):
        assert await value_of(store, name, KeyRing(NEW)) == f"value {name}"
    assert [info.version for info in await both.list_all()] == [1, 1, 1]


async def test_a_credential_without_its_key_is_reported_and_the_rest_is_rotated(
    store: MemoryCredentials, keeper: CredentialStorage
) -> None:
    await keeper.store("lost", "value lost")
    third = read_key(new_key(), "a test")
    await CredentialStorage(store, KeyRing(third)).store("kept", "value kept")
    rotated = await CredentialStorage(store, KeyRing(NEW, (third,))).rotate()
    assert rotated.names == ["kept"]
    assert len(rotated.problems) == 1
    assert "'lost'" in rotated.problems[0] and OLD.id in rotated.problems[0]
