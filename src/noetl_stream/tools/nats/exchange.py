"""One action of ``kind: nats`` on one connection, and how values become message bytes and back."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec
import nats.errors as errors
import nats.js.errors as js
from nats.js import JetStreamContext
from nats.js.api import ObjectInfo, PubAck, RawStreamMsg

from noetl_stream.concurrency import beside
from noetl_stream.model.json import pieces
from noetl_stream.model.json.texts import digits_lost, digits_lost_text
from noetl_stream.model.json.values import TOO_DEEP
from noetl_stream.model.outcome import RunWarning
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.convert import NotJson, to_json
from noetl_stream.tools.inputs import invalid_input
from noetl_stream.tools.nats.connections import MAX_MESSAGE_BYTES, Connection, MessageTooLong
from noetl_stream.tools.nats.inputs import NatsInputs

MESSAGE_ID: Final = "Nats-Msg-Id"
"""The header by which a stream drops duplicates within its duplicate window."""
_EXPECTED_REVISION: Final = "Nats-Expected-Last-Subject-Sequence"
_OPERATION: Final = "KV-Operation"
_DELETED: Final = frozenset({"DEL", "PURGE"})
_WRONG_REVISION: Final = frozenset({10071, 10164})
_CHANGED_SINCE: Final = _WRONG_REVISION | {10070}
"""JetStream's error codes for a message that expected another last message of its stream or subject."""

_PASSING: Final = frozenset(
    {
        *(10004, 10008, 10009, 10041),  # a cluster without a leader, or that is not complete
        *(10118, 10194),  # a stream that is offline
        *(10158, 10163, 10167, 10210, 10211),  # still busy with earlier requests
    }
)
"""JetStream's error codes for requests that may succeed later. All others are permanent refusals."""

_STORE_FAILED: Final = 10077
_LIMIT_REACHED: Final = "maximum "
"""The beginning of :data:`_STORE_FAILED`'s description if the stream is full rather than faulty."""


