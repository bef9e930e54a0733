"""``kind: nats``: messages, key-value buckets and object stores on a NATS server (LANGUAGE §12).

``docs/reference/tools.md`` lists the inputs of each action.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import AliasChoices, Field, field_validator, model_validator

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.request import check_headers
from noetl_stream.tools.inputs import Auth, Inputs, Knobs, auth_field, validated

Action = Literal["publish", "request", "kv_get", "kv_put", "kv_delete", "object_get", "object_put"]

DEFAULT_READ_TIMEOUT_S: Final = 10.0
MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024
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


class NatsKnobs(Knobs):
    """Knobs of ``nats``."""

    max_object_bytes: int = Field(
        default=MAX_OBJECT_BYTES,
        gt=0,
        description="Size of an object that object_get reads; a larger one is an error.",
    )


class NatsTool:
    """Runs actions over shared connections.

    Args:
        egress: What may be reached. Default: the public internet.
    """

    spec = KindSpec(kind="nats", inputs=NatsInputs, knobs=NatsKnobs)

    def __init__(self, egress: Egress | None = None) -> None:
        # Imported here, like the exchange: checking a playbook should not pay for the library.
        from noetl_stream.tools.nats.connections import Connections

        self._connections = Connections(egress)

    @classmethod
    def configured(cls, settings: ToolSettings) -> NatsTool:
        """The tool with the addresses that the operator allows."""
        return cls(Egress(settings.egress))

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns the action's result: ``{subject}``, ``{stream, seq, duplicate}``, ``{data, headers, subject}``,
        ``{value, revision}``, ``{revision}``, ``{data, size, digest}`` or ``{size, digest}``.

        Raises:
            ToolFailure: ``not_found``, ``conflict``, ``refused``, ``connection``, ``timeout``, ``credential``,
                ``forbidden_address``, ``output_too_large``, ``result_not_json``, ``invalid_input``.
        """
        from noetl_stream.tools.nats.exchange import Exchange, payload_bytes

        inputs = validated(NatsInputs, call.inputs)
        knobs = validated(NatsKnobs, call.knobs)
        check_headers(inputs.headers or {})
        payload = payload_bytes(inputs)
        timeout_s = DEFAULT_READ_TIMEOUT_S if call.timeouts.read is None else call.timeouts.read
        async with self._connections.connection(call, inputs.auth) as connection:
            exchange = Exchange(inputs, payload, connection, timeout_s, call.idempotency_key)
            with exchange.failures_translated():
                result = await connection.run(exchange.result(knobs.max_object_bytes))
                return ToolResult(result, warnings=exchange.warnings)

    async def close(self) -> None:
        """Closes the connections."""
        await self._connections.close()
