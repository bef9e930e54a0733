"""Large values in a JetStream object store, in the standard format (chunks, then a meta message).

nats-py's object store is not used, since its ``get`` can wait for ever and its ``put`` replaces: here every step is a
request with a timeout, and a key is written once.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import NoReturn

import msgspec

from noetl_stream.adapters.nats.api_errors import CHECK_UNDER_WAY, WRONG_LAST_SEQUENCE
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.outbox import RESEND_AFTER_S, Outbox, OutboxPort, publish_once
from noetl_stream.adapters.nats.protocol import PublishAck
from noetl_stream.adapters.nats.streams import stored_message, verify_stream
from noetl_stream.errors import BlobMissing, OutcomeUnknown, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.ports.clock import Clock
from noetl_stream.protocol.subjects import RESULTS, RESULTS_BUCKET

CHUNK_BYTES = 128 * 1024
CHUNKS_AT_ONCE = 16
TIMEOUT_S = 30.0

MAX_REFUSED_BYTES = 64 * 1024 * 1024
"""The bytes of refused objects that are kept, since a part of them is stored."""

_DIGEST = "SHA-256="
_FIRST_ON_ITS_SUBJECT = {"Nats-Expected-Last-Subject-Sequence": "0"}


class _Options(msgspec.Struct):
    max_chunk_size: int = CHUNK_BYTES


class _Meta(msgspec.Struct):
    """An object's meta message in the object store format."""

    name: str
    bucket: str
    nuid: str
    size: int
    mtime: str = ""
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    options: _Options = msgspec.field(default_factory=_Options)


class _Attempt:
    """A put of an object.

    Attributes:
        name: The name of its chunks.
        stored: The number of stored chunks.
        at_once: The number of chunks sent at a time.
    """

    __slots__ = ("at_once", "data", "name", "stored")

    def __init__(self, name: str, data: bytes | memoryview) -> None:
        self.name = name
        self.data = data
        self.stored = 0
        self.at_once = CHUNKS_AT_ONCE


