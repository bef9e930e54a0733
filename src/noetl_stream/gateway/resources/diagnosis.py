"""Whether the system is well."""

from __future__ import annotations

from typing import Final

from noetl_stream.gateway.http.parameters import Nothing
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.ports.operations.diagnosis import ChecksDocument, Diagnosis, StorageDocument
from noetl_stream.ports.operations.verbs import address_of

EXAMINE: Final = "look into the whole system"

routes = Routes()


@routes(*address_of(Diagnosis.examine), "examine", "admin")
async def examine(call: Call[Nothing, None]) -> ChecksDocument:
    """Look for what is wrong with the system, check by check, with what mends it."""
    call.require_all_paths(EXAMINE)
    return ChecksDocument(await call.operations.diagnosis.examine())


@routes(*address_of(Diagnosis.storage), "listStorage", "admin")
async def storage(call: Call[Nothing, None]) -> StorageDocument:
    """List what streams and tables take on disk."""
    call.require_all_paths(EXAMINE)
    return StorageDocument(await call.operations.diagnosis.storage())
