"""Inputs of ``kind: nats``, by action."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import AliasChoices, Field, field_validator, model_validator

from noetl_stream.tools.inputs import Auth, Inputs, auth_field

Action = Literal["publish", "request", "kv_get", "kv_put", "kv_delete", "object_get", "object_put"]

_SUBJECT: Final = re.compile(r"[^\s.*>\x00]+(?:\.[^\s.*>\x00]+)*")
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEY: Final = re.compile(r"[-/_=A-Za-z0-9]+(?:\.[-/_=A-Za-z0-9]+)*")


_INPUTS: Final[Mapping[str, tuple[str, str]]] = {
    "publish": ("subject", "payload encoding headers jetstream"),
    "request": ("subject", "payload encoding headers"),
    "kv_get": ("bucket key", ""),
    "kv_put": ("bucket key payload", "encoding expected_revision"),
    "kv_delete": ("bucket key", "expected_revision"),
    "object_get": ("bucket key", ""),
    "object_put": ("bucket key payload", "encoding"),
}
"""The required and the optional inputs of each action."""


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
        required, optional = (frozenset(names.split()) for names in _INPUTS[self.action])
        given = {name for name in self.model_fields_set if getattr(self, name) is not None} - {"action", "auth"}
        missing = sorted(required - self.model_fields_set)
        if missing:
            raise ValueError(f"{missing[0]}: required by {self.action}")
        unused = sorted(given - required - optional)
        if unused:
            raise ValueError(f"{unused[0]}: not used by {self.action}")
        if self.action.startswith("kv_") and self.key is not None and _KEY.fullmatch(self.key) is None:
            raise ValueError("key: must have letters, digits and `-/_=` only, separated by single dots")
        return self
