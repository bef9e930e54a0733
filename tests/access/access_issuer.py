"""An OpenID Connect provider on loopback, with keys of every kind, and tokens good and bad."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "noetl-gateway"


def signing_key(algorithm: str, name: str = "ours") -> Any:
    """The private key of that name."""
    return _made_key("RSA" if algorithm[:2] in ("RS", "PS") else algorithm, name)


@cache  # making one takes a while
def _made_key(kind: str, name: str) -> Any:
    if kind == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ed25519.Ed25519PrivateKey.generate() if kind == "EdDSA" else ec.generate_private_key(ec.SECP256R1())


def public_jwk(algorithm: str, kid: str | None, name: str = "ours", **more: Any) -> dict[str, Any]:
    kinds: dict[str, Any] = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}
    public = signing_key(algorithm, name).public_key()
    found = {**kinds[algorithm[:2]].to_jwk(public, as_dict=True), "use": "sig", **more}
    return found if kid is None else {**found, "kid": kid}


class Issuer:
    """``paths_asked`` are those that were asked for; ``keys`` are shown; ``broken`` says what it answers instead."""

    def __init__(self) -> None:
        self.url = ""
        self.keys = [public_jwk("RS256", "rsa"), public_jwk("ES256", "ec"), public_jwk("EdDSA", "ed")]
        self.paths_asked: list[str] = []
        self.discovery: dict[str, Any] = {}
        self.broken: web.Response | None = None

    async def answer(self, request: web.Request) -> web.Response:
        self.paths_asked.append(request.path)
        if self.broken is not None:
            return web.Response(status=self.broken.status, body=self.broken.body, headers=self.broken.headers)
        if request.path == "/keys":
            return web.json_response({"keys": self.keys})
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | self.discovery)

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of an operator, valid for an hour. ``None`` removes a claim."""
        now_s = int(time.time())
        found = {"iss": self.url, "aud": AUDIENCE, "sub": "u-1", "iat": now_s, "exp": now_s + 3600}
        found |= {"noetl_role": "operator"} | changes
        return {name: value for name, value in found.items() if value is not None}

    def token(
        self, algorithm: str = "RS256", kid: str | None = "rsa", key: str = "ours", headers: Any = None, **changes: Any
    ) -> str:
        named = {"kid": kid} if kid is not None else {}
        return jwt.encode(
            self.claims(**changes),
            signing_key(algorithm, key),
            algorithm=algorithm,
            headers={**named, **(headers or {})},
        )

    def unsigned(self, algorithm: str, signature: bytes = b"", **changes: Any) -> str:
        """A token with this algorithm in its header."""
        parts = [{"alg": algorithm, "typ": "JWT", "kid": "rsa"}, self.claims(**changes)]
        return ".".join([*(encoded(json.dumps(part).encode()) for part in parts), encoded(signature)])

    def signed_with_public_key(self, **changes: Any) -> str:
        """HS256 with the public key as the secret: it deceives verifiers that trust the algorithm in the header."""
        pem = signing_key("RS256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        text = self.unsigned("HS256", **changes).rpartition(".")[0]
        return f"{text}.{encoded(hmac.digest(pem, text.encode(), 'sha256'))}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@asynccontextmanager
async def running_issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    application = web.Application()
    application.router.add_get("/{path:.*}", issuer.answer)
    async with TestServer(application) as server:
        issuer.url = str(server.make_url("")).rstrip("/")
        yield issuer
