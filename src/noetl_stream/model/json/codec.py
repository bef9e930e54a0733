"""The JSON codec: the only module that encodes or decodes facts and messages."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from noetl_stream.errors import PayloadRefused, TooDeep
from noetl_stream.model import messages
from noetl_stream.model.events import AnyFact, Fact
from noetl_stream.model.events.composite import Composite
from noetl_stream.model.json.values import MAX_DEPTH, MESSAGE_DEPTH, TOO_DEEP, cut_below, nests_deeper
from noetl_stream.model.outcome import ErrorInfo, Payload
from noetl_stream.model.task_log import LogBatch

Value = TypeVar("Value")

_NUL: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""A NUL as JSON spells it: a backslash that no backslash escapes."""

_encoder: Final = msgspec.json.Encoder()
_sorted_encoder: Final = msgspec.json.Encoder(order="deterministic")


def encode(value: object, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """JSON bytes of a struct or of plain JSON values.

    Raises:
        PayloadRefused: if JSON cannot represent the value.
    """
    try:
        return encoder.encode(value)
    except RecursionError:
        raise TooDeep(TOO_DEEP) from None
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise PayloadRefused(f"not JSON: {error}") from None


def encode_sorted(value: object) -> bytes:
    """JSON bytes like :func:`encode`, independent of the order of keys."""
    return encode(value, _sorted_encoder)


_LARGE_BYTES: Final = 64 * 1024


def call_without_gc(decode: Callable[[bytes | msgspec.Raw], Any], data: bytes | msgspec.Raw) -> Any:
    """Decodes large JSON; pauses the garbage collector, which would traverse it repeatedly for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return decode(data)
    finally:
        if was_enabled:
            gc.enable()


def _decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    @cache  # made on first use: a command that reads needs few of them
    def decode() -> Callable[[bytes | msgspec.Raw], Any]:
        return msgspec.json.Decoder(kind).decode

    def decode_or_refuse(data: bytes | msgspec.Raw) -> Any:
        try:
            return decode()(data) if len(data) <= _LARGE_BYTES else call_without_gc(decode(), data)
        except RecursionError:
            raise TooDeep(TOO_DEEP) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PayloadRefused(f"cannot read this message: {error}") from None

    return decode_or_refuse


Decode: TypeAlias = Callable[[bytes | msgspec.Raw], Value]
"""A decoder of JSON bytes. Raises ``PayloadRefused`` if they encode nothing of this type."""

decode_fact: Final[Decode[Fact]] = _decoder(AnyFact | Composite)
"""A fact of a journal or a report."""
decode_reported: Final[Decode[messages.ReportedBody]] = _decoder(messages.ReportedBody)
decode_signed_request: Final[Decode[messages.SignedRequest]] = _decoder(messages.SignedRequest)
decode_inbox: Final[Decode[messages.InboxMessage]] = _decoder(messages.InboxMessage)
decode_aggregate_message: Final[Decode[messages.AggregateMessage]] = _decoder(messages.AggregateMessage)
decode_record: Final[Decode[messages.JournalRecord]] = _decoder(messages.JournalRecord)
decode_command: Final[Decode[messages.StepCommand]] = _decoder(messages.StepCommand)
decode_claim_answer: Final[Decode[messages.ClaimAnswer]] = _decoder(messages.ClaimAnswer)
decode_stop: Final[Decode[messages.Stop]] = _decoder(messages.Stop)
decode_presence: Final[Decode[messages.WorkerPresence]] = _decoder(messages.WorkerPresence)
decode_memory_use: Final[Decode[messages.MemoryUse]] = _decoder(messages.MemoryUse)
decode_secret_question: Final[Decode[messages.SecretQuestion]] = _decoder(messages.SecretQuestion)
decode_hide_question: Final[Decode[messages.HideQuestion]] = _decoder(messages.HideQuestion)
decode_playbook_question: Final[Decode[messages.PlaybookQuestion]] = _decoder(messages.PlaybookQuestion)
decode_result_question: Final[Decode[messages.ResultQuestion]] = _decoder(messages.ResultQuestion)
decode_catalog_question: Final[Decode[messages.CatalogQuestion]] = _decoder(messages.CatalogQuestion)
decode_webhook_question: Final[Decode[messages.WebhookQuestion]] = _decoder(messages.WebhookQuestion)
decode_webhook_answer: Final[Decode[messages.WebhookAnswer]] = _decoder(messages.WebhookAnswer)
decode_secret_answer: Final[Decode[messages.SecretAnswer]] = _decoder(messages.SecretAnswer)
decode_hide_answer: Final[Decode[messages.HideAnswer]] = _decoder(messages.HideAnswer)
decode_log_batch: Final[Decode[LogBatch]] = _decoder(LogBatch)
decode_payload: Final[Decode[Payload]] = _decoder(Payload)
decode_error: Final[Decode[ErrorInfo]] = _decoder(ErrorInfo)
decode_keys: Final[Decode[list[str]]] = _decoder(list[str])
decode_partitions: Final[Decode[list[int]]] = _decoder(list[int])
decode_json: Final[Decode[Any]] = _decoder(Any)
"""Decodes a stored JSON value. A value from outside is decoded by :func:`decode_value`."""
_decode_entry: Final[Decode[messages.FullEntry]] = _decoder(messages.FullEntry)
_decode_input: Final[Decode[tuple[str, int]]] = _decoder(tuple[str, int])
_decode_raws: Final[Decode[list[msgspec.Raw]]] = _decoder(list[msgspec.Raw])


_decoder_of: Final[Callable[[Any], Decode[Any]]] = cache(_decoder)


def decode_as(kind: type[Value], data: bytes) -> Value:
    """Decodes JSON bytes as a value of this type.

    Raises:
        PayloadRefused: they encode none.
    """
    found: Value = _decoder_of(kind)(data)
    return found


def decode_entry(data: msgspec.Raw) -> messages.FullEntry:
    """An entry of a journal record; in format 1 a decision, or the report and place of one reported fact.

    Raises:
        PayloadRefused: it does not decode.
    """
    text = bytes(data)
    if text.startswith(b"{"):
        return messages.FullEntry("", 0, 0, msgspec.Raw(encode_facts([text])))
    try:
        return _decode_entry(data)
    except PayloadRefused:
        return messages.FullEntry(*_decode_input(data), count=1)


def encode_facts(facts: Sequence[bytes]) -> bytes:
    """The JSON array of encoded facts, as journals hold them."""
    return b"[%b]" % b",".join(facts)


def decode_facts(data: bytes | msgspec.Raw) -> Iterator[tuple[Fact, msgspec.Raw]]:
    """The facts in an array of :func:`encode_facts`, each with its bytes.

    Raises:
        PayloadRefused: it does not decode.
    """
    return ((decode_fact(raw), raw) for raw in _decode_raws(data))


class _Written(msgspec.Struct):
    format: int = messages.OLDEST_FORMAT


_decode_written: Final[Decode[_Written]] = _decoder(_Written)


def newer_format(data: bytes, reads: int) -> int:
    """The format of a message if it is above ``reads``, the newest read here (PROTOCOL §5 *Poison*); else 0."""
    try:
        written = _decode_written(data).format
    except PayloadRefused:
        return 0
    return written if written > reads else 0


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Telling(msgspec.Struct, frozen=True):
    fact: _Named = _Named()


_decode_telling: Final[Decode[_Telling]] = _decoder(_Telling)


def name_of_fact(data: bytes) -> str:
    """The name of the fact in a message; empty if it has none."""
    try:
        return _decode_telling(data).fact.name
    except PayloadRefused:
        return ""


def decode_value(data: bytes) -> Any:
    """Decodes a JSON value from outside.

    Raises:
        PayloadRefused: ``data`` is not JSON.
        TooDeep: it nests deeper than values may.
    """
    value = decode_json(data)
    check_depth(data)
    return value


def decode_shown(data: bytes | msgspec.Raw, decode: Decode[Any] = decode_json) -> Any:
    """Decodes a stored value for people; parts that an older release nested too deeply are cut.

    Raises:
        PayloadRefused: ``data`` is not JSON, or nests too deeply even to be decoded.
    """
    value = decode(data)
    if nests_deeper(bytes(data), MESSAGE_DEPTH):
        cut_below(value, MESSAGE_DEPTH)
    return value


def check_depth(data: bytes, most: int = MAX_DEPTH) -> None:
    """Raises :class:`~noetl_stream.errors.TooDeep` if this JSON nests more than ``most`` levels deep."""
    if nests_deeper(data, most):
        raise TooDeep(TOO_DEEP)


def check_text(data: bytes) -> None:
    """Checks JSON that is stored whole: decoding skips unused parts, no column holds a NUL, and later readers may
    recurse.

    Raises:
        PayloadRefused: ``data`` is not UTF-8, holds a NUL character, or nests too deeply.
    """
    check_depth(data, MESSAGE_DEPTH)
    if b"u0000" in data and _NUL.search(data):
        raise PayloadRefused("a message cannot hold a NUL character", hint="leave it out, or encode it")
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise PayloadRefused(f"cannot read this message: {error}") from None


def without_nul(data: bytes) -> bytes:
    """JSON with U+FFFD in place of each NUL character."""
    return _NUL.sub(rb"\1\\ufffd", data) if b"u0000" in data else data


def payload_of(value: Any) -> Payload:
    """``value`` as an inline payload.

    Raises:
        PayloadRefused: if ``value`` is not JSON.
    """
    return Payload(msgspec.Raw(encode(value)))
