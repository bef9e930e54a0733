"""Makes servers hide the secrets that this worker reads itself, wherever the execution is shown (LANGUAGE §11)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.concurrency import Key, Result, SharedLoads
from noetl_stream.lru import LruCache
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import HideQuestion, hidden_as
from noetl_stream.model.secrets.credential import CredentialValue
from noetl_stream.protocol import subjects
from noetl_stream.sealing.handover import seal
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.worker import worker_limits as limits
from noetl_stream.worker.asker import Asker

_DIGEST_BYTES: Final = 16


async def load_shared(
    loads: SharedLoads[Key, Result], key: Key, load: Callable[[], Coroutine[Any, Any, Result]]
) -> Result:
    """Returns the result of the running load for ``key``, or of ``load`` without one or after its failure."""
    while True:
        is_shared = key in loads
        try:
            return await loads.get(key, load)
        except ToolFailure:
            if not is_shared:  # the shared load was refused to another command, which may have ended
                raise


class Hiding:
    """Makes servers hide secrets, each once per execution."""

    def __init__(self) -> None:
        self._hidden: LruCache[bytes, bool] = LruCache(limits.MAX_SECRETS_KEPT)
        self._loads: SharedLoads[bytes, None] = SharedLoads()
        self._server_keys: dict[int, bytes] = {}
        """The key of each partition's owner, to which values are sealed."""

    async def hide(self, asker: Asker, name: str, value: CredentialValue) -> None:
        """Makes servers hide ``value``, the secret ``name``, in the execution of ``asker``, and waits until they do.

        Raises:
            ToolFailure: kind ``credential``: a server refuses.
        """
        key = _key(asker.execution_id, name, value)
        if key not in self._hidden:
            await load_shared(self._loads, key, lambda: self._hide(key, asker, name, value))

    def note(self, execution_id: str, name: str, value: CredentialValue) -> None:
        """Notes that servers already hide ``value`` in that execution."""
        self._hidden.put(_key(execution_id, name, value), True)

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._loads.close()

    async def _hide(self, key: bytes, asker: Asker, name: str, value: CredentialValue) -> None:
        partition = partition_of(asker.execution_id)
        while True:
            server_key = self._server_keys.get(partition, b"")
            question = HideQuestion(asker.command, name, server_key, worker=asker.worker)
            if server_key:
                sealed = seal(codec.encode(value), server_key, hidden_as(question))
                question = replace(question, public_key=sealed.public_key, body=sealed.body)
            answer = codec.decode_hide_answer(await asker.ask(subjects.ASK_HIDE, question))
            if answer.refused:
                raise ToolFailure.of("credential", f"what {name!r} holds cannot be hidden: {answer.refused}")
            if not answer.server_key:
                self._hidden.put(key, True)  # before the load ends, so that nobody asks again
                return
            self._server_keys[partition] = answer.server_key


def _key(execution_id: str, name: str, value: CredentialValue) -> bytes:
    text = f"{execution_id}\0{name}\0".encode() + codec.encode(value)
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()
