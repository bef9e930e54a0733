"""Conformance of :class:`~noetl_stream.ports.streams.blobs.Blobs`, as tests to inherit.

A test class inherits :class:`BlobsConformance`; the module or its ``conftest.py`` provides one fixture:

``blobs``
    An empty store.
"""

from __future__ import annotations

import asyncio

from noetl_stream.errors import BlobMissing
from noetl_stream.ports.streams.blobs import Blobs
from noetl_testkit.waiting import expect_error

MANY_CHUNKS = 3 * 1024 * 1024 + 17


class BlobsConformance:
    async def test_a_value_is_read_back(self, blobs: Blobs) -> None:
        await blobs.put("run-1/c1/1.1.abc/0", b'{"rows":[1,2,3]}')
        assert await blobs.get("run-1/c1/1.1.abc/0") == b'{"rows":[1,2,3]}'

    async def test_a_large_value_is_read_back(self, blobs: Blobs) -> None:
        value = bytes(n * 31 % 251 for n in range(4096)) * (MANY_CHUNKS // 4096) + b"end"
        await blobs.put("large", value)
        assert await blobs.get("large") == value

    async def test_an_empty_value_is_a_value(self, blobs: Blobs) -> None:
        await blobs.put("empty", b"")
        assert await blobs.get("empty") == b""

    async def test_a_key_is_never_overwritten(self, blobs: Blobs) -> None:
        await blobs.put("key", b"first")
        await blobs.put("key", b"second")
        assert await blobs.get("key") == b"first"

    async def test_one_of_several_concurrent_writers_wins_whole(self, blobs: Blobs) -> None:
        values = [bytes([65 + n]) * 300_000 for n in range(4)]
        await asyncio.gather(*(blobs.put("key", value) for value in values))
        assert await blobs.get("key") in values

    async def test_keys_may_hold_any_text(self, blobs: Blobs) -> None:
        keys = ["a/b", "a.b", "a b", "ä>*", "playbook:sha256:ff"]
        for key in keys:
            await blobs.put(key, key.encode())
        assert [await blobs.get(key) for key in keys] == [key.encode() for key in keys]

    async def test_an_unknown_key_is_missing(self, blobs: Blobs) -> None:
        error = await expect_error(BlobMissing, blobs.get("nothing"))
        assert "nothing" in str(error)

    async def test_a_deleted_value_is_missing_and_the_rest_stays(self, blobs: Blobs) -> None:
        for key in ("run/a", "run/b"):
            await blobs.put(key, b"x" * 300_000)
        await blobs.delete("run/a")
        await blobs.delete("run/a")
        await expect_error(BlobMissing, blobs.get("run/a"))
        assert await blobs.get("run/b") == b"x" * 300_000

    async def test_a_deleted_value_can_be_put_again(self, blobs: Blobs) -> None:
        await blobs.put("key", b"first")
        await blobs.delete("key")
        await blobs.put("key", b"second")
        assert await blobs.get("key") == b"second"
