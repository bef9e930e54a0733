"""The JSON codec: the only module that encodes or decodes facts and messages."""

from __future__ import annotations

from typing import Any, Final, TypeVar

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
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.reference import Payload

Value = TypeVar("Value")

_encoder: Final = msgspec.json.Encoder()
_fact: Final[msgspec.json.Decoder[Fact]] = msgspec.json.Decoder(AnyFact)
_reported: Final[msgspec.json.Decoder[Request | Report]] = msgspec.json.Decoder(Request | Report)
_inbox: Final = msgspec.json.Decoder(InboxMessage)
_record: Final = msgspec.json.Decoder(JournalRecord)
_input: Final = msgspec.json.Decoder(InputByReport)
_command: Final = msgspec.json.Decoder(StepCommand)
_claim: Final[msgspec.json.Decoder[ClaimAnswer]] = msgspec.json.Decoder(ClaimAnswer)
_stop: Final = msgspec.json.Decoder(Stop)
_presence: Final = msgspec.json.Decoder(WorkerPresence)
_question: Final = msgspec.json.Decoder(SecretQuestion)
_answer: Final = msgspec.json.Decoder(SecretAnswer)
_payload: Final = msgspec.json.Decoder(Payload)
_error: Final = msgspec.json.Decoder(ErrorInfo)
_any: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()


def encode(value: object) -> bytes:
    """JSON bytes of a struct or of plain JSON values.

    Raises:
        PayloadRefused: if JSON cannot represent the value.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise PayloadRefused(f"not JSON: {error}") from None


def decode_fact(data: bytes) -> Fact:
    """The fact encoded in ``data``.

    Raises:
        PayloadRefused: if ``data`` is not a fact.
    """
    return _decode(_fact, data)


def decode_reported(data: bytes) -> Request | Report:
    return _decode(_reported, data)


def decode_inbox(data: bytes) -> InboxMessage:
    return _decode(_inbox, data)


def decode_record(data: bytes) -> JournalRecord:
    return _decode(_record, data)


def decode_entry(data: bytes | msgspec.Raw) -> Fact | InputByReport:
    """An entry of a journal record: inputs by report are arrays, facts are objects."""
    return _decode(_input, data) if bytes(data).startswith(b"[") else _decode(_fact, data)


def decode_command(data: bytes) -> StepCommand:
    return _decode(_command, data)


def decode_claim_answer(data: bytes) -> ClaimAnswer:
    return _decode(_claim, data)


def decode_stop(data: bytes) -> Stop:
    return _decode(_stop, data)


def decode_presence(data: bytes) -> WorkerPresence:
    return _decode(_presence, data)


def decode_secret_question(data: bytes) -> SecretQuestion:
    return _decode(_question, data)


def decode_secret_answer(data: bytes) -> SecretAnswer:
    return _decode(_answer, data)


def decode_payload(data: bytes) -> Payload:
    return _decode(_payload, data)


def decode_error(data: bytes) -> ErrorInfo:
    return _decode(_error, data)


def decode_json(data: bytes | msgspec.Raw) -> Any:
    """Decodes plain JSON values."""
    return _decode(_any, data)


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


def _decode(decoder: msgspec.json.Decoder[Value], data: bytes | msgspec.Raw) -> Value:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadRefused(f"cannot read this message: {error}") from None
