"""Builds a request from the rendered inputs of ``kind: http``: URL, headers, body (LANGUAGE §12 *http*)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, field_validator, model_validator

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.template import TemplateProblem
from noetl_stream.tools.http.address import has_user, written_url
from noetl_stream.tools.http.body import Parts, Pieces, Scalar, body_of, multipart_of, pairs, scalar_text
from noetl_stream.tools.http.message_readers import Form, compiled_until
from noetl_stream.tools.http.tls import TLS_KEYS, Tls
from noetl_stream.tools.inputs import Auth, Inputs, auth_field, bad_credential, invalid_input, text_entry

Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
DEFAULT_MESSAGES: Final = 1_000_000
DEFAULT_SECONDS: Final = 300.0
MAX_SECONDS: Final = 86_400.0
_WITHOUT_KEY: Final = frozenset({"GET", "HEAD"})
_AUTH_SHAPES: Final = (
    "must be {token}, {username, password} or {header: {name: value}}, each with or without {certificate, key, ca}"
)
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
"""The headers about the transfer of a request's bytes (RFC 9110 §7.6.1), which the sender of the bytes sets."""


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _without_user(url: str) -> str:
    if has_user(written_url(url)):
        raise ValueError("must not contain a user or password, which logs would show; use auth")
    return url


def _check_name(name: str) -> None:
    if not name or not name.isascii() or not all(sign.isalnum() or sign in "!#$%&'*+-.^_`|~" for sign in name):
        raise ValueError(f"invalid name {name!r}")


def _request_header(name: str) -> str:
    _check_name(name)
    if name.lower() in _OF_THE_CONNECTION:
        raise ValueError(f"a header of the connection, which http sets itself; remove {name}")
    return name


MethodInAnyCase = Annotated[Method, BeforeValidator(_upper, json_schema_input_type=str)]
HeaderName = Annotated[str, AfterValidator(_request_header)]


class StreamBounds(Inputs):
    """How a response is read as messages."""

    format: Form | None = Field(
        default=None, description="`ndjson` or `sse` (server-sent events). Default: by its content type."
    )
    messages: int = Field(default=DEFAULT_MESSAGES, ge=1, description="The most messages that are read.")
    seconds: float = Field(
        default=DEFAULT_SECONDS, gt=0, le=MAX_SECONDS, description="The longest time for which they are read."
    )
    until: str | None = Field(
        default=None, description="The last message: one `{{ expression }}` over `message`. Without it, all are read."
    )

    @field_validator("until")
    @classmethod
    def _condition(cls, until: str | None) -> str | None:
        try:
            return until if until is None else compiled_until(until).source
        except TemplateProblem as problem:
            written = (problem.hint or "").partition(" if not, ")[0].replace("when:", "until:")
            hint = f"; {written}" if written else ""
            raise ValueError(f"{problem.message}{hint}") from None


