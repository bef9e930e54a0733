"""The result of an execution, from wherever it is kept (LANGUAGE §10)."""

from __future__ import annotations

from typing import Any, Final

from noetl_stream.client.executions.documents import result_of
from noetl_stream.errors import BlobMissing, NotFound
from noetl_stream.model import codec
from noetl_stream.ports.blobs import Blobs, gather_iterations
from noetl_stream.ports.store import ExecutionRow, Store

MAX_LOADED_BYTES: Final = 16 * 1024 * 1024
"""A larger result is shown as its reference: whoever asks for many at once must not fill this process' memory."""


async def loaded_result(row: ExecutionRow, store: Store, blobs: Blobs) -> Any:
    """The value; one over :data:`MAX_LOADED_BYTES` as ``{"$reference": {…}}``, ``None`` without a result.

    Raises:
        NotFound: it was kept in the object store and is lost.
    """
    reference = codec.decode_payload(row.result).reference if row.result is not None else None
    if reference is None or reference.size > MAX_LOADED_BYTES:
        return result_of(row)
    try:
        if reference.store == "journal":
            owner, _, step_run_id = reference.key.partition(".")
            return codec.decode_json(await gather_iterations(store, blobs, owner, step_run_id))
        return codec.decode_json(await blobs.get(reference.key))
    except BlobMissing as error:
        raise NotFound(f"the result of execution {row.execution_id} is lost: {error.message}") from None
