"""Inputs of ``kind: nats`` by action, and values as the bytes of a message and back (``docs/reference/tools.md``)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from pydantic import AliasChoices, Field, field_validator, model_validator

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.auth import Auth, auth_field
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.convert import NotJson, to_json
from noetl_stream.tools.inputs import Inputs, Knobs, invalid_input

Action = Literal["publish", "request", "kv_get", "kv_put", "kv_delete", "object_get", "object_put"]

MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024
_SUBJECT: Final = re.compile(r"[^\s.*>\x00]+(?:\.[^\s.*>\x00]+)*")
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEY: Final = re.compile(r"[-/_=A-Za-z0-9]+(?:\.[-/_=A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class _Takes:
    needs: frozenset[str]
    may: frozenset[str]


def _takes(needs: str, may: str = "") -> _Takes:
    return _Takes(frozenset(needs.split()), frozenset(may.split()))


_BY_ACTION: Final[Mapping[str, _Takes]] = {
    "publish": _takes("subject", "payload encoding headers jetstream"),
    "request": _takes("subject", "payload encoding headers"),
    "kv_get": _takes("bucket key"),
    "kv_put": _takes("bucket key payload", "encoding expected_revision"),
    "kv_delete": _takes("bucket key", "expected_revision"),
    "object_get": _takes("bucket key"),
    "object_put": _takes("bucket key payload", "encoding"),
}


class NatsInputs(Inputs):
    """Inputs of ``nats``. Which of them an action takes stands in one table, and is checked."""

    action: Action = Field(description="What to do.")
    auth: Auth = auth_field(
        ..., "Name of a credential: a URL, or a mapping `{url}` with `{user, password}`, `{token}` or `{creds}`."
    )
    subject: str | None = Field(default=None, description="Where the message goes. No wildcards.")
    payload: Any = Field(
        default=None,
        validation_alias=AliasChoices("payload", "value"),
        description="Text is sent as it is, anything else as JSON; null is an empty message.",
    )
    encoding: Literal["base64"] | None = Field(
        default=None, description="`base64` if the payload is base64 text for the bytes that are meant."
    )
    headers: dict[str, str] | None = Field(default=None, description="Message headers.")
    jetstream: bool | None = Field(
        default=None, description="Whether to wait until a stream has stored the message; by default it is only sent."
    )
    bucket: str | None = Field(default=None, description="An existing key-value bucket or object store.")
    key: str | None = Field(default=None, min_length=1, description="The key, or the name of the object.")
    expected_revision: int | None = Field(
        default=None, ge=0, description="Change it only if this is its revision; 0: only if the key does not exist."
    )

    @field_validator("subject")
    @classmethod
    def _is_subject(cls, subject: str | None) -> str | None:
        if subject is not None and _SUBJECT.fullmatch(subject) is None:
            raise ValueError("is words with dots between, without white space, `*` and `>`")
        return subject

    @field_validator("bucket")
    @classmethod
    def _is_bucket(cls, bucket: str | None) -> str | None:
        if bucket is not None and _BUCKET.fullmatch(bucket) is None:
            raise ValueError("has letters, digits, `_` and `-` only")
        return bucket

    @model_validator(mode="after")
    def _fits_the_action(self) -> NatsInputs:
        takes = _BY_ACTION[self.action]
        given = {name for name in self.model_fields_set if getattr(self, name) is not None} - {"action", "auth"}
        missing = sorted(takes.needs - self.model_fields_set)
        if missing:
            raise ValueError(f"{missing[0]}: {self.action} needs it")
        odd = sorted(given - takes.needs - takes.may)
        if odd:
            raise ValueError(f"{odd[0]}: {self.action} has no use for it")
        if self.action.startswith("kv_") and self.key is not None and _KEY.fullmatch(self.key) is None:
            raise ValueError("key: has letters, digits and the signs `-/_=` only, with single dots between")
        return self


class NatsKnobs(Knobs):
    """Knobs of ``nats``."""

    max_object_bytes: int = Field(
        default=MAX_OBJECT_BYTES,
        gt=0,
        description="The largest object that object_get reads; a larger one is an error.",
    )


def payload_bytes(inputs: NatsInputs) -> bytes:
    """The bytes of the message.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    value = inputs.payload
    if inputs.encoding is not None:
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise invalid_input("payload: is no base64 text, which `encoding` says it is") from None
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace")
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise invalid_input(f"payload: cannot be written as JSON: {error}") from None


def read_bytes(name: str, data: bytes) -> dict[str, Any]:
    """``{name: …}``: a JSON object or list parsed, else text; bytes that are no text as base64, with ``encoding``.

    Raises:
        ToolFailure: ``result_not_json``, for JSON that nests too deep or holds a NUL character.
    """
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return {name: to_json(msgspec.json.decode(data), name=name)}
        except msgspec.DecodeError:
            pass
        except RecursionError:
            raise _not_json(f"{name}: is nested too deep") from None
        except NotJson as error:
            raise _not_json(str(error)) from None
    try:
        return {name: to_json(data.decode())}
    except (UnicodeDecodeError, NotJson):
        return {name: base64.b64encode(data).decode(), "encoding": "base64"}


def _not_json(message: str) -> ToolFailure:
    return ToolFailure(ErrorInfo(kind="result_not_json", message=message))
