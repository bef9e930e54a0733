"""Storing credentials: encrypted here, so that no value ever passes NATS or reaches Postgres in the clear."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from noetl_stream.errors import NotFound, NotReady, PayloadRefused, UsageError
from noetl_stream.model import codec
from noetl_stream.model.credential import CredentialValue, check_secrets
from noetl_stream.playbook.diagnostics import did_you_mean
from noetl_stream.ports.credentials import CREDENTIAL_NAME, CredentialInfo, Credentials, NewCredential
from noetl_stream.sealing.keys import KEY_HINT, CannotDecrypt, KeyRing, SealedEnvelope, decrypt, encrypt

MAX_VALUE_BYTES: Final = 64 * 1024
TRIES: Final = 10
"""How often a write is tried against others that write the same name."""


class Rotated(NamedTuple):
    """Names now under the current key, and why the others could not be brought there."""

    names: list[str]
    problems: list[str]


class CredentialStorage:
    """The credential store as people use it. Without ``keys`` nothing can be stored."""

    def __init__(self, credentials: Credentials, keys: KeyRing | None) -> None:
        self._credentials = credentials
        self._keys = keys

    async def store(
        self, name: str, value: CredentialValue, *, kind: str = "", description: str = "", tags: tuple[str, ...] = ()
    ) -> CredentialInfo:
        """Stores the next version of ``name``; what is not given of ``kind``, … stays as it was.

        Raises:
            UsageError: the name or the value cannot be stored.
            NotReady: no key was given.
        """
        _check(name, value)
        keys = self._require_keys()
        plain = codec.encode(value)
        for _ in range(TRIES):
            present = await self._credentials.get(name)
            version = present.info.version + 1 if present else 1
            shown = (
                present.info
                if present
                else CredentialInfo(
                    name=name, kind="generic", description="", tags=(), version=0, key_id="", created_ms=0, updated_ms=0
                )
            )
            envelope = encrypt(keys, name, version, plain)
            new = NewCredential(
                name, kind or shown.kind, description or shown.description, tags or shown.tags, version, *envelope
            )
            if await self._credentials.put(new):
                return await self.show(name)
        raise UsageError(f"credential {name!r} is being written by others all the time", hint="try again")

    async def show(self, name: str) -> CredentialInfo:
        """What may be shown of one.

        Raises:
            NotFound: there is none of that name.
        """
        stored = await self._credentials.get(name)
        if stored is None:
            raise await self._unknown(name)
        return stored.info

    async def list_all(self) -> list[CredentialInfo]:
        """What may be shown of all, by name."""
        return await self._credentials.list_all()

    async def delete(self, name: str) -> None:
        """Forgets every trace of ``name`` in the store; workers may keep its value for their time.

        Raises:
            NotFound: there is none of that name.
        """
        if not await self._credentials.delete(name):
            raise await self._unknown(name)

    async def rotate(self) -> Rotated:
        """Encrypts everything that is under an older key with the current one. Doing it again is harmless.

        Raises:
            NotReady: no key was given.
        """
        keys = self._require_keys()
        rotated = Rotated([], [])
        for info, sealed in await self._credentials.read_all():
            if info.key_id == keys.current.id:
                continue
            try:
                plain = decrypt(keys, info.name, info.version, SealedEnvelope(info.key_id, sealed))
            except CannotDecrypt as problem:
                rotated.problems.append(str(problem))
                continue
            # One that was set anew meanwhile has been written with the current key, or is found the next time.
            if await self._credentials.reencrypt(
                info.name, info.version, *encrypt(keys, info.name, info.version, plain)
            ):
                rotated.names.append(info.name)
        return rotated

    def _require_keys(self) -> KeyRing:
        if self._keys is None:
            raise NotReady(
                "no key is configured to encrypt credentials with", hint=f"set NOETL_CREDENTIAL_KEY; {KEY_HINT}"
            )
        return self._keys

    async def _unknown(self, name: str) -> NotFound:
        names = [info.name for info in await self._credentials.list_all()]
        hint = did_you_mean(name, names) or "`noetl-stream credential list` shows those there are"
        return NotFound(f"no credential is stored as {name!r}", hint=hint)


def _check(name: str, value: Any) -> None:
    if CREDENTIAL_NAME.fullmatch(name) is None:
        hint = "1 to 128 letters, digits, `_`, `.` and `-`, no sign first"
        raise UsageError(f"{name!r} is no name for a credential", hint=hint)
    if len(codec.encode(value)) > MAX_VALUE_BYTES:
        raise UsageError(f"the value is larger than {MAX_VALUE_BYTES} bytes", hint="store what opens it, not the data")
    try:
        check_secrets(value, "the value")
    except PayloadRefused as error:
        raise UsageError(error.message) from None
