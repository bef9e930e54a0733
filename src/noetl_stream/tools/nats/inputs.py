"""Inputs of ``kind: nats`` by action, and how values become message bytes and back (``docs/reference/tools.md``)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from pydantic import AliasChoices, Field, field_validator, model_validator

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.convert import NotJson, to_json
from noetl_stream.tools.inputs import Auth, Inputs, Knobs, auth_field, invalid_input

Action = Literal["publish", "request", "kv_get", "kv_put", "kv_delete", "object_get", "object_put"]

MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024
_SUBJECT: Final = re.compile(r"[^\s.*>\x00]+(?:\.[^\s.*>\x00]+)*")
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEY: Final = re.compile(r"[-/_=A-Za-z0-9]+(?:\.[-/_=A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class _ActionInputs:
    required: frozenset[str]
    optional: frozenset[str]


def _inputs(required: str, optional: str = "") -> _ActionInputs:
    return _ActionInputs(frozenset(required.split()), frozenset(optional.split()))


_BY_ACTION: Final[Mapping[str, _ActionInputs]] = {
    "publish": _inputs("subject", "payload encoding headers jetstream"),
    "request": _inputs("subject", "payload encoding headers"),
    "kv_get": _inputs("bucket key"),
    "kv_put": _inputs("bucket key payload", "encoding expected_revision"),
    "kv_delete": _inputs("bucket key", "expected_revision"),
    "object_get": _inputs("bucket key"),
    "object_put": _inputs("bucket key payload", "encoding"),
}


class NatsInputs(Inputs):
    """Inputs of ``nats``. Each action accepts its own set of them."""

    action: Action = Field(description="What to do.")
    auth: Auth = auth_field(
        ..., "Name of a credential: a URL, or a mapping `{url}` with `{user, password}`, `{token}` or `{creds}`."
    )
    subject: str | None = Field(default=None, description="Subject of the message, without wildcards.")
    payload: Any = Field(
        default=None,
        validation_alias=AliasChoices("payload", "value"),
        description="Text is sent as is, anything else as JSON; null is an empty message.",
    )
    encoding: Literal["base64"] | None = Field(
        default=None, description="`base64` if the payload is bytes encoded as base64 text."
    )
    headers: dict[str, str] | None = Field(default=None, description="Message headers.")
    jetstream: bool | None = Field(
        default=None, description="Whether to wait until a stream has stored the message. Default: false."
    )
    bucket: str | None = Field(default=None, description="An existing key-value bucket or object store.")
    key: str | None = Field(default=None, min_length=1, description="The key, or the object's name.")
    expected_revision: int | None = Field(
        default=None, ge=0, description="Write only if the key has this revision; 0 if it must not exist."
    )

    @field_validator("subject")
    @classmethod
    def _is_subject(cls, subject: str | None) -> str | None:
        if subject is not None and _SUBJECT.fullmatch(subject) is None:
            raise ValueError("must be words separated by dots, without white space, `*` or `>`")
        return subject

    @field_validator("bucket")
    @classmethod
    def _is_bucket(cls, bucket: str | None) -> str | None:
        if bucket is not None and _BUCKET.fullmatch(bucket) is None:
            raise ValueError("must have letters, digits, `_` and `-` only")
        return bucket

    @model_validator(mode="after")
    def _fits_the_action(self) -> NatsInputs:
        inputs = _BY_ACTION[self.action]
        given = {name for name in self.model_fields_set if getattr(self, name) is not None} - {"action", "auth"}
        missing = sorted(inputs.required - self.model_fields_set)
        if missing:
            raise ValueError(f"{missing[0]}: required by {self.action}")
        unused = sorted(given - inputs.required - inputs.optional)
        if unused:
            raise ValueError(f"{unused[0]}: not used by {self.action}")
        if self.action.startswith("kv_") and self.key is not None and _KEY.fullmatch(self.key) is None:
            raise ValueError("key: must have letters, digits and `-/_=` only, separated by single dots")
        return self


class NatsKnobs(Knobs):
    """Knobs of ``nats``."""

    max_object_bytes: int = Field(
        default=MAX_OBJECT_BYTES,
        gt=0,
        description="Size of an object that object_get reads; a larger one is an error.",
    )


def payload_bytes(inputs: NatsInputs) -> bytes:
    """The message's bytes.

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
    """``{name: …}``: a JSON object or list parsed, else text; other bytes as base64, with ``encoding``.

    Raises:
        ToolFailure: ``result_not_json`` for JSON with a NUL character or nested too deeply.
    """
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return {name: to_json(msgspec.json.decode(data), name=name)}
        except msgspec.DecodeError:
            pass
        except RecursionError:
            raise _not_json(f"{name}: nested too deeply") from None
        except NotJson as error:
            raise _not_json(str(error)) from None
    try:
        return {name: to_json(data.decode())}
    except (UnicodeDecodeError, NotJson):
        return {name: base64.b64encode(data).decode(), "encoding": "base64"}


def _not_json(message: str) -> ToolFailure:
    return ToolFailure.of("result_not_json", message)