class HttpInputs(Inputs):
    """Inputs of ``http``."""

    method: MethodInAnyCase = Field(default="GET", description="The method, in upper or lower case.")
    url: Annotated[str, AfterValidator(_without_user)] = Field(
        validation_alias=AliasChoices("url", "endpoint"), description="The full URL, `http://` or `https://`."
    )
    params: dict[str, Scalar | list[Scalar]] | None = Field(
        default=None,
        description="Query parameters, added to those of `url`. A list repeats the name; null omits it.",
    )
    headers: dict[HeaderName, str | int | float | None] | None = Field(
        default=None,
        description="Request headers; null omits one. Those of the connection, such as `Content-Length`, are refused.",
    )
    json_body: Any = Field(
        default=None,
        validation_alias=AliasChoices("json", "payload", "data"),
        description="The body, sent as JSON.",
    )
    form: dict[str, Scalar | list[Scalar]] | None = Field(default=None, description="The body, sent as form fields.")
    multipart: Parts | None = Field(
        default=None,
        description="The body, sent as `multipart/form-data`. A file is a reference, or `{content, filename, "
        "content_type, encoding}` with `content` or `file`; a list repeats the field, null omits it.",
    )
    body: Any = Field(default=None, description="The body: text is sent as is, anything else as JSON.")
    encoding: Literal["base64"] | None = Field(
        default=None, description="`base64`: `body` is base64 text, whose bytes are sent."
    )
    into: Literal["file", "table"] | None = Field(
        default=None,
        description="`file`: the body of a response below 300 is stored as a file, of any length; `table`: the "
        "messages of a stream as a table.",
    )
    stream: StreamBounds | None = Field(
        default=None, description="How the messages of a response below 300 are read, one after the other."
    )
    checksum: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")] | None = Field(
        default=None, description="`sha256:…`: what the file of `into` must have."
    )
    auth: Auth | None = auth_field(
        None,
        "Name of a credential (text is a bearer token), or inline `{token}`, `{username, password}`, `{header: {…}}`, "
        "with or without `{certificate, key, ca}` for TLS.",
    )

    @model_validator(mode="after")
    def _one_body(self) -> HttpInputs:
        bodies = {"json": self.json_body, "form": self.form, "multipart": self.multipart, "body": self.body}
        given = [name for name, value in bodies.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"more than one body: {', '.join(given)}; keep one")
        if self.encoding is not None and not isinstance(self.body, str):
            raise ValueError("`encoding: base64` needs `body`, as base64 text")
        if self.checksum is not None and self.into != "file":
            raise ValueError("`checksum` is of the file of `into: file`; add it")
        if self.into == "file" and self.stream is not None:
            raise ValueError("`stream` reads messages, and `into: file` stores the body as it is; remove one")
        return self

    @property
    def is_stream(self) -> bool:
        """Whether the response is read as messages."""
        return self.into == "table" or self.stream is not None


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. ``secret_headers`` and ``tls`` are for the origin of ``url`` only, not for redirects elsewhere.

    ``pieces`` are the body in place of ``body``, if there are any.
    """

    method: str
    url: str
    headers: dict[str, str]
    secret_headers: dict[str, str]
    body: bytes | None
    tls: Tls | None = None
    pieces: Pieces = ()


def request_of(
    inputs: HttpInputs,
    credential: str | dict[str, Any] | None,
    idempotency_key: str,
    traceparent: str = "",
    reference: Callable[[Any], DataReference | None] = lambda value: None,
) -> HttpRequest:
    """Builds the request for these inputs. All methods except GET and HEAD send ``Idempotency-Key`` (DESIGN §2).

    Args:
        reference: Returns what a value refers to, if the task may open it.

    Raises:
        ToolFailure: ``invalid_input`` or ``credential``.
    """
    body: bytes | None = None
    content_type: str | None
    pieces: Pieces = ()
    if (file := reference(inputs.body)) is not None:
        pieces, content_type = (file,), file.media_type or "application/octet-stream"
    elif inputs.multipart is not None:
        pieces, content_type = multipart_of(inputs.multipart, reference)
        plain = [piece for piece in pieces if isinstance(piece, bytes)]
        if len(plain) == len(pieces):
            body, pieces = b"".join(plain), ()
    else:
        body, content_type = body_of(
            json_value=inputs.json_body if inputs.json_body is not None else inputs.body,
            form=inputs.form,
            text=inputs.body if isinstance(inputs.body, str) else None,
            is_base64=inputs.encoding is not None,
        )
    headers = {name: scalar_text(value) for name, value in (inputs.headers or {}).items() if value is not None}
    explicit = {name.lower() for name in headers}
    if content_type is not None and "content-type" not in explicit:
        headers["Content-Type"] = content_type
    if inputs.stream is not None and inputs.stream.format == "sse" and "accept" not in explicit:
        headers["Accept"] = "text/event-stream"
    if inputs.into == "file" and "accept-encoding" not in explicit:
        headers["Accept-Encoding"] = "identity"  # so that it can be resumed
    if inputs.method not in _WITHOUT_KEY and "idempotency-key" not in explicit:
        headers["Idempotency-Key"] = idempotency_key
    if traceparent and "traceparent" not in map(str.lower, inputs.headers or ()):
        headers["traceparent"] = traceparent
    secret: dict[str, str] = {}
    tls = None
    if inputs.auth is not None and credential is not None:
        tls, rest = _tls_of(inputs.auth, credential)
        secret = _secret_headers(inputs.auth, rest) if rest or tls is None else {}
    duplicate = explicit & {name.lower() for name in secret}
    if duplicate:
        raise invalid_input(f"headers.{min(duplicate)}: auth also sets this header; remove one")
    check_headers({**headers, **secret})
    return HttpRequest(
        inputs.method, written_url(inputs.url, pairs(inputs.params)), headers, secret, body, tls=tls, pieces=pieces
    )


def _tls_of(auth: Auth, credential: str | dict[str, Any]) -> tuple[Tls | None, str | dict[str, Any]]:
    """Splits a credential into its TLS entries and the rest."""
    if isinstance(credential, str) or not TLS_KEYS & set(credential):
        return None, credential
    tls = Tls(*(text_entry(auth, credential, key) for key in ("certificate", "key", "ca")))
    if (tls.certificate is None) != (tls.key is None):
        raise bad_credential(auth, "certificate and key belong together")
    return tls, {key: value for key, value in credential.items() if key not in TLS_KEYS}


def _secret_headers(auth: Auth, credential: str | dict[str, Any]) -> dict[str, str]:
    if isinstance(credential, str):
        return {"Authorization": f"Bearer {credential}"}
    keys = set(credential)
    if len(keys) == 1 and keys <= {"token", "bearer"}:
        token = text_entry(auth, credential, "token") or text_entry(auth, credential, "bearer")
        if token:
            return {"Authorization": f"Bearer {token}"}
    elif keys == {"username", "password"}:
        user, password = text_entry(auth, credential, "username"), text_entry(auth, credential, "password")
        encoded = base64.b64encode(f"{user or ''}:{password or ''}".encode()).decode()
        return {"Authorization": f"Basic {encoded}"}
    elif keys == {"header"} and isinstance(credential["header"], Mapping):
        headers = credential["header"]
        if all(isinstance(name, str) and isinstance(value, str) for name, value in headers.items()):
            if not _OF_THE_CONNECTION.isdisjoint(map(str.lower, headers)):
                raise bad_credential(auth, "must not set headers that belong to the connection")
            return dict(headers)
    raise bad_credential(auth, f"cannot be used by http; {_AUTH_SHAPES}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Rejects header names and values that would break the header's line.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    for name, value in headers.items():
        try:
            _check_name(name)
        except ValueError as error:
            raise invalid_input(f"headers.{name}: {error}") from None
        if any((ord(sign) < 32 and sign != "\t") or ord(sign) == 127 for sign in value):
            raise invalid_input(f"headers.{name}: the value contains a line break or another control character")