class NatsBlobs(OutboxPort):
    """:class:`~noetl_stream.ports.streams.blobs.Blobs` over the bucket ``noetl-results``; the port documents each
    method.

    Attributes:
        written_bytes, read_bytes: The bytes of all objects written and read.
    """

    def __init__(self, connection: NatsConnection, clock: Clock, outbox: Outbox, timeout_s: float) -> None:
        super().__init__(connection, outbox)
        self._clock = clock
        self._timeout_s = timeout_s
        self.written_bytes = self.read_bytes = 0
        self._refused: LruCache[str, _Attempt] = LruCache(MAX_REFUSED_BYTES, lambda attempt: len(attempt.data))

    @classmethod
    async def open(
        cls,
        connection: NatsConnection,
        clock: Clock,
        *,
        timeout_s: float = TIMEOUT_S,
        acknowledge_within_s: float = RESEND_AFTER_S,
    ) -> NatsBlobs:
        """Opens the object store.

        Args:
            timeout_s: The time that a whole ``put`` or ``get`` may take.
            acknowledge_within_s: The time that one chunk may wait for its acknowledgement.
        """
        outbox = await Outbox.open(connection, resend_after_s=acknowledge_within_s)
        return cls(connection, clock, outbox, timeout_s)

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Stores the object completely or not at all.

        Raises:
            Unreachable: not stored in time, or rejected (the stream is full); try again.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while await self._find(key) is None:
                    with contextlib.suppress(OutcomeUnknown):
                        await self._put_new(key, data)
                        self.written_bytes += len(data)
                        return
        except ApiRefused as refused:
            raise refused.of("an object") from None  # subjects differ at each attempt and tell nobody anything
        except TimeoutError:
            raise self._connection.unreachable(f"storing {key} took longer than {self._timeout_s:g} s") from None

    async def get(self, key: str) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                data = await self._get(key)
        except TimeoutError:
            raise self._connection.unreachable(f"reading {key} took longer than {self._timeout_s:g} s") from None
        self.read_bytes += len(data)
        return data

    async def delete(self, key: str) -> bool:
        """Deletes an object, its meta message first, so that no damaged object is visible."""
        subjects = [_meta_subject(key)]
        with contextlib.suppress(BlobMissing):  # an unreadable meta message names no chunks
            meta = await self._find(key)
            if meta is None:
                return False
            subjects.append(_chunk_subject(meta.nuid))
        for subject in subjects:
            await self._connection.api(f"STREAM.PURGE.{RESULTS}", {"filter": subject})
        return True

    async def verify(self) -> None:
        """Raises :class:`~noetl_stream.errors.NotReady` unless the bucket exists."""
        await verify_stream(self._connection, RESULTS)

    async def _put_new(self, key: str, data: bytes | memoryview) -> None:
        attempt = self._refused.get(key) or self._new_attempt(data)
        self._refused.drop(key)
        await self._put_chunks(key, attempt)
        await self._put_meta(key, attempt)

    def _new_attempt(self, data: bytes | memoryview) -> _Attempt:
        # Each names its chunks anew, so that they never mix with those of an interrupted attempt.
        return _Attempt(self._clock.random_bytes(11).hex(), data)

    async def _put_meta(self, key: str, attempt: _Attempt) -> None:
        data, name = attempt.data, attempt.name
        digest = _DIGEST + base64.urlsafe_b64encode(sha256(data).digest()).decode()
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat().replace("+00:00", "Z")
        meta = _Meta(
            name=key, bucket=RESULTS_BUCKET, nuid=name, size=len(data), mtime=now, chunks=attempt.stored, digest=digest
        )
        try:
            await publish_once(self._outbox, _meta_subject(key), msgspec.json.encode(meta), _FIRST_ON_ITS_SUBJECT)
        except OutcomeUnknown:
            # The chunks stay: the meta message may still arrive, and it names them.
            stored = await self._find(key)
            if stored is None or stored.nuid != name:
                raise
        except ApiRefused as error:
            if error.err_code == WRONG_LAST_SEQUENCE:
                await self._purge(_chunk_subject(name))
                return
            await self._leave(key, attempt)
            if error.err_code in CHECK_UNDER_WAY:
                raise OutcomeUnknown(f"in a cluster, another put of {key} is not decided yet") from None
            raise

    async def _put_chunks(self, key: str, attempt: _Attempt) -> None:
        """Stores the chunks that are missing, in order."""
        data, subject = attempt.data, _chunk_subject(attempt.name)
        places = range(0, len(data), CHUNK_BYTES)
        while window := places[attempt.stored : attempt.stored + attempt.at_once]:
            puts = (publish_once(self._outbox, subject, bytes(data[at : at + CHUNK_BYTES]), {}) for at in window)
            # All answers first: a chunk in flight when its siblings are purged would stay for ever.
            answers = await asyncio.gather(*puts, return_exceptions=True)
            sequences = [one.seq for one in answers if isinstance(one, PublishAck)]
            if sequences != sorted(sequences):  # one that was refused for now has been sent again behind the others
                await self._leave(key, attempt, is_in_order=False)
                raise OutcomeUnknown(f"the chunks of {key} were stored out of order")
            failed = next((at for at, one in enumerate(answers) if isinstance(one, BaseException)), len(answers))
            attempt.stored += failed
            if failed < len(answers):
                await self._leave_at(key, attempt, answers[failed:])

    async def _leave_at(self, key: str, attempt: _Attempt, answers: Sequence[PublishAck | BaseException]) -> NoReturn:
        """Raises the first failure among the answers from the first missing chunk on."""
        assert isinstance(answers[0], BaseException)
        if isinstance(answers[0], OutcomeUnknown | ApiRefused):
            # A later chunk may be stored all the same: the last is smaller, and fits where an earlier one does not.
            is_in_order = all(isinstance(one, ApiRefused) for one in answers)
            await self._leave(key, attempt, is_in_order=is_in_order)
        raise answers[0]

    async def _leave(self, key: str, attempt: _Attempt, *, is_in_order: bool = True) -> None:
        """Removes the chunks of a refused attempt. A user that may not remove them continues with them the next time:
        otherwise each attempt would leave chunks and take the room that others make.
        """
        if self._connection.may_purge:
            await self._purge(_chunk_subject(attempt.name))
            return
        if not is_in_order:
            attempt = self._new_attempt(attempt.data)
        attempt.at_once = 1  # so that no chunk is stored after a refused one
        self._refused.put(key, attempt)

    async def _get(self, key: str) -> bytes:
        meta = await self._find(key)
        if meta is None:
            raise BlobMissing(f"the object store has nothing under {key}")
        subject = _chunk_subject(meta.nuid)
        parts = []
        sequence = 0
        for number in range(meta.chunks):
            wanted = {"seq": sequence + 1, "next_by_subj": subject}
            stored = await stored_message(self._connection, RESULTS, wanted, timeout_s=self._timeout_s)
            if stored is None:
                raise BlobMissing(f"the object {key} is damaged: {number} of its {meta.chunks} chunks exist")
            parts.append(stored.data)
            sequence = stored.seq
        data = b"".join(parts)
        digest = base64.urlsafe_b64decode(meta.digest.removeprefix(_DIGEST))
        if sha256(data).digest() != digest:
            raise BlobMissing(f"the object {key} is damaged: its checksum differs")
        return data

    async def _find(self, key: str) -> _Meta | None:
        wanted = {"last_by_subj": _meta_subject(key)}
        stored = await stored_message(self._connection, RESULTS, wanted, timeout_s=self._timeout_s)
        if stored is None:
            return None
        try:
            meta = msgspec.json.decode(stored.data, type=_Meta)
        except msgspec.DecodeError as error:
            raise BlobMissing(f"the object {key} is damaged: {error}") from None
        return None if meta.deleted else meta

    async def _purge(self, subject: str) -> None:
        if not self._connection.may_purge:
            return
        try:
            await self._connection.api(f"STREAM.PURGE.{RESULTS}", {"filter": subject})
        except Unreachable:
            # As above: only space is lost, since nothing refers to these chunks.
            return


def _meta_subject(key: str) -> str:
    return f"$O.{RESULTS_BUCKET}.M.{base64.urlsafe_b64encode(key.encode()).decode()}"


def _chunk_subject(name: str) -> str:
    return f"$O.{RESULTS_BUCKET}.C.{name}"
