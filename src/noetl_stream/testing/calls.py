"""Makes calls of tools, for the tests of a kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from noetl_stream.model.outcome import Dataset, ErrorInfo
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.ports.streams.blobs import checksum_of
from noetl_stream.sealing.data_references import PART_BYTES, Column, DataReference, StoredParts, read_reference
from noetl_stream.tools.contract import DataStore, ToolCall, ToolFailure


class FilesInMemory:
    """A :class:`~noetl_stream.tools.contract.DataStore` in memory, for :func:`tool_call`.

    Attributes:
        datasets: The datasets that were noted.
        heads: The first rows of tables, by key.
    """

    def __init__(self) -> None:
        self.heads: dict[str, list[Any]] = {}
        self._saved: dict[str, bytes] = {}
        self.datasets: list[Dataset] = []

    async def save(
        self,
        pieces: AsyncIterator[bytes],
        *,
        name: str = "",
        media_type: str = "",
        columns: Sequence[Column] | None = None,
        rows: int | None = None,
        head: Sequence[Any] = (),
    ) -> dict[str, Any]:
        data = b"".join([piece async for piece in pieces])
        parts = StoredParts(f"execution-1/{len(self._saved)}/", -(-len(data) // PART_BYTES))
        checksum, of_table = checksum_of(data), None if columns is None else tuple(columns)
        found = DataReference(
            key=parts.key,
            size=len(data),
            checksum=checksum,
            seal=parts.key,
            name=name,
            media_type=media_type,
            columns=of_table,
            rows=rows,
        )
        self._saved[found.seal] = data
        self.heads[found.key] = list(head)
        value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
        return value

    def reference(self, value: Any) -> DataReference | None:
        found = read_reference(value)
        return found if found is not None and found.seal in self._saved else None

    async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
        data = self._saved[reference.seal]
        for at in range(0, len(data), PART_BYTES):
            yield data[at : at + PART_BYTES]

    def note(self, namespace: str, name: str, *, written: bool, columns: Sequence[str] = ()) -> None:
        self.datasets.append(Dataset(namespace, name, written, tuple(columns)))


def tool_call(
    inputs: Mapping[str, Any],
    *,
    knobs: Mapping[str, Any] | None = None,
    timeouts: Timeouts | None = None,
    scope: Mapping[str, Any] | None = None,
    credentials: Mapping[str, str | dict[str, Any]] | None = None,
    trust_domain: str = "",
    execution_id: str = "execution-1",
    traceparent: str = "",
    data: DataStore | None = None,
) -> ToolCall:
    """Makes the call of the first attempt of a task ``task`` in a step ``step``, as a worker would.

    Args:
        credentials: The credentials' values by name; any other name is the error ``credential``.
        data: The files and tables that the task reads and writes; default: an empty :class:`FilesInMemory`.
    """

    async def credential(name: str) -> str | dict[str, Any]:
        if name not in (credentials or {}):
            raise ToolFailure(ErrorInfo(kind="credential", message=f"no credential {name!r}"))
        return (credentials or {})[name]

    return ToolCall(
        inputs=inputs,
        knobs=knobs or {},
        timeouts=timeouts or Timeouts(),
        idempotency_key="key-1",
        execution_id=execution_id,
        step="step",
        task="task",
        attempt=1,
        trust_domain=trust_domain,
        scope=scope if scope is not None else {"workload": {}, "ctx": {}, "iter": {}, "execution_id": "execution-1"},
        credential=credential,
        traceparent=traceparent,
        data=data or FilesInMemory(),
    )
