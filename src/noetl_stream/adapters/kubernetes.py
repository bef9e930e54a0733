"""A key of a Kubernetes Secret, in which the pod keeps a text."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Final

import aiohttp

from noetl_stream.errors import Forbidden, Unreachable, UsageError

API: Final = "https://kubernetes.default.svc"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder with the token, the authority and the namespace of a pod's ServiceAccount."""

TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 2 << 20
"""A size that no Secret can exceed."""

REFUSED: Final = (401, 403)
NOT_FOUND: Final = 404
APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}


class SecretKey:
    """A text in a Secret of the pod's namespace.

    It is written by server-side apply: unlike a create, Kubernetes can permit that for one name. The account needs
    ``get``, ``create`` and ``patch`` of this Secret, and no other permission.

    Args:
        account: The folder of the service account, by default :data:`ACCOUNT`.
    """

    def __init__(self, secret: str, key: str, *, api: str = API, account: Path = ACCOUNT) -> None:
        self._secret, self._key, self._account = secret, key, account
        try:
            namespace = self._read("namespace")
            self._tls = ssl.create_default_context(cadata=self._read("ca.crt"))
        except (OSError, ssl.SSLError) as error:
            hint = "run it in a pod, with the token of its ServiceAccount mounted there"
            raise UsageError(f"{account} is not the account of a pod: {error}", hint=hint) from error
        self._url = f"{api}/api/v1/namespaces/{namespace}/secrets/{secret}"

    def _read(self, name: str) -> str:
        return (self._account / name).read_text().strip()

    async def read(self) -> str | None:
        """The text; ``None`` if the Secret or the key does not exist.

        Raises:
            Unreachable: the API does not answer.
            Forbidden: the account may not read this Secret.
        """
        status, answer = await self._call("GET")
        if status == NOT_FOUND:
            return None
        found = (answer.get("data") or {}).get(self._key)
        return None if found is None else b64decode(found).decode(errors="replace")

    async def write(self, text: str) -> None:
        """Creates the Secret with this text, or replaces the text in it. Errors: as for :meth:`read`."""
        wanted = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._secret},
            "data": {self._key: b64encode(text.encode()).decode()},
        }
        status, answer = await self._call("PATCH", wanted)
        if status == NOT_FOUND:
            raise self._unreachable(str(answer.get("message", status)))

    async def _call(self, method: str, wanted: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        query = {"fieldManager": "noetl-stream", "force": "true"} if wanted else {}
        headers = {"Authorization": f"Bearer {self._read('token')}", **(APPLY if wanted else {})}
        body = None if wanted is None else json.dumps(wanted)
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session,
                session.request(
                    method, self._url, params=query, data=body, headers=headers, ssl=self._tls, allow_redirects=False
                ) as answered,
            ):
                status, received = answered.status, bytearray()
                async for part in answered.content.iter_any():
                    received += part
                    if len(received) > MAX_ANSWER_BYTES:
                        raise ValueError(f"more than {MAX_ANSWER_BYTES} bytes")
                answer = json.loads(received)
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        if not isinstance(answer, dict) or (status >= 400 and status != NOT_FOUND):
            raise self._refusal(status, answer)
        return status, answer

    def _refusal(self, status: int, answer: Any) -> Forbidden | Unreachable:
        said = str(answer.get("message", "")) if isinstance(answer, dict) else ""
        if status in REFUSED:
            hint = f"allow it get, create and patch of the Secret {self._secret}"
            return Forbidden(f"Kubernetes refuses the ServiceAccount of this pod: {said or status}", hint=hint)
        return self._unreachable(said or f"status {status}")

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"cannot reach {self._url}: {why}")
