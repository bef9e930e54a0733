"""The TLS certificate of a connection's peer."""

from __future__ import annotations

import ssl
from asyncio import BaseTransport


def certificate_ends_ms(transport: BaseTransport | None) -> int | None:
    """Returns the time at which the peer's certificate ends, in ms since the epoch; ``None`` without TLS."""
    wrapped: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport is not None else None
    shown = wrapped.getpeercert(binary_form=True) if wrapped is not None else None
    if shown is None:
        return None
    from cryptography.x509 import load_der_x509_certificate  # connections without TLS start faster

    return int(load_der_x509_certificate(shown).not_valid_after_utc.timestamp() * 1000)