class Exchange:
    """One action on one connection. ``warnings`` are about the messages that it has read."""

    def __init__(
        self, inputs: NatsInputs, payload: bytes, connection: Connection, timeout_s: float, idempotency_key: str
    ) -> None:
        self._inputs = inputs
        self._payload = payload
        self._connection = connection
        self._timeout_s = timeout_s
        self._headers = {MESSAGE_ID: idempotency_key, **(inputs.headers or {})}
        self._subject = inputs.subject or f"$KV.{inputs.bucket}.{inputs.key}"
        self.warnings: tuple[RunWarning, ...] = ()

    @property
    def _jetstream(self) -> JetStreamContext:
        return self._connection.client.jetstream(timeout=self._timeout_s)

    async def result(self, max_object_bytes: int) -> dict[str, Any]:
        match self._inputs.action:
            case "publish":
                return await self._publish()
            case "request":
                return await self._request()
            case "kv_get":
                return await self._kv_get()
            case "kv_put":
                return {"revision": await self._kv_write({})}
            case "kv_delete":
                return {"revision": await self._kv_write({_OPERATION: "DEL"})}
            case "object_get":
                return await self._object_get(max_object_bytes)
            case "object_put":
                return await self._object_put()

    async def _publish(self) -> dict[str, Any]:
        if self._inputs.jetstream:
            stored = await self._stored_publish(self._subject, self._headers)
            return {"stream": stored.stream, "seq": stored.seq, "duplicate": bool(stored.duplicate)}
        client = self._connection.client
        await client.publish(self._subject, self._payload, headers=self._headers)
        # Flush until the server has the message or has denied it: twice, since the library first pings before the
        # message.
        for _ in range(2):
            await client.flush(max(1, round(self._timeout_s)))
        if self._connection.take_denied(self._subject):
            raise _refused_failure(f"no permission to publish to {self._subject}")
        return {"subject": self._subject}

    async def _request(self) -> dict[str, Any]:
        reply = await self._connection.client.request(
            self._subject, self._payload, timeout=self._timeout_s, headers=self._headers
        )
        answer = await self._read("data", reply.data)
        return {**answer, "headers": dict(reply.headers or {}), "subject": self._subject}

    async def _kv_get(self) -> dict[str, Any]:
        bucket = await self._jetstream.key_value(str(self._inputs.bucket))
        entry = await bucket.get(str(self._inputs.key))
        return {**await self._read("value", entry.value or b""), "revision": entry.revision}

    async def _read(self, name: str, data: bytes) -> dict[str, Any]:
        """:func:`read_bytes`, with a warning of the digits that are lost."""

        def read() -> tuple[dict[str, Any], list[str]]:
            found = read_bytes(name, data)
            return found, [] if isinstance(found[name], str) else digits_lost(data)

        found, lost = await beside(read, len(data))
        if lost:
            text = digits_lost_text([f"/{name}{pointer}" for pointer in lost])
            self.warnings = (RunWarning("digits_lost", text),)
        return found

    async def _kv_write(self, operation: Mapping[str, str]) -> int:
        """Writes a key's message with an id, by which a rerun recognizes that it has already been written."""
        headers, expected = {**self._headers, **operation}, self._inputs.expected_revision
        if expected is None:
            return (await self._stored_publish(self._subject, headers)).seq
        try:
            return (await self._stored_publish(self._subject, {**headers, _EXPECTED_REVISION: str(expected)})).seq
        except js.APIError as error:
            if error.err_code not in _WRONG_REVISION:
                raise
        last = await self._last_of_key()
        if last is not None and (last.headers or {}).get(MESSAGE_ID) == headers[MESSAGE_ID]:
            return int(last.seq or 0)  # written by an earlier run of this task
        if last is not None and expected == 0 and (last.headers or {}).get(_OPERATION) in _DELETED:
            return (await self._stored_publish(self._subject, {**headers, _EXPECTED_REVISION: str(last.seq)})).seq
        message = f"{self._inputs.key} in {self._inputs.bucket} does not have expected_revision ({expected})"
        raise ToolFailure.of("conflict", message)

    async def _last_of_key(self) -> RawStreamMsg | None:
        try:
            return await self._jetstream.get_last_msg(f"KV_{self._inputs.bucket}", self._subject)
        except js.NotFoundError:
            return None

    async def _object_get(self, max_bytes: int) -> dict[str, Any]:
        """Reads an object in chunks: the library's ``get`` can hang, and leaks a subscription when cancelled."""
        bucket, name = str(self._inputs.bucket), str(self._inputs.key)
        jetstream = self._jetstream
        info = await (await jetstream.object_store(bucket)).get_info(name)
        if info.is_link():
            raise invalid_input(f"key: {name} is a link to another object or bucket; give its name instead")
        if (info.size or 0) > max_bytes:
            over = f"object {name} has {info.size:,} bytes, which exceeds {max_bytes:,}"
            message = f"{over}; read a smaller one, or raise `spec.max_object_bytes`"
            raise ToolFailure.of("output_too_large", message)
        data = await _chunks(jetstream, bucket, info)
        return {**await self._read("data", data), "size": len(data), "digest": info.digest}

    async def _object_put(self) -> dict[str, Any]:
        store = await self._jetstream.object_store(str(self._inputs.bucket))
        info = await store.put(str(self._inputs.key), self._payload)
        return {"size": info.size, "digest": info.digest}

    async def _stored_publish(self, subject: str, headers: dict[str, str]) -> PubAck:
        return await self._jetstream.publish(subject, self._payload, headers=headers)

    @contextmanager
    def failures_translated(self) -> Iterator[None]:
        """Translates the library's exceptions to :class:`ToolFailure`."""
        inputs = self._inputs
        place = inputs.subject or f"{inputs.key} in {inputs.bucket}"
        try:
            yield
        except js.BucketNotFoundError:
            raise _not_found(f"no bucket {inputs.bucket}") from None
        except js.NotFoundError:
            raise _not_found(f"{place} does not exist") from None
        except js.NoStreamResponseError:
            message = f"no stream stores {inputs.subject}" if inputs.subject else f"no bucket {inputs.bucket}"
            raise _not_found(message) from None
        except errors.NoRespondersError:
            raise _not_found(f"no responders for {place}", retryable=True) from None
        except js.APIError as error:
            raise _not_done(place, error) from None
        except TimeoutError:
            if self._connection.take_denied(self._subject):
                raise _refused_failure(f"no permission to publish to {place}") from None
            message = f"{inputs.action} {place}: no response within {self._timeout_s:g} s"
            raise ToolFailure.of("timeout", message, retryable=True) from None
        except errors.MaxPayloadError:
            limit = self._connection.client.max_payload
            raise invalid_input(f"payload: larger than the server accepts ({limit:,} bytes)") from None
        except MessageTooLong:
            message = (
                f"{inputs.action} {place}: a message exceeds {MAX_MESSAGE_BYTES:,} bytes, which no setting changes"
            )
            raise ToolFailure.of("output_too_large", message) from None
        except (errors.Error, OSError) as error:
            raise _unreachable(f"{inputs.action} {place}: {error}") from None


