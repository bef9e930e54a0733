"""A cache of secrets, so that a worker need not request them for every task (legacy architecture §5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from noetl_stream.lru import LruCache
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.limits import MAX_SECRETS_KEPT
from noetl_stream.worker.secrets.client import Secret

Key: TypeAlias = tuple[str, ...]
"""The owner (an execution's id, '' for all) and the name of a secret."""


class CachedSecret(NamedTuple):
    """A secret and how many seconds from now it may be used."""

    secret: Secret
    kept_s: float


class SecretCache:
    """A bounded cache; concurrent callers of one secret load it once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: LruCache[Key, tuple[float, Secret]] = LruCache(MAX_SECRETS_KEPT)
        self._loading: dict[Key, asyncio.Task[Secret]] = {}

    async def get(self, key: Key, load: Callable[[], Awaitable[CachedSecret]]) -> Secret:
        """The secret of ``key``, from ``load`` if it is not cached or has expired. Errors are those of ``load``."""
        until_s, secret = self._secret(key)
        if secret is not None and self._clock.monotonic_s() < until_s:
            return secret
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.ensure_future(self._load(key, load))
            loading.add_done_callback(lambda task: self._loaded(key, task))
        # One caller that is cancelled must not take the answer from the others.
        return await asyncio.shield(loading)

    def drop(self, key: Key, secret: Secret) -> None:
        """Drops ``secret``, unless ``key`` has a newer one by now."""
        if self._secret(key)[1] is secret:
            self._kept.drop(key)

    async def close(self) -> None:
        """Cancels pending loads."""
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)

    def _secret(self, key: Key) -> tuple[float, Secret | None]:
        return self._kept.get(key) or (0.0, None)

    async def _load(self, key: Key, load: Callable[[], Awaitable[CachedSecret]]) -> Secret:
        secret, kept_s = await load()
        now_s = self._clock.monotonic_s()
        for old in [old for old, (until_s, _) in self._kept.items() if until_s <= now_s]:
            self._kept.drop(old)
        self._kept.put(key, (now_s + kept_s, secret))
        return secret

    def _loaded(self, key: Key, task: asyncio.Task[Secret]) -> None:
        self._loading.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved here: all who waited for it may have been cancelled
