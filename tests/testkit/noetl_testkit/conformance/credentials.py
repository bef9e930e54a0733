"""Conformance of :class:`~noetl_stream.ports.stores.credentials.Credentials`, as tests to inherit.

A test class inherits :class:`CredentialsConformance`; the module or its ``conftest.py`` provides two fixtures:

``credentials``
    An empty store.

``forget_execution``
    Does to it what deleting an execution does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from msgspec.structs import astuple, replace

from noetl_stream.ports.stores.credentials import (
    MAX_GIVEN_BYTES,
    MAX_VALUES_GIVEN,
    Credentials,
    NewCredential,
    SealedValue,
    StoredCredential,
    given_name,
)

ForgetExecution = Callable[[str], Awaitable[None]]


def new_credential(name: str, version: int = 1, **changes: object) -> NewCredential:
    """A value to store, not really encrypted."""
    made = NewCredential(
        name=name,
        kind="postgres",
        description=f"about {name}",
        tags=("tag", "ü"),
        version=version,
        key_id="key-1",
        sealed=b"\0sealed\xff",
    )
    return replace(made, **changes)


class CredentialsConformance:
    async def test_a_credential_is_read_back_with_what_may_be_shown(self, credentials: Credentials) -> None:
        assert await credentials.put(new_credential("pg"))
        found = await credentials.get("pg")
        assert found is not None
        info = found.info
        assert (*astuple(info)[:6], found.sealed) == astuple(new_credential("pg"))
        assert info.created_ms == info.updated_ms
        assert await credentials.list_all() == [info]

    async def test_an_unknown_name_is_undefined(self, credentials: Credentials) -> None:
        assert await credentials.get("nothing") is None
        assert not await credentials.delete("nothing")
        assert not await credentials.reencrypt("nothing", 1, "key-2", b"again")

    async def test_the_next_version_replaces_everything_but_the_creation(self, credentials: Credentials) -> None:
        await credentials.put(new_credential("pg"))
        first = await credentials.get("pg")
        second = new_credential("pg", 2, kind="http", description="", tags=(), key_id="key-2", sealed=b"other")
        assert await credentials.put(second)
        found = await credentials.get("pg")
        assert found is not None and first is not None
        assert (*astuple(found.info)[:6], found.sealed) == astuple(second)
        assert found.info.created_ms == first.info.created_ms

    async def test_only_the_very_next_version_is_taken(self, credentials: Credentials) -> None:
        assert not await credentials.put(new_credential("pg", 2))
        await credentials.put(new_credential("pg"))
        assert not await credentials.put(new_credential("pg", sealed=b"other"))
        assert not await credentials.put(new_credential("pg", 3))
        found = await credentials.get("pg")
        assert found is not None
        assert (found.info.version, found.sealed) == (1, b"\0sealed\xff")

    async def test_one_of_several_concurrent_writers_wins(self, credentials: Credentials) -> None:
        writers = [credentials.put(new_credential("pg", sealed=bytes([number]))) for number in range(4)]
        assert sorted(await asyncio.gather(*writers)) == [False, False, False, True]

    async def test_another_key_leaves_the_version_and_what_is_shown(self, credentials: Credentials) -> None:
        await credentials.put(new_credential("pg"))
        assert await credentials.reencrypt("pg", 1, "key-2", b"again")
        found = await credentials.get("pg")
        assert found is not None
        assert (found.info.version, found.info.key_id, found.sealed) == (1, "key-2", b"again")
        assert found.info.created_ms == found.info.updated_ms

    async def test_another_key_is_not_put_on_a_version_that_was_replaced(self, credentials: Credentials) -> None:
        await credentials.put(new_credential("pg"))
        await credentials.put(new_credential("pg", 2, sealed=b"second"))
        assert not await credentials.reencrypt("pg", 1, "key-2", b"again")
        found = await credentials.get("pg")
        assert found is not None and found.sealed == b"second"

    async def test_all_are_listed_by_name(self, credentials: Credentials) -> None:
        for name in ("b", "a", "B", "ä"):
            await credentials.put(new_credential(name))
        assert [info.name for info in await credentials.list_all()] == ["B", "a", "b", "ä"]
        assert [stored.info.name for stored in await credentials.read_all()] == ["B", "a", "b", "ä"]

    async def test_a_deleted_name_starts_over(self, credentials: Credentials) -> None:
        await credentials.put(new_credential("pg"))
        await credentials.put(new_credential("pg", 2))
        assert await credentials.delete("pg")
        assert await credentials.list_all() == []
        assert await credentials.put(new_credential("pg"))

    async def test_what_was_handed_out_for_an_execution_is_found_with_its_value(self, credentials: Credentials) -> None:
        pg, other = await stored(credentials, "pg"), await stored(credentials, "other")
        for execution_id, read in (("one", pg), ("one", pg), ("two", other)):
            assert await credentials.record_use(execution_id, read)
        found = await credentials.used_by(["one", "two", "three"])
        assert found == {"one": [value_of(pg)], "two": [value_of(other)]}
        assert await credentials.used_by(["three"]) == {}

    async def test_former_values_that_were_handed_out_are_found_before_today_s(self, credentials: Credentials) -> None:
        read = [await stored(credentials, "pg", number) for number in (1, 2)]
        assert await credentials.record_use("one", read[1])
        read.append(await stored(credentials, "pg", 3))
        assert await credentials.record_use("one", read[2])
        read.append(await stored(credentials, "pg", 4))
        assert await credentials.used_by(["one"]) == {"one": [value_of(one) for one in read[1:]]}
        assert [former.value for former in await credentials.read_former(0, 10)] == [value_of(one) for one in read[1:3]]

    async def test_a_deleted_value_that_was_handed_out_is_found(self, credentials: Credentials) -> None:
        first = await stored(credentials, "pg")
        assert await credentials.record_use("one", first)
        assert await credentials.delete("pg")
        assert await credentials.used_by(["one"]) == {"one": [value_of(first)]}
        again = await stored(credentials, "pg")
        assert await credentials.used_by(["one"]) == {"one": [value_of(first), value_of(again)]}

    async def test_a_value_that_was_replaced_since_it_was_read_is_not_handed_out(
        self, credentials: Credentials
    ) -> None:
        first = await stored(credentials, "pg")
        await stored(credentials, "pg", 2)
        assert not await credentials.record_use("one", first)
        assert await credentials.delete("pg")
        await stored(credentials, "pg")
        assert not await credentials.record_use("one", first), "a value of its own, though version 1 again"
        assert await credentials.used_by(["one"]) == {}

    async def test_former_values_are_kept_as_long_as_an_execution_that_was_given_them(
        self, credentials: Credentials, forget_execution: ForgetExecution
    ) -> None:
        read = await stored(credentials, "pg")
        for execution_id in ("one", "two"):
            assert await credentials.record_use(execution_id, read)
        later = await stored(credentials, "pg", 2)
        assert await credentials.record_use("two", later)
        assert await credentials.delete("pg")
        await forget_execution("one")
        assert await credentials.used_by(["one", "two"]) == {"two": [value_of(read), value_of(later)]}
        await forget_execution("two")
        assert await credentials.used_by(["one", "two"]) == {}
        assert await credentials.read_former(0, 10) == []

    async def test_an_heir_hides_what_its_giver_was_given(
        self, credentials: Credentials, forget_execution: ForgetExecution
    ) -> None:
        pg, other = await stored(credentials, "pg"), await stored(credentials, "other")
        for execution_id, read in (("giver", pg), ("heir", other)):
            assert await credentials.record_use(execution_id, read)
        await credentials.record_given("giver", given("worker-a"))
        for _ in range(2):
            await credentials.inherit_uses([("giver", "heir"), ("nobody", "heir")])
        assert await credentials.used_by(["heir"]) == {"heir": [given("worker-a"), value_of(pg), value_of(other)]}
        await forget_execution("giver")
        assert await credentials.delete("pg")
        found = await credentials.used_by(["giver", "heir"])
        assert found == {"heir": [value_of(pg), given("worker-a"), value_of(other)]}

    async def test_a_value_that_a_giver_drops_stays_with_its_heir(self, credentials: Credentials) -> None:
        first, *later = [given("worker-a", mark=str(number)) for number in range(MAX_VALUES_GIVEN + 1)]
        await credentials.record_given("giver", first)
        await credentials.inherit_uses([("giver", "heir")])
        for value in later:
            await credentials.record_given("giver", value)
        assert await credentials.used_by(["giver", "heir"]) == {"giver": later, "heir": [first]}

    async def test_former_values_get_another_key(self, credentials: Credentials) -> None:
        for version in (1, 2, 3):
            assert await credentials.record_use("one", await stored(credentials, "pg", version))
        first, second = await credentials.read_former(0, 10)
        assert await credentials.read_former(0, 1) == [first]
        assert await credentials.read_former(first.number, 10) == [second]
        assert await credentials.reencrypt_former(first.number, "key-2", b"again")
        again = first.value._replace(key_id="key-2", sealed=b"again")
        assert (await credentials.used_by(["one"]))["one"][:2] == [again, second.value]
        assert not await credentials.reencrypt_former(second.number + 1_000, "key-2", b"again")

    async def test_another_key_makes_no_former_value(self, credentials: Credentials) -> None:
        assert await credentials.record_use("one", await stored(credentials, "pg"))
        assert await credentials.reencrypt("pg", 1, "key-2", b"again")
        assert await credentials.used_by(["one"]) == {"one": [SealedValue("pg", 1, "key-2", b"again")]}

    async def test_a_value_that_no_credential_has_is_kept_once_with_its_execution(
        self, credentials: Credentials, forget_execution: ForgetExecution
    ) -> None:
        for execution_id in ("one", "one", "two"):
            await credentials.record_given(execution_id, given("worker-a"))
        assert await credentials.used_by(["one"]) == {"one": [given("worker-a")]}
        await forget_execution("one")
        assert await credentials.used_by(["one", "two"]) == {"two": [given("worker-a")]}
        assert [former.value for former in await credentials.read_former(0, 10)] == [given("worker-a")]
        await forget_execution("two")
        assert await credentials.read_former(0, 10) == []

    async def test_a_former_value_gets_another_key(self, credentials: Credentials) -> None:
        await credentials.record_given("one", given("worker-a"))
        [kept] = await credentials.read_former(0, 10)
        assert await credentials.reencrypt_former(kept.number, "key-2", b"again")
        assert await credentials.used_by(["one"]) == {"one": [SealedValue(*given("worker-a")[:2], "key-2", b"again")]}

    async def test_a_former_value_is_no_value_of_a_stored_credential(self, credentials: Credentials) -> None:
        await stored(credentials, "pg")
        await credentials.record_given("one", given("worker-a", name="pg"))
        assert await credentials.used_by(["one"]) == {"one": [given("worker-a", name="pg")]}

    async def test_of_too_many_values_from_one_giver_the_newest_are_kept(self, credentials: Credentials) -> None:
        first = await stored(credentials, "pg")
        assert await credentials.record_use("one", first)
        others = [given("worker-aa"), given("server")]
        for value in others:
            await credentials.record_given("one", value)
        many = [given("worker-a", mark=str(number)) for number in range(MAX_VALUES_GIVEN + 2)]
        for value in many:
            await credentials.record_given("one", value)
        assert (await credentials.used_by(["one"]))["one"] == [*others, *many[2:], value_of(first)]
        assert len(await credentials.read_former(0, 1_000)) == MAX_VALUES_GIVEN + len(others)

    async def test_of_too_large_values_from_one_giver_the_newest_are_kept(self, credentials: Credentials) -> None:
        large = [given("worker-a", mark=str(number), size=MAX_GIVEN_BYTES // 2) for number in range(3)]
        for value in [given("worker-b"), *large]:
            await credentials.record_given("one", value)
        assert (await credentials.used_by(["one"]))["one"] == [given("worker-b"), *large[1:]]


def given(giver: str, *, name: str = "entry", mark: str = "mark", size: int = 8) -> SealedValue:
    """A value that a giver read, not really encrypted."""
    return SealedValue(given_name(giver, name, mark), 1, "key-1", b"s" * size)


async def stored(credentials: Credentials, name: str, version: int = 1) -> StoredCredential:
    """Stores a value of its own."""
    assert await credentials.put(new_credential(name, version, sealed=os.urandom(8)))
    found = await credentials.get(name)
    assert found is not None
    return found


def value_of(read: StoredCredential) -> SealedValue:
    return SealedValue(read.info.name, read.info.version, read.info.key_id, read.sealed)
