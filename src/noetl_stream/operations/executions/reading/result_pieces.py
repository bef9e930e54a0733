"""The result of an execution as JSON in pieces: of a long loop, a few are in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec

from noetl_stream.concurrency import beside
from noetl_stream.errors import BlobMissing, NotFound
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.json.values import MESSAGE_DEPTH, nests_deeper
from noetl_stream.model.outcome import Payload
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.operations.executions.reading.documents import MAX_LOADED_BYTES, Hand, error_of, handing_to
from noetl_stream.ports.stores.store import ExecutionRow, Store
from noetl_stream.ports.streams.blobs import Blobs, read_object
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.storage.loop_results import PIECE_BYTES, LoopResult
from noetl_stream.storage.used_secrets import hidden


async def result_pieces(
    row: ExecutionRow, store: Store, blobs: Blobs, keys: DerivedKeys, redactor: Redactor | None
) -> AsyncIterator[bytes]:
    """The JSON of the :class:`~noetl_stream.ports.operations.executions.ResultDocument` of an ended execution.

    Args:
        redactor: The redactor of the secrets that it was given; ``None`` without any.

    Raises:
        NotFound: its result is lost.
    """
    error = error_of(row)
    if redactor is not None and error is not None:
        error = hidden(redactor, error)
    payload = Payload() if row.result is None else codec.decode_payload(row.result)
    held = bytearray(codec.encode({"execution_id": row.execution_id, "status": row.status})[:-1] + b',"result":')
    try:
        hand = handing_to(keys, row.execution_id)
        async for piece in _pieces_of(payload, store, blobs, hand, partial(_shown, redactor)):
            held += piece
            if len(held) >= PIECE_BYTES:
                yield bytes(held)
                held.clear()
    except BlobMissing as missing:
        raise NotFound(f"the result of execution {row.execution_id} is lost: {missing.message}") from None
    yield bytes(held) + b',"error":' + codec.encode(error) + b"}"


async def _pieces_of(
    payload: Payload, store: Store, blobs: Blobs, hand: Hand, shown: Callable[[bytes], bytes]
) -> AsyncIterator[bytes]:
    reference = payload.reference
    if reference is None:
        data = bytes(payload.value)
    elif reference.size > MAX_LOADED_BYTES:
        data = codec.encode({"$reference": reference})
    elif reference.store == "journal":
        owner, _, step_run_id = reference.key.partition(".")
        loop = await LoopResult.read(store, blobs, owner, step_run_id)
        async for piece in loop.pieces(lambda text: shown(hand(reference, text))):
            yield piece
        return
    else:
        data = hand(reference, await read_object(blobs, reference))
    data = await beside(partial(shown, data), len(data))
    for first in range(0, len(data), PIECE_BYTES):
        yield data[first : first + PIECE_BYTES]


def _shown(redactor: Redactor | None, data: bytes) -> bytes:
    """The JSON of a value in the form that is shown."""
    if redactor is None and not nests_deeper(data, MESSAGE_DEPTH):
        return bytes(codec.decode_as(msgspec.Raw, data))  # one value, which is not divided
    value = codec.decode_shown(data, decode=pieces.decode)
    return pieces.encode(value if redactor is None else redactor.value(value))
