"""Signed requests: gateways and the local operator sign them, servers verify them (PROTOCOL §7 *Who says it*)."""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.model.messages import ClientMessage
from noetl_stream.sealing.keys import KeyRing
from noetl_stream.sealing.signing import Signer


class RequestSigner:
    """Signs the bytes of a fact together with the ids of its execution and request."""

    def __init__(self, access_keys: KeyRing) -> None:
        self._signer = Signer(access_keys, "request")

    def encode(self, request: ClientMessage) -> bytes:
        """The request with its signature, as it is published.

        Raises:
            PayloadRefused: JSON cannot represent it.
        """
        fact = codec.encode(request.fact)
        signature = self._signer.sign(request.execution_id, request.request_id, body=fact)
        return codec.encode(replace(request, signature=signature))

    def is_signed(self, body: bytes) -> bool:
        """Whether these bytes are a request signed with the access key."""
        try:
            request = codec.decode_signed_request(body)
        except PayloadRefused:
            return False
        fact = bytes(request.fact)
        return self._signer.holds(request.signature, request.execution_id, request.request_id, body=fact)
