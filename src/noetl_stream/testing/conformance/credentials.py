"""Conformance of :class:`~noetl_stream.ports.credentials.Credentials`, as tests to inherit.

A test class inherits :class:`CredentialsConformance`; the module or its ``conftest.py`` provides one fixture:

``credentials``
    An empty store.
"""

from __future__ import annotations

import asyncio

from noetl_stream.ports.credentials import Credentials, NewCredential


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
    return made._replace(**changes)  # type: ignore[arg-type]


class CredentialsConformance:
    async def test_a_credential_is_read_back_with_what_may_be_shown(self, credentials: Credentials) -> None:
        assert await credentials.put(new_credential("pg"))
        found = await credentials.get("pg")
        assert found is not None
        info = found.info
        assert (*info[:6], found.sealed) == new_credential("pg")
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
        assert (*found.info[:6], found.sealed) == second
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
        for name in ("pg", "other"):
            assert await credentials.put(new_credential(name))
        for execution_id, name in (("one", "pg"), ("one", "pg"), ("one", "gone"), ("two", "other")):
            await credentials.record_use(execution_id, name)
        stored = {name: await credentials.get(name) for name in ("pg", "other")}
        assert await credentials.used_by(["one", "two", "three"]) == {"one": [stored["pg"]], "two": [stored["other"]]}
        assert await credentials.used_by(["three"]) == {}
