"""Builds a request from the rendered inputs of ``kind: http``: URL, headers, body (LANGUAGE §12 *http*)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode, urlsplit

import msgspec
from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from noetl_stream.tools.inputs import Auth, Inputs, auth_field, bad_credential, invalid_input, text_entry

Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
_WITHOUT_KEY: Final = frozenset({"GET", "HEAD"})
_AUTH_SHAPES: Final = "must be {token}, {username, password} or {header: {name: value}}"

Scalar = str | int | float | bool | None


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


MethodInAnyCase = Annotated[Method, BeforeValidator(_upper, json_schema_input_type=str)]


class HttpInputs(Inputs):
    """Inputs of ``http``."""

    method: MethodInAnyCase = Field(default="GET", description="The method, in upper or lower case.")
    url: str = Field(
        validation_alias=AliasChoices("url", "endpoint"), description="The full URL, `http://` or `https://`."
    )
    params: dict[str, Scalar | list[Scalar]] | None = Field(
        default=None,
        description="Query parameters, added to those of `url`. A list repeats the name; null omits it.",
    )
    headers: dict[str, str | int | float | None] | None = Field(
        default=None, description="Request headers; null omits one."
    )
    json_body: Any = Field(
        default=None,
        validation_alias=AliasChoices("json", "payload", "data"),
        description="The body, sent as JSON.",
    )
    form: dict[str, Scalar | list[Scalar]] | None = Field(default=None, description="The body, sent as form fields.")
    body: Any = Field(default=None, description="The body: text is sent as is, anything else as JSON.")
    auth: Auth | None = auth_field(
        None,
        "Name of a credential (text is a bearer token), or inline `{token}`, `{username, password}`, `{header: {…}}`.",
    )

    @model_validator(mode="after")
    def _one_body(self) -> HttpInputs:
        given = [
            name
            for name, value in (("json", self.json_body), ("form", self.form), ("body", self.body))
            if value is not None
        ]
        if len(given) > 1:
            raise ValueError(f"more than one body: {', '.join(given)}; keep one")
        return self


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. ``secret_headers`` are sent to the origin of ``url`` only, not to redirects elsewhere."""

    method: str
    url: str
    params: list[tuple[str, str]]
    headers: dict[str, str]
    secret_headers: dict[str, str]
    body: bytes | None


def request_of(
    inputs: HttpInputs, credential: str | dict[str, Any] | None, idempotency_key: str, traceparent: str = ""
) -> HttpRequest:
    """The request for these inputs. All methods except GET and HEAD send ``Idempotency-Key`` (DESIGN §2).

    Raises:
        ToolFailure: ``invalid_input`` or ``credential``.
    """
    body, content_type = _body(inputs)
    headers = {name: _text(value) for name, value in (inputs.headers or {}).items() if value is not None}
    explicit = {name.lower() for name in headers}
    if content_type is not None and "content-type" not in explicit:
        headers["Content-Type"] = content_type
    if inputs.method not in _WITHOUT_KEY and "idempotency-key" not in explicit:
        headers["Idempotency-Key"] = idempotency_key
    if traceparent and "traceparent" not in map(str.lower, inputs.headers or ()):
        headers["traceparent"] = traceparent
    secret = _secret_headers(inputs.auth, credential) if inputs.auth is not None and credential is not None else {}
    duplicate = explicit & {name.lower() for name in secret}
    if duplicate:
        raise invalid_input(f"headers.{min(duplicate)}: auth also sets this header; remove one")
    check_headers({**headers, **secret})
    return HttpRequest(inputs.method, _checked_url(inputs.url), _pairs(inputs.params), headers, secret, body)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port  # raises if it is not a number
    except ValueError as error:
        raise invalid_input(f"url: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(sign.isspace() for sign in parts.netloc):
        raise invalid_input("url: must start with http:// or https:// and have a host")
    if parts.username or parts.password:
        raise invalid_input("url: must not contain a user or password, which logs would show; use auth")
    return url.strip()


def _body(inputs: HttpInputs) -> tuple[bytes | None, str | None]:
    if inputs.form is not None:
        return urlencode(_pairs(inputs.form)).encode(), "application/x-www-form-urlencoded"
    if isinstance(inputs.body, str):
        return inputs.body.encode("utf-8", errors="replace"), "text/plain; charset=utf-8"
    value = inputs.json_body if inputs.json_body is not None else inputs.body
    if value is None:
        return None, None
    try:
        return msgspec.json.encode(value), "application/json"
    except (TypeError, ValueError) as error:
        raise invalid_input(f"cannot encode the body as JSON: {error}") from None


def _pairs(values: Mapping[str, Scalar | list[Scalar]] | None) -> list[tuple[str, str]]:
    pairs = []
    for name, value in (values or {}).items():
        members = value if isinstance(value, list) else [value]
        pairs += [(name, _text(member)) for member in members if member is not None]
    return pairs


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


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
            return dict(headers)
    raise bad_credential(auth, f"cannot be used by http; {_AUTH_SHAPES}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Rejects names and values that would break the header's line.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    for name, value in headers.items():
        if not name or not name.isascii() or not all(sign.isalnum() or sign in "!#$%&'*+-.^_`|~" for sign in name):
            raise invalid_input(f"headers: invalid name {name!r}")
        if any((ord(sign) < 32 and sign != "\t") or ord(sign) == 127 for sign in value):
            raise invalid_input(f"headers.{name}: the value contains a line break or another control character")
