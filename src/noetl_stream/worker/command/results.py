"""Stores results too large for an event in the object store, and loads them for templates (LANGUAGE §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import BlobMissing, NoetlError, PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model.bundles import is_bundle
from noetl_stream.model.ids import RunId
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.limits import VARIABLE_PREFIX
from noetl_stream.model.messages import NamespaceShare, ResultQuestion, StepCommand
from noetl_stream.model.outcome import Payload, Reference
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.blobs import BlobAccess, ObjectsByAddress, decoded, found_checksum, read_object
from noetl_stream.protocol import subjects
from noetl_stream.sealing.data_references import DataReference, hand_on, has_references
from noetl_stream.sealing.keys import KeyRing
from noetl_stream.sealing.objects import GivenKeys
from noetl_stream.settings.retention_periods import STORED_VARIABLE
from noetl_stream.storage.data_parts import read_head
from noetl_stream.storage.sealed_blobs import SealedAccess
from noetl_stream.worker import worker_limits as limits
from noetl_stream.worker.command.addressed_blobs import AddressedBlobs
from noetl_stream.worker.waiting import Asker, Trouble, persist

_SHOWN_KEYS = 10


EXECUTIONS_KEPT: Final = 16_384
NAMESPACES_KEPT: Final = 1_000


class StorageExhausted(NoetlError):
    """An execution may store no more objects of this size. ``kind`` is the error's kind as playbooks see it."""

    kind = "limit_exceeded"


class StoredBytes:
    """Counts the bytes that one worker has stored for each execution and namespace, in addition to what servers know.

    Servers count the objects in reports that they have folded. A worker counts its objects at once, so that concurrent
    commands cannot each store as much as was left when they were issued.
    """

    def __init__(self) -> None:
        self._known: LruCache[str, int] = LruCache(EXECUTIONS_KEPT)
        self._shares: LruCache[str, NamespaceShare] = LruCache(NAMESPACES_KEPT)

    def take(self, command: StepCommand, size: int) -> None:
        """Counts an object of the command's execution that is about to be stored.

        Raises:
            StorageExhausted: the object exceeds the limit of the execution, or of its namespace.
        """
        most, share = command.limits.max_stored_bytes, self._latest(command.share)
        stored = max(command.stored_bytes, self._known.get(command.execution_id) or 0)
        if stored + size > most:
            over = f"{size:,} bytes are too much beside the {stored:,} that the execution has stored"
            bound = f"limits.max_stored_bytes is {most:,}, at most what the operator allows"
            raise StorageExhausted(f"{over}; {bound} ({VARIABLE_PREFIX}MAX_STORED_BYTES)")
        if share.max_stored_bytes and share.stored_bytes + size > share.max_stored_bytes:
            over = f"{size:,} bytes are too much beside the {share.stored_bytes:,} of all executions of the namespace"
            bound = f"{share.namespace}, which may store {share.max_stored_bytes:,} ({STORED_VARIABLE})"
            raise StorageExhausted(f"{over} {bound}; deleting executions makes room")
        self._known.put(command.execution_id, stored + size)
        self._shares.put(share.namespace, replace(share, stored_bytes=share.stored_bytes + size))

    def _latest(self, given: NamespaceShare) -> NamespaceShare:
        """The last known share of a namespace, including the objects stored here since."""
        known = self._shares.get(given.namespace)
        if known is not None and given.max_stored_bytes and given.at_ms <= known.at_ms:
            return known
        self._shares.put(given.namespace, given)
        return given


class ReferenceUnavailable(NoetlError):
    """A result kept by reference cannot be read back. ``kind`` is the error's kind as playbooks see it."""

    kind = "result_lost"


class TooMuchToRead(ReferenceUnavailable):
    """The results that a step reads exceed the bytes that a worker loads."""

    kind = "limit_exceeded"


class Pages:
    """Caches pages of loop items, by the key of their reference (LANGUAGE §6).

    All runs of one worker share the cache, since successive iterations read the same pages.
    """

    def __init__(self) -> None:
        self._kept: LruCache[str, tuple[Any, int]] = LruCache(limits.MAX_PAGES_KEPT_BYTES, size_of=lambda kept: kept[1])
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def page(self, reference: Reference, read: Callable[[Reference], Awaitable[Any]]) -> Any:
        """Returns the page, from ``read`` if it is not cached. Concurrent callers share one read."""
        reading = self._reading.setdefault(reference.key, asyncio.Lock())
        async with reading:
            kept = self._kept.get(reference.key)
            if kept is None:
                kept = await read(reference), reference.size
                self._kept.put(reference.key, kept)
        return kept[0]


