"""Refusals of the HTTP API: an exception for each kind of problem. Made by scripts/client_code.py: do not edit."""

from __future__ import annotations

from typing import Final

from noetl_stream_client.errors import ApiError


class Conflict(ApiError):
    """Its present state does not allow this. It has ended, has not ended yet, or is registered with another text.
    The detail says which.
    """

    code = "conflict"
    status = 409


class VersionMismatch(Conflict):
    """It has another version now. It was changed after you read it. Read it again, then decide."""

    code = "version-mismatch"
    status = 412


class TooBusy(ApiError):
    """Too many requests. Nothing was done. Try again after the seconds in Retry-After."""

    code = "too-busy"
    status = 429


class Unauthenticated(ApiError):
    """Authentication required. Send `Authorization: Bearer` with a valid token."""

    code = "unauthenticated"
    status = 401


class Forbidden(ApiError):
    """Not allowed. The token is valid, but its role or its paths do not allow this."""

    code = "forbidden"
    status = 403


class NotReady(ApiError):
    """A store is not prepared. The detail names the command that prepares it."""

    code = "not-ready"
    status = 503


class Unreachable(ApiError):
    """A store does not answer. NATS, Postgres or every server is down. Try again; with an Idempotency-Key nothing is
    done twice.
    """

    code = "unreachable"
    status = 503


class OutcomeUnknown(ApiError):
    """The outcome is unknown. A store did not answer in time. Ask again, with the same Idempotency-Key if you sent
    one.
    """

    code = "outcome-unknown"
    status = 503


class QueryTooLong(ApiError):
    """A query took too long. Postgres did not find the answer within NOETL_GATEWAY_MAX_QUERY_S. Ask for less: the
    hint says how.
    """

    code = "query-too-long"
    status = 504


class PayloadRefused(ApiError):
    """The payload is not accepted. It exceeds a limit, is nested too deeply, or holds what JSON and Postgres cannot
    represent.
    """

    code = "payload-refused"
    status = 422


class UsageError(ApiError):
    """Invalid value. The detail says what is wrong with it."""

    code = "invalid"
    status = 422


class PlaybookRefused(UsageError):
    """The playbook has errors. `diagnostics` has each with its line and column. Nothing was stored or started."""

    code = "playbook-refused"
    status = 422


class NotFound(UsageError):
    """Not found. What the address or the body names does not exist, or this token may not see it."""

    code = "not-found"
    status = 404


class InvalidRequest(UsageError):
    """Malformed request. `errors` has each fault: at a JSON pointer into the body, or with a parameter."""

    code = "invalid-request"
    status = 400


class TooLarge(PayloadRefused):
    """The body is too large. The detail names the setting that limits it."""

    code = "too-large"
    status = 413


class Overloaded(TooBusy):
    """The gateway holds as much as it may. Nothing was done. Try again after the seconds in Retry-After, or ask
    another gateway.
    """

    code = "overloaded"
    status = 503


class UnsupportedMediaType(UsageError):
    """Unsupported media type. Send one of the types that the detail names, in Content-Type."""

    code = "unsupported-media-type"
    status = 415


class MethodNotAllowed(UsageError):
    """Method not allowed. Allow lists the methods of this address."""

    code = "method-not-allowed"
    status = 405


class KeyReused(UsageError):
    """The Idempotency-Key was used for another request. Use a new key for each request, and keep it for retries of
    that request.
    """

    code = "key-reused"
    status = 422


class Internal(ApiError):
    """Internal error. The log of the gateway has the details. Please report it."""

    code = "internal"
    status = 500


PROBLEMS: Final[dict[str, type[ApiError]]] = {
    "playbook-refused": PlaybookRefused,
    "not-found": NotFound,
    "version-mismatch": VersionMismatch,
    "conflict": Conflict,
    "too-busy": TooBusy,
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "not-ready": NotReady,
    "unreachable": Unreachable,
    "outcome-unknown": OutcomeUnknown,
    "query-too-long": QueryTooLong,
    "payload-refused": PayloadRefused,
    "invalid": UsageError,
    "invalid-request": InvalidRequest,
    "too-large": TooLarge,
    "overloaded": Overloaded,
    "unsupported-media-type": UnsupportedMediaType,
    "method-not-allowed": MethodNotAllowed,
    "key-reused": KeyReused,
    "internal": Internal,
}
