"""Conformance of :class:`~noetl_stream.ports.stores.idempotency.Idempotency`, as tests to inherit.

A test class inherits :class:`IdempotencyConformance`; the module or its ``conftest.py`` provides one fixture:

``idempotency``
    An empty store.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.stores.idempotency import ClaimedKey, Idempotency, KeptAnswer

HASH = b"\x00hash\xff"
FIRST = RequestIds("execution-1", "request-1")
SECOND = RequestIds("execution-2", "request-2")
ANSWER = KeptAnswer(202, {"Location": "/there/ü", "Content-Type": "application/json"}, b'{"a":"\\u0000"}\xff')


class IdempotencyConformance:
    async def test_a_new_key_is_claimed_with_the_ids_that_were_drawn(self, idempotency: Idempotency) -> None:
        assert await idempotency.claim("key", "ann", HASH, FIRST) == ClaimedKey(HASH, FIRST, None)

    async def test_a_key_that_was_claimed_keeps_its_ids_and_its_content(self, idempotency: Idempotency) -> None:
        await idempotency.claim("key", "ann", HASH, FIRST)
        assert await idempotency.claim("key", "ann", b"other", SECOND) == ClaimedKey(HASH, FIRST, None)

    async def test_keys_belong_to_their_caller(self, idempotency: Idempotency) -> None:
        await idempotency.claim("key", "ann", HASH, FIRST)
        assert (await idempotency.claim("key", "bob", HASH, SECOND)).ids == SECOND
        assert (await idempotency.claim("Key", "ann", HASH, SECOND)).ids == SECOND

    async def test_the_answer_is_read_back_as_it_was(self, idempotency: Idempotency) -> None:
        await idempotency.claim("key", "ann", HASH, FIRST)
        assert await idempotency.finish("key", "ann", ANSWER) == ANSWER
        assert await idempotency.claim("key", "ann", HASH, SECOND) == ClaimedKey(HASH, FIRST, ANSWER)

    async def test_the_first_answer_stays(self, idempotency: Idempotency) -> None:
        await idempotency.claim("key", "ann", HASH, FIRST)
        await idempotency.finish("key", "ann", ANSWER)
        assert await idempotency.finish("key", "ann", KeptAnswer(200, {}, b"")) == ANSWER

    async def test_a_success_replaces_a_refusal_that_another_gateway_got(self, idempotency: Idempotency) -> None:
        refusal = KeptAnswer(409, {}, b"")
        await idempotency.claim("key", "ann", HASH, FIRST)
        assert await idempotency.finish("key", "ann", refusal) == refusal
        assert await idempotency.finish("key", "ann", ANSWER) == ANSWER
        assert await idempotency.finish("key", "ann", refusal) == ANSWER

    async def test_the_seed_is_there_until_the_call_is_answered(self, idempotency: Idempotency) -> None:
        drawn = replace(FIRST, seed=b"seed")
        await idempotency.claim("key", "ann", HASH, drawn)
        assert (await idempotency.claim("key", "ann", HASH, SECOND)).ids == drawn
        await idempotency.finish("key", "ann", ANSWER)
        assert (await idempotency.claim("key", "ann", HASH, SECOND)).ids == FIRST

    async def test_an_answer_to_a_forgotten_key_is_not_stored(self, idempotency: Idempotency) -> None:
        assert await idempotency.finish("key", "ann", ANSWER) == ANSWER
        assert (await idempotency.claim("key", "ann", HASH, SECOND)).answer is None

    async def test_concurrent_calls_all_get_the_ids_of_one(self, idempotency: Idempotency) -> None:
        drawn = [RequestIds(f"execution-{number}", f"request-{number}") for number in range(8)]
        claims = [idempotency.claim("key", "ann", HASH, ids) for ids in drawn]
        found = {claimed.ids for claimed in await asyncio.gather(*claims)}
        assert len(found) == 1
        assert found <= set(drawn)

    async def test_keys_are_forgotten_once_they_are_old(self, idempotency: Idempotency) -> None:
        for key in ("one", "two"):
            await idempotency.claim(key, "ann", HASH, FIRST)
        assert await idempotency.forget(3600) == 0
        assert (await idempotency.claim("one", "ann", HASH, SECOND)).ids == FIRST
        assert await idempotency.forget(-3600) == 2
        assert (await idempotency.claim("one", "ann", HASH, SECOND)).ids == SECOND