class RunResults:
    """Stores and loads the results of one run.

    Attributes:
        loaded: Values read back so far, by the key of their reference. Templates read them from here.
        keeping: The number of results that are being stored; a run is not given up meanwhile.
        trouble: The reason why results are not stored yet.
        reading: The reason why an object is not read yet.
    """

    def __init__(
        self,
        blobs: BlobAccess,
        asker: Asker,
        clock: Clock,
        command: StepCommand,
        run: RunId,
        pages: Pages,
        stored_bytes: StoredBytes,
        objects: ObjectsByAddress | None = None,
    ) -> None:
        self.loaded: dict[str, Any] = {}
        self.keeping = 0
        self.trouble = Trouble(clock, "its result cannot be stored")
        self.reading = Trouble(clock, "an object that it reads")
        self._plain_blobs: BlobAccess = blobs
        self._asker = asker
        self._clock = clock
        self._pages = pages
        self._stored_bytes = stored_bytes
        self._limit_bytes = command.limits.max_inline_bytes
        self._command = command
        self._run = run
        self._objects = 0
        self._loaded_bytes = 0
        if command.by_address and objects is not None:
            self._plain_blobs = AddressedBlobs(asker, self.own_ring, blobs, objects, clock)

    @property
    def _blobs(self) -> BlobAccess:
        return SealedAccess(self._plain_blobs, GivenKeys(self._command.object_keys))

    def keep_references_first(self) -> None:
        """Keeps only small results inline, for a playbook with ``results.reference_first`` (LANGUAGE §10)."""
        self._limit_bytes = min(self._limit_bytes, limits.REFERENCE_FIRST_BYTES)

    async def keep(self, value: Any) -> Payload:
        """Returns ``value`` inline, or by a reference to an object, which is stored first.

        Raises:
            PayloadRefused: the value is not JSON, or nests too deeply.
            StorageExhausted: the execution may store no more.
        """
        if pieces.is_long(value):
            encoded = await asyncio.to_thread(_encode, value, pieces.encode)
        else:
            encoded = _encode(value, codec.encode)
        if len(encoded) <= self._limit_bytes:
            return Payload(msgspec.Raw(encoded))
        reference = await self.store(encoded)
        preview = encoded[: 4 * limits.PREVIEW_CHARACTERS].decode(errors="ignore")[: limits.PREVIEW_CHARACTERS]
        reference = msgspec.structs.replace(reference, schema_hint=_hint_of(value), preview=preview)
        return Payload(reference=reference)

    async def store(self, encoded: bytes) -> Reference:
        """Stores this JSON as an object and returns its reference.

        Raises:
            StorageExhausted: the execution may store no more.
        """
        key = self.next_key()
        self._stored_bytes.take(self._command, len(encoded))
        await self._put(self._blobs, key, encoded)
        checksum = await found_checksum(encoded)
        return Reference("nats", key, len(encoded), checksum, has_data=has_references(encoded))

    def next_key(self) -> str:
        """Returns the key of the next object of this run."""
        run = self._run
        prefix = f"{self._command.execution_id}/{run.command_id}/{run.issue}.{run.num_delivered}.{run.nonce}"
        key, self._objects = f"{prefix}/{self._objects}", self._objects + 1
        return key

    async def put_object(self, key: str, sealed: bytes | memoryview) -> None:
        """Stores the bytes of an object unchanged: part of a file or table.

        Raises:
            StorageExhausted: the execution may store no more.
        """
        self._stored_bytes.take(self._command, len(sealed))
        await self._put(self._plain_blobs, key, sealed)

    def part_reader(self, file: DataReference) -> Callable[[str], Awaitable[bytes]]:
        """Returns a function that reads a stored part of a file or table by key.

        It raises :class:`~noetl_stream.errors.BlobMissing` if the part is missing or damaged.
        """
        if isinstance(self._plain_blobs, AddressedBlobs):
            self._plain_blobs.will_read(file)
        return lambda key: self._read_until_answered(key, lambda: self._plain_blobs.get(key))

    @property
    def own_ring(self) -> KeyRing:
        """The keys of the command's execution."""
        given = GivenKeys(self._command.object_keys).ring(self._command.execution_id)
        assert given is not None, "each command has the keys of its execution"
        return given

    async def page(self, reference: Reference) -> list[Any]:
        """Loads a page of a loop's items.

        Raises:
            ReferenceUnavailable: the page is missing or damaged.
        """
        page: list[Any] = await self._pages.page(reference, self._read)
        return page

    async def load(self, reference: Reference) -> None:
        """Reads the value of ``reference`` into :attr:`loaded`.

        Raises:
            ReferenceUnavailable: the value is missing, damaged, or more than a run may read.
        """
        self._loaded_bytes += reference.size
        if self._loaded_bytes > limits.MAX_LOADED_BYTES:
            message = f"the results that this step reads, with {reference.key}, exceed {limits.MAX_LOADED_BYTES} bytes"
            raise TooMuchToRead(message, hint="return only the part that is needed from a task")
        self.loaded[reference.key] = await self._read(reference)

    async def read_bundle(self) -> bytes:
        """Reads the packages that the command's Python tasks can import.

        Raises:
            ReferenceUnavailable: they are missing or damaged.
        """
        name = self._command.bundle
        try:
            data = await self._read_until_answered(name, lambda: self._blobs.get(subjects.bundle_key(name)))
        except BlobMissing as error:
            raise ReferenceUnavailable(f"the packages {name} are lost: {error.message}") from error
        if not is_bundle(name, data):
            raise ReferenceUnavailable(f"the packages {name} are damaged: their checksum differs")
        return data

    async def _put(self, blobs: BlobAccess, key: str, data: bytes | memoryview) -> None:
        self.keeping += 1
        try:
            await persist(self._clock, f"store result {key}", lambda: blobs.put(key, data), self.trouble.note)
        finally:
            self.keeping -= 1
            self.trouble.end()

    async def _read_until_answered(self, what: str, read: Callable[[], Awaitable[bytes]]) -> bytes:
        try:
            return await persist(self._clock, f"read {what}", read, self.reading.note)
        finally:
            self.reading.end()

    async def _read(self, reference: Reference) -> Any:
        if reference.table is not None:
            try:
                read = self.part_reader(reference.table)
                return codec.decode_json(await read_head(reference.table, self.own_ring, read))
            except BlobMissing as error:
                raise ReferenceUnavailable(f"the first rows of the table are lost: {error.message}") from error
        stored = reference if reference.store == "nats" else await self._gather(reference)
        try:
            reading = self._read_until_answered(f"result {stored.key}", lambda: read_object(self._blobs, stored))
            data = await reading
        except BlobMissing as error:
            raise ReferenceUnavailable(f"the result kept as {stored.key} is lost: {error.message}") from error
        giver = GivenKeys(self._command.object_keys).ring(reference.execution_id) or self.own_ring
        return await decoded(data, lambda text: pieces.decode(hand_on(text, giver, self.own_ring)))

    async def _gather(self, reference: Reference) -> Reference:
        """Asks a server to gather a loop's results into an object; returns its reference."""
        question = ResultQuestion(self._asker.command, reference.key)
        answer = await self._asker.ask(subjects.ASK_RESULT, question)
        try:
            stored = codec.decode_json(answer)
        except PayloadRefused:
            stored = None
        if not isinstance(stored, Mapping) or not isinstance(stored.get("key"), str):
            given = stored if isinstance(stored, Mapping) else {}
            why = given.get("lost") or given.get("refused") or "the answer cannot be read"
            raise ReferenceUnavailable(f"the loop result {reference.key} is lost: {why}")
        return Reference("nats", stored["key"], reference.size, str(stored.get("checksum", "")))


def _encode(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    encoded = encode(value)
    codec.check_depth(encoded)
    return encoded


def _hint_of(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = list(value)
        more = ", …" if len(keys) > _SHOWN_KEYS else ""
        return f"object of {', '.join(map(str, keys[:_SHOWN_KEYS]))}{more}"
    if isinstance(value, list | tuple):
        return f"array of {len(value)}"
    return "string" if isinstance(value, str) else type(value).__name__
