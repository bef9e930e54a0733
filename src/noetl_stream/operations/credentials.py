"""Credentials, directly on Postgres. They are encrypted here: no value passes NATS or reaches Postgres unencrypted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from noetl_stream.errors import NotFound, NotReady, PayloadRefused, UsageError
from noetl_stream.model.json import codec
from noetl_stream.model.secrets.credential import CREDENTIAL_NAME, CredentialValue, check_secrets
from noetl_stream.playbook.suggestions import did_you_mean
from noetl_stream.ports.operations.access import CredentialDocument, RotatedDocument
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.credentials import CredentialInfo, Credentials, NewCredential
from noetl_stream.sealing.keys import KEY_HINT, CannotDecrypt, KeyRing, SealedEnvelope, decrypt, encrypt

MAX_VALUE_BYTES: Final = 64 * 1024
FORMER_AT_ONCE: Final = 500
TRIES: Final = 10
"""The number of attempts to write a name against concurrent writers."""

_NEW: Final = CredentialInfo(
    name="", kind="generic", description="", tags=(), version=0, key_id="", created_ms=0, updated_ms=0
)


class DirectCredentials:
    """:class:`~noetl_stream.ports.operations.access.CredentialStore`, where each method is described.

    Args:
        keys: The keys that encrypt; without them nothing can be stored.
    """

    def __init__(self, credentials: Credentials, keys: KeyRing | None) -> None:
        self._credentials = credentials
        self._keys = keys

    async def put(
        self,
        name: str,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        *,
        reason: str = "",
    ) -> CredentialDocument:
        _check(name, value)
        keys = self._require_keys()
        plain = codec.encode(value)
        for _ in range(TRIES):
            stored = await self._credentials.get(name)
            info = stored.info if stored is not None else _NEW
            version = info.version + 1
            new = NewCredential(
                name,
                kind or info.kind,
                description or info.description,
                tuple(tags) or info.tags,
                version,
                *encrypt(keys, name, version, plain),
            )
            if await self._credentials.put(new):
                return await self.get(name)
        raise UsageError(f"credential {name!r} is being written by others", hint="try again")

    async def list_all(self) -> list[CredentialDocument]:
        return [document_from(CredentialDocument, info) for info in await self._credentials.list_all()]

    async def get(self, name: str) -> CredentialDocument:
        stored = await self._credentials.get(name)
        if stored is None:
            raise await self._not_found(name)
        return document_from(CredentialDocument, stored.info)

    async def delete(self, name: str, by: str, reason: str = "") -> None:
        if not await self._credentials.delete(name):
            raise await self._not_found(name)

    async def rotate(self, by: str, reason: str = "") -> RotatedDocument:
        keys = self._require_keys()
        rotated = RotatedDocument([], [])
        for stored in await self._credentials.read_all():
            info = stored.info
            if info.key_id == keys.current.id:
                continue
            try:
                plain = decrypt(keys, info.name, info.version, SealedEnvelope(info.key_id, stored.sealed))
            except CannotDecrypt as problem:
                rotated.problems.append(str(problem))
                continue
            # A value written meanwhile is already under the current key, or is found the next time.
            envelope = encrypt(keys, info.name, info.version, plain)
            if await self._credentials.reencrypt(info.name, info.version, *envelope):
                rotated.rotated.append(info.name)
        rotated.problems.extend(await self._rotate_former(keys))
        return rotated

    async def _rotate_former(self, keys: KeyRing) -> Collection[str]:
        """Encrypts former values with the current key; returns the problems."""
        problems: dict[str, None] = {}
        page = await self._credentials.read_former(0, FORMER_AT_ONCE)
        while page:
            for former in page:
                name, version, key_id, sealed = former.value
                if key_id == keys.current.id:
                    continue
                try:
                    plain = decrypt(keys, name, version, SealedEnvelope(key_id, sealed))
                except CannotDecrypt as problem:
                    problems[f"a former value: {problem}"] = None
                    continue
                await self._credentials.reencrypt_former(former.number, *encrypt(keys, name, version, plain))
            page = await self._credentials.read_former(page[-1].number, FORMER_AT_ONCE)
        return problems

    def _require_keys(self) -> KeyRing:
        if self._keys is None:
            raise NotReady("no key to encrypt credentials with", hint=f"set NOETL_CREDENTIAL_KEY; {KEY_HINT}")
        return self._keys

    async def _not_found(self, name: str) -> NotFound:
        names = [info.name for info in await self._credentials.list_all()]
        hint = did_you_mean(name, names) or "list them: `noetl-stream credential list`"
        return NotFound(f"credential {name!r} not found", hint=hint)


def _check(name: str, value: Any) -> None:
    if CREDENTIAL_NAME.fullmatch(name) is None:
        hint = "use 1 to 128 letters, digits, `_`, `.` and `-`, beginning with a letter, a digit or `_`"
        raise UsageError(f"{name!r} is not a valid credential name", hint=hint)
    if len(codec.encode(value)) > MAX_VALUE_BYTES:
        raise UsageError(f"the value is larger than {MAX_VALUE_BYTES} bytes", hint="store a secret, not data")
    try:
        check_secrets(value, "the value")
    except PayloadRefused as error:
        raise UsageError(error.message) from None
