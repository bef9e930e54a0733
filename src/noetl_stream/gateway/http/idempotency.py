"""Idempotency keys: a call repeated under its key is performed once, and answered with the first answer.

A call that died between claim and answer is performed again under the same ids, which the fold recognizes (PROTOCOL §1
*Request rows*), so that this duplicates nothing either.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from noetl_stream.errors import NoetlError
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.model.ids import uuid7
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.problems import FaultDocument
from noetl_stream.ports.stores.idempotency import Idempotency, KeptAnswer

log = logging.getLogger(__name__)

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
"""The header of an answer that was given before."""

KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")
SEED_BYTES: Final = 32
KEPT_S: Final = 24 * 3600.0
FORGET_EVERY_S: Final = 600.0

NOT_KEPT: Final = frozenset({401, 403, 429})
"""Refusals that a retry may overcome; so may every error of 500 and above."""

Perform = Callable[[RequestIds], Awaitable[KeptAnswer]]


class IdempotentCalls:
    """Performs each call once under its key."""

    def __init__(self, idempotency: Idempotency, clock: Clock) -> None:
        self._idempotency = idempotency
        self._clock = clock
        self._in_flight: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def new_ids(self) -> RequestIds:
        now_ms, random_bytes = self._clock.now_ms(), self._clock.random_bytes
        return RequestIds(uuid7(now_ms, random_bytes(10)), uuid7(now_ms, random_bytes(10)), random_bytes(SEED_BYTES))

    async def perform(
        self, key: str, caller: str, content: tuple[bytes, ...], perform: Perform, keep: Callable[[bytes], bytes]
    ) -> KeptAnswer:
        """Returns the answer of ``perform``, or the answer given under ``key`` before.

        If ``perform`` raises, the call may be made again, under the same ids. While one call is under way here, others
        under its key wait for its answer; calls at another gateway are performed as if this one had died.

        Args:
            content: The identity of the call: everything it consists of.
            keep: Makes the storable form of an answer's body.

        Raises:
            HttpProblem: the key was used for another call, or is malformed.
        """
        if KEY.fullmatch(key) is None:
            fault = FaultDocument("must be 1 to 128 printable ASCII characters without spaces", parameter=HEADER)
            raise HttpProblem("invalid-request", "The parameters of the request are invalid", [fault])
        content_hash = sha256(b"\0".join(sha256(part).digest() for part in content)).digest()
        in_flight = self._in_flight.setdefault((key, caller), asyncio.Lock())
        async with in_flight:
            return await self._performed(key, caller, content_hash, perform, keep)

    async def _performed(
        self, key: str, caller: str, content_hash: bytes, perform: Perform, keep: Callable[[bytes], bytes]
    ) -> KeptAnswer:
        claimed = await self._idempotency.claim(key, caller, content_hash, self.new_ids())
        if claimed.content_hash != content_hash:
            raise HttpProblem("key-reused", f"{HEADER} {key!r} was used for another request", hint="use a new key")
        if claimed.answer is not None:
            return _replayed(claimed.answer)
        answer = await perform(claimed.ids)
        kept = replace(answer, body=keep(answer.body))
        try:
            first = await self._idempotency.finish(key, caller, kept)
        except NoetlError:
            return answer  # it is performed; the fold answers repetitions
        return answer if first == kept else _replayed(first)

    async def forget_old(self) -> None:
        """Forgets old keys periodically; never returns."""
        while True:
            await self._clock.sleep(FORGET_EVERY_S)
            try:
                await self._idempotency.forget(KEPT_S)
            except NoetlError as error:
                log.warning("cannot delete old idempotency keys: %s", error)


def _replayed(answer: KeptAnswer) -> KeptAnswer:
    return replace(answer, headers={**answer.headers, REPLAYED: "true"})