async def _chunks(jetstream: JetStreamContext, bucket: str, info: ObjectInfo) -> bytes:
    data, last = bytearray(), 0
    try:
        while len(data) < (info.size or 0):
            chunk = await jetstream.get_msg(
                f"OBJ_{bucket}", seq=last + 1, subject=f"$O.{bucket}.C.{info.nuid}", next=True
            )
            data += chunk.data or b""
            last = chunk.seq or 0
    except js.NotFoundError:
        raise _changed_failure(info) from None
    digest = base64.urlsafe_b64encode((await beside(partial(hashlib.sha256, data), len(data))).digest()).decode()
    if info.digest is not None and info.digest.partition("=")[2] != digest:
        raise _changed_failure(info)
    return bytes(data)


def _changed_failure(info: ObjectInfo) -> ToolFailure:
    message = f"object {info.name} was replaced while being read, or is damaged"
    return ToolFailure.of("conflict", message, retryable=True)


def _not_found(message: str, *, retryable: bool = False) -> ToolFailure:
    return ToolFailure.of("not_found", message, retryable=retryable)


def _refused_failure(message: str, code: str | None = None) -> ToolFailure:
    return ToolFailure.of("refused", f"rejected by NATS: {message}", code=code)


def _not_done(place: str, error: js.APIError) -> ToolFailure:
    """Returns the failure for an error of JetStream."""
    code, description = error.err_code, error.description or ""
    if code in _CHANGED_SINCE:
        return ToolFailure.of("conflict", f"{place} does not have what the message expects: {description}")
    is_full = code == _STORE_FAILED and description.startswith(_LIMIT_REACHED)
    if code is None or code in _PASSING or (code == _STORE_FAILED and not is_full):
        return _unreachable(f"{place}: JetStream cannot do it now: {description or 'it does not say why'}")
    return _refused_failure(f"{place}: {description}", code=str(code))


def _unreachable(message: str) -> ToolFailure:
    return ToolFailure.of("connection", message, retryable=True)


def payload_bytes(inputs: NatsInputs) -> bytes:
    """Returns the bytes of a message's payload.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    value = inputs.payload
    if inputs.encoding is not None:
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise invalid_input("payload: not valid base64") from None
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace")
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise invalid_input(f"payload: cannot be encoded as JSON: {error}") from None


def read_bytes(name: str, data: bytes) -> dict[str, Any]:
    """Reads bytes as ``{name: …}``: a JSON object or list parsed, else text; other bytes as base64, with ``encoding``.

    Raises:
        ToolFailure: ``result_not_json`` for JSON with a NUL character or nested too deeply.
    """
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return {name: to_json(pieces.parse(data), name=name)}
        except msgspec.DecodeError:
            pass
        except RecursionError:
            raise ToolFailure.of("result_not_json", f"{name}: {TOO_DEEP}") from None
        except NotJson as error:
            raise ToolFailure.of("result_not_json", str(error)) from None
    try:
        return {name: to_json(data.decode())}
    except (UnicodeDecodeError, NotJson):
        return {name: base64.b64encode(data).decode(), "encoding": "base64"}
