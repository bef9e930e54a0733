"""Verification of webhooks: signatures and tokens, their time, and the identity of repeated deliveries.

All comparisons take constant time. A refusal gives the reason to the operator; senders are not told.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.aggregates import SignatureAlgorithm, SignatureEncoding, Verification
from noetl_stream.model.json.codec import decode_value

MAX_SECRETS: Final = 5
"""The most secrets that are valid at once, while one is replaced by another."""
MAX_SIGNATURES: Final = 10
"""The most signatures of one delivery."""
_SIGNED: Final = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "x-hub-signature", "x-hub-signature-256"),
        *("stripe-signature", "x-slack-signature"),
    }
)
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class WebhookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a webhook received. Header names are lower-case; ``query`` is unparsed."""

    method: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""


class Accepted(msgspec.Struct, frozen=True):
    """An accepted delivery. ``identity`` is the same for repeated deliveries of one event; empty if unknown."""

    identity: str


class Refused(msgspec.Struct, frozen=True):
    reason: str


def secret_headers(how: Verification) -> frozenset[str]:
    """The headers left out of events: with them, a reader of the event could pose as its sender."""
    return _SIGNED | {how.header} - {""}


def secrets_in(value: Any) -> tuple[str, ...]:
    """The secrets of a credential: text, or ``{secret: …}``, or ``{secrets: […]}`` while one replaces another."""
    if isinstance(value, str):
        return (value,)
    found = value.get("secrets", value.get("secret")) if isinstance(value, Mapping) else None
    listed = found if isinstance(found, list) else [found]
    return tuple(one for one in listed if isinstance(one, str) and one)[:MAX_SECRETS]


def verify(delivery: WebhookDelivery, how: Verification, secrets: Sequence[str], now_ms: int) -> Accepted | Refused:
    """Verifies that one of ``secrets`` signed the delivery, in time."""
    if how.form == "none":
        return _none(delivery)
    if not secrets:
        return Refused("the credential holds no secret")
    return _CHECKS[how.form](delivery, how, secrets, now_ms)


def _none(delivery: WebhookDelivery) -> Accepted | Refused:
    # Anyone who reaches the address may send, except somebody's browser on behalf of a page of another site.
    site, origin = delivery.headers.get("sec-fetch-site", ""), delivery.headers.get("origin", "")
    if site in ("cross-site", "same-site") or (origin and origin.partition("://")[2] != delivery.headers.get("host")):
        return Refused("a browser sent it for a page of another site, and nothing is signed")
    return Accepted(delivery.headers.get("idempotency-key", ""))


def _github(delivery: WebhookDelivery, how: Verification, secrets: Sequence[str], now_ms: int) -> Accepted | Refused:
    given = delivery.headers.get("x-hub-signature-256", "")
    if not _is_signed(delivery.body, [given.removeprefix("sha256=")], secrets):
        return Refused("X-Hub-Signature-256 is missing or of another secret or body")
    # Neither a time nor the delivery's id is signed: the body itself must not count twice.
    return Accepted(_digest(delivery.body))


def _stripe(delivery: WebhookDelivery, how: Verification, secrets: Sequence[str], now_ms: int) -> Accepted | Refused:
    parts = [part.partition("=") for part in delivery.headers.get("stripe-signature", "").split(",")]
    at = next((value for name, _, value in parts if name.strip() == "t"), "")
    given = [value for name, _, value in parts if name.strip() == "v1"]
    if not _is_signed(at.encode() + b"." + delivery.body, given, secrets):
        return Refused("Stripe-Signature is missing or of another secret, time or body")
    # A repeated delivery has another time, and its body may count the remaining deliveries.
    return _check_time(at, how, now_ms) or Accepted(_member(delivery.body, "id"))


