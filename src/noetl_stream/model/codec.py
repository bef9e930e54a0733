"""The JSON codec: the only module that encodes or decodes facts and messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.events import AnyFact, Fact
from noetl_stream.model.messages import (
    ClaimAnswer,
    InboxMessage,
    InputByReport,
    JournalRecord,
    Report,
    Request,
    SecretAnswer,
    SecretQuestion,
    StepCommand,
    Stop,
    WorkerPresence,
)
from noetl_stream.model.outcome import ErrorInfo, Payload

Value = TypeVar("Value")

_encoder: Final = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """JSON bytes of a struct or of plain JSON values.

    Raises:
        PayloadRefused: if JSON cannot represent the value.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise PayloadRefused(f"not JSON: {error}") from None


def _decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    decode = msgspec.json.Decoder(kind).decode

    def decode_or_refuse(data: bytes | msgspec.Raw) -> Any:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PayloadRefused(f"cannot read this message: {error}") from None

    return decode_or_refuse


Decode: TypeAlias = Callable[[bytes | msgspec.Raw], Value]
"""The value that the JSON bytes encode. Raises ``PayloadRefused`` if they encode nothing of this type."""

decode_fact: Final[Decode[Fact]] = _decoder(AnyFact)
decode_reported: Final[Decode[Request | Report]] = _decoder(Request | Report)
decode_inbox: Final[Decode[InboxMessage]] = _decoder(InboxMessage)
decode_record: Final[Decode[JournalRecord]] = _decoder(JournalRecord)
decode_command: Final[Decode[StepCommand]] = _decoder(StepCommand)
decode_claim_answer: Final[Decode[ClaimAnswer]] = _decoder(ClaimAnswer)
decode_stop: Final[Decode[Stop]] = _decoder(Stop)
decode_presence: Final[Decode[WorkerPresence]] = _decoder(WorkerPresence)
decode_secret_question: Final[Decode[SecretQuestion]] = _decoder(SecretQuestion)
decode_secret_answer: Final[Decode[SecretAnswer]] = _decoder(SecretAnswer)
decode_payload: Final[Decode[Payload]] = _decoder(Payload)
decode_error: Final[Decode[ErrorInfo]] = _decoder(ErrorInfo)
decode_json: Final[Decode[Any]] = _decoder(Any)
_decode_input: Final[Decode[InputByReport]] = _decoder(InputByReport)


def decode_entry(data: bytes | msgspec.Raw) -> Fact | InputByReport:
    """An entry of a journal record: inputs by report are arrays, facts are objects."""
    return _decode_input(data) if bytes(data).startswith(b"[") else decode_fact(data)


def check_text(data: bytes) -> None:
    """Checks bytes that are stored whole: decoding alone skips the parts it does not use.

    Raises:
        PayloadRefused: ``data`` is not UTF-8.
    """
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise PayloadRefused(f"cannot read this message: {error}") from None


def payload_of(value: Any) -> Payload:
    """``value`` as an inline payload.

    Raises:
        PayloadRefused: if ``value`` is not JSON.
    """
    return Payload(msgspec.Raw(encode(value)))
