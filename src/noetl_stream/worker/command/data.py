"""The files and tables that one attempt of a task writes and reads (LANGUAGE §10 *Files and tables*)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import BlobMissing
from noetl_stream.model.outcome import Dataset, Outcome
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.sealing.data_references import (
    Column,
    DataReference,
    StoredParts,
    data_key_of,
    head_key,
    read_reference,
    sealed_for,
)
from noetl_stream.sealing.keys import KEY_BYTES
from noetl_stream.storage.data_parts import read_parts, sealed_head, write_parts
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.worker.command.results import RunResults, StorageExhausted

MAX_WRITTEN: Final = 1_000
"""How many files and tables one attempt may write: the journal names them all."""
MAX_DATASETS: Final = 100
MAX_NAME: Final = 1_000
"""The maximum length of a dataset's name, in characters."""


class AttemptData:
    """:class:`~noetl_stream.tools.contract.DataStore` of one attempt.

    Args:
        begun: Called with the key of a file or table of several parts, while it is written.
        redact: Removes the secrets from the first rows of a table.

    Attributes:
        stored_bytes: The stored bytes, including those of unfinished files and tables.
        written: The references to written files and tables, without seals.
    """

    __slots__ = ("_begun", "_datasets", "_read", "_redact", "_results", "stored_bytes", "written")

    def __init__(
        self, results: RunResults, begun: Callable[[str], None], redact: Callable[[Any], Any] = lambda rows: rows
    ) -> None:
        self.stored_bytes = 0
        self.written: list[DataReference] = []
        self._read: dict[tuple[str, int], DataReference] = {}
        self._datasets: dict[Dataset, None] = {}
        self._results = results
        self._begun = begun
        self._redact = redact

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
        if len(self.written) == MAX_WRITTEN:
            message = f"a task writes at most {MAX_WRITTEN:,} files and tables; make one archive of them"
            raise ToolFailure.of("limit_exceeded", message)
        data_key, prefix = os.urandom(KEY_BYTES), f"{self._results.next_key()}/"
        try:
            written = await write_parts(pieces, prefix, data_key, partial(self._put, prefix))
            if columns is not None:
                key = written.parts.key
                await self._put(prefix, head_key(key), sealed_head(self._redact(list(head)), key, data_key))
        except StorageExhausted as exhausted:
            raise ToolFailure.of(exhausted.kind, f"the file cannot be stored: {exhausted}") from None
        reference = DataReference(
            key=written.parts.key,
            size=written.size,
            checksum=written.checksum,
            name=name,
            media_type=media_type,
            columns=None if columns is None else tuple(columns),
            rows=rows,
        )
        self.written.append(reference)
        sealed = sealed_for(reference, data_key, self._results.own_ring)
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(sealed))
        return found

    def reference(self, value: Any) -> DataReference | None:
        found = read_reference(value)
        return found if found is not None and self._data_key(found) is not None else None

    def read(self, reference: DataReference) -> AsyncIterator[bytes]:
        is_checked = reference.columns is not None and any(reference.key == own.key for own in self.written)
        if not is_checked:  # a table of its own is read only to check it
            self._read[reference.key, reference.first] = replace(reference, seal="")
        return self._parts(reference)

    async def _parts(self, reference: DataReference) -> AsyncIterator[bytes]:
        data_key = self._data_key(reference)
        assert data_key is not None, "only what `reference` returned is read"
        try:
            async for part in read_parts(reference, data_key, self._results.part_reader(reference)):
                yield part
        except BlobMissing as missing:
            raise ToolFailure.of("result_lost", f"{reference.what} is lost: {missing.message}") from None

    def note(self, namespace: str, name: str, *, written: bool, columns: Sequence[str] = ()) -> None:
        if len(self._datasets) < MAX_DATASETS:
            self._datasets[Dataset(namespace, name[:MAX_NAME], written, tuple(columns))] = None

    def noted_in(self, outcome: Outcome, used: Redactor | None) -> Outcome:
        """Adds the data that the attempt has written and read to its outcome, without the secrets that it used."""
        if not self.stored_bytes and not self.written and not self._read and not self._datasets:
            return outcome
        datasets = tuple(self._datasets)
        written, read = tuple(self.written), tuple(self._read.values())[:MAX_WRITTEN]
        if used is not None:
            written, read = (tuple(_without_secrets(one, used) for one in ones) for ones in (written, read))
            datasets = tuple(
                Dataset(used.text(one.namespace), used.text(one.name), one.written, tuple(map(used.text, one.columns)))
                for one in datasets
            )
        return replace(outcome, stored_bytes=self.stored_bytes, written=written, read=read, datasets=datasets)

    async def _put(self, prefix: str, key: str, sealed: bytes | memoryview) -> None:
        if key == f"{prefix}1":
            self._begun(StoredParts(prefix).key)
        await self._results.put_object(key, sealed)
        self.stored_bytes += len(sealed)

    def _data_key(self, reference: DataReference) -> bytes | None:
        return data_key_of(reference, (self._results.own_ring,))


def _without_secrets(reference: DataReference, used: Redactor) -> DataReference:
    columns = reference.columns
    if columns is not None:
        columns = tuple(Column(used.text(one.name), used.text(one.type)) for one in columns)
    return replace(
        reference, name=used.text(reference.name), media_type=used.text(reference.media_type), columns=columns
    )