def _slack(delivery: WebhookDelivery, how: Verification, secrets: Sequence[str], now_ms: int) -> Accepted | Refused:
    at = delivery.headers.get("x-slack-request-timestamp", "")
    given = delivery.headers.get("x-slack-signature", "")
    if not _is_signed(b"v0:" + at.encode() + b":" + delivery.body, [given.removeprefix("v0=")], secrets):
        return Refused("X-Slack-Signature is missing or of another secret, time or body")
    return _check_time(at, how, now_ms) or Accepted(_member(delivery.body, "event_id"))


def _hmac(delivery: WebhookDelivery, how: Verification, secrets: Sequence[str], now_ms: int) -> Accepted | Refused:
    given = delivery.headers.get(how.header, "")
    at = delivery.headers.get(how.timestamp_header, "") if how.timestamp_header else ""
    signed = at.encode() + b"." + delivery.body if how.timestamp_header else delivery.body
    found = [given.removeprefix(how.prefix)] if given.startswith(how.prefix) else []
    if not _is_signed(signed, found, secrets, how.algorithm, how.encoding):
        return Refused(f"{how.header} is missing or of another secret or body")
    late = _check_time(at, how, now_ms) if how.timestamp_header else None
    return late or Accepted(_digest(signed))


def _token(delivery: WebhookDelivery, how: Verification, secrets: Sequence[str], now_ms: int) -> Accepted | Refused:
    given = delivery.headers.get(how.header, "")
    if how.header == "authorization" and given[:7].lower() == "bearer ":
        given = given[7:]
    # Compared as digests: the time would reveal the length of the token.
    if not _any_equal(
        [hashlib.sha256(given.encode()).digest()], [hashlib.sha256(s.encode()).digest() for s in secrets]
    ):
        return Refused(f"{how.header} is missing or holds another token")
    return Accepted(delivery.headers.get("idempotency-key", ""))


_CHECKS: Final[Mapping[str, Callable[..., Accepted | Refused]]] = {
    "github": _github,
    "stripe": _stripe,
    "slack": _slack,
    "hmac": _hmac,
    "token": _token,
}


def _is_signed(
    signed: bytes,
    given: Sequence[str],
    secrets: Sequence[str],
    algorithm: SignatureAlgorithm = "sha256",
    encoding: SignatureEncoding = "hex",
) -> bool:
    found = [_decode(text, encoding) for text in given[:MAX_SIGNATURES]]
    return _any_equal(found, [hmac.digest(secret.encode(), signed, algorithm) for secret in secrets])


def _any_equal(found: Sequence[bytes], wanted: Sequence[bytes]) -> bool:
    # A list, not a generator: timing must not reveal a match.
    return any([hmac.compare_digest(one, other) for one in found for other in wanted])  # noqa: C419


def _decode(text: str, encoding: SignatureEncoding) -> bytes:
    """Decodes the bytes of a signature; none if it has another encoding."""
    try:
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def _check_time(at: str, how: Verification, now_ms: int) -> Refused | None:
    if not _SECONDS.fullmatch(at) or abs(now_ms / 1000 - int(at)) > how.tolerance_s:
        return Refused(f"the signed time is more than {how.tolerance_s} s from now")
    return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _member(body: bytes, name: str) -> str:
    """The identity of an event: the provider's id in its body, else a digest of the body."""
    try:
        found = decode_value(body)
    except PayloadRefused:
        found = None
    value = found.get(name) if isinstance(found, dict) else None
    return f"{name}:{_digest(value.encode())}" if isinstance(value, str) and value else _digest(body)


def challenge_in(delivery: WebhookDelivery, how: Verification) -> str | None:
    """The challenge that a verified Slack delivery asks to be returned, once, when the address is registered there."""
    if how.form != "slack":
        return None
    try:
        found = decode_value(delivery.body)
    except PayloadRefused:
        return None
    if not isinstance(found, dict) or found.get("type") != "url_verification":
        return None
    challenge = found.get("challenge")
    return challenge if isinstance(challenge, str) and len(challenge) <= 1024 else None
