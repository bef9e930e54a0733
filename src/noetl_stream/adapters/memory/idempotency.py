"""Idempotency keys in memory."""

from __future__ import annotations

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.idempotency import ClaimedKey, KeptAnswer
from noetl_stream.ports.operations.executions import RequestIds


class MemoryIdempotency:
    """:class:`~noetl_stream.ports.idempotency.Idempotency` in memory; the port documents each method."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._claimed: dict[tuple[str, str], tuple[int, ClaimedKey]] = {}

    async def claim(self, key: str, caller: str, content_hash: bytes, ids: RequestIds) -> ClaimedKey:
        new = (self._clock.now_ms(), ClaimedKey(content_hash, ids, None))
        return self._claimed.setdefault((key, caller), new)[1]

    async def finish(self, key: str, caller: str, answer: KeptAnswer) -> KeptAnswer:
        at_ms, claimed = self._claimed.get((key, caller), (0, None))
        if claimed is None:
            return answer
        if claimed.answer is None:
            self._claimed[key, caller] = (at_ms, claimed._replace(answer=answer))
            return answer
        return claimed.answer

    async def forget(self, older_than_s: float) -> int:
        before_ms = self._clock.now_ms() - older_than_s * 1000
        old = [name for name, (at_ms, _) in self._claimed.items() if at_ms < before_ms]
        for name in old:
            del self._claimed[name]
        return len(old)
