"""Sealed objects: AES-256-GCM with a key of their execution, bound to the name under which they are stored (PROTOCOL
§7).

The key of an execution derives from the access key and its id. Servers, gateways and the local operator derive it; a
worker is given the keys of the executions whose results its command may read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol

from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.sealing.keys import ID_CHARACTERS, NONCE_BYTES, Key, KeyRing, open_bytes

MARK: Final = b"\0noetl sealed 1\0"
"""The start of a sealed object; then follow the key's id, the nonce, and the encrypted value with its tag.

No JSON or YAML begins like this: objects without it are older than sealing.
"""

PLAYBOOKS: Final = ""
"""The owner of playbooks on their way to a server; no execution has this id."""

RINGS_KEPT: Final = 20_000


class CannotUnseal(NoetlError):
    """The object is sealed with an unavailable key, or was modified."""


class ObjectKeys(Protocol):
    def ring(self, owner: str) -> KeyRing | None:
        """The keys of the objects of an execution, or of :data:`PLAYBOOKS`; ``None`` if they are not available."""
        ...


class _Derivation:
    """HKDF-Expand of RFC 5869 to its first block; the access key is random and needs no extraction.

    The HMAC of RFC 2104 with its keyed halves computed once: ``hmac.digest`` takes three times as long.
    """

    def __init__(self, access_key: bytes) -> None:
        block = access_key.ljust(sha256().block_size, b"\0")
        self._inner, self._outer = (sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))

    def __call__(self, owner: str) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(f"noetl objects\0{owner}\1".encode())
        outer.update(inner.digest())
        return outer.digest()


class DerivedKeys:
    """The :class:`ObjectKeys` of all executions, for holders of the access key."""

    def __init__(self, access: KeyRing) -> None:
        self._derive = {key.id: _Derivation(key.value) for key in access.all}
        self._rings: LruCache[str, KeyRing] = LruCache(RINGS_KEPT)

    def ring(self, owner: str) -> KeyRing:
        ring = self._rings.get(owner)
        if ring is None:
            current, *old = (Key(key_id, derive(owner)) for key_id, derive in self._derive.items())
            ring = KeyRing(current, tuple(old))
            self._rings.put(owner, ring)
        return ring


class GivenKeys:
    """The :class:`ObjectKeys` of the executions whose keys a command carries."""

    def __init__(self, keys: Mapping[str, Sequence[Key]]) -> None:
        self._keys = keys

    def ring(self, owner: str) -> KeyRing | None:
        given = self._keys.get(owner)
        return KeyRing(given[0], tuple(given[1:])) if given else None


def owner_of(name: str) -> str:
    """The execution that an object's name begins with, or :data:`PLAYBOOKS`."""
    owner, _, rest = name.partition("/")
    return PLAYBOOKS if owner == "playbook" and "/" not in rest else owner


def seal_object(keys: ObjectKeys, name: str, data: bytes | memoryview) -> bytes:
    """Seals ``data`` with the current key of the object's owner.

    Raises:
        CannotUnseal: no key of the owner is held here.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = _ring(keys, name).current
    nonce = os.urandom(NONCE_BYTES)
    return b"".join((MARK, key.id.encode(), nonce, AESGCM(key.value).encrypt(nonce, data, name.encode())))


def open_object(keys: ObjectKeys, name: str, stored: bytes) -> bytes:
    """Opens an object that :func:`seal_object` has sealed under ``name``; one that is older than sealing is returned
    unchanged.

    Raises:
        CannotUnseal: no key of the owner opens it, or it was modified.
    """
    if not stored.startswith(MARK):
        return stored
    at = len(MARK) + ID_CHARACTERS
    key_id = stored[len(MARK) : at].decode(errors="replace")
    key = _ring(keys, name).find(key_id)
    if key is None:
        hint = "add it to NOETL_ACCESS_KEY, after the current one"
        raise CannotUnseal(f"the object {name} is sealed with key {key_id}, which is not configured", hint=hint)
    data = open_bytes(key.value, memoryview(stored)[at:], name.encode())
    if data is None:
        raise CannotUnseal(f"the object {name} was modified in the store, or stored under another name")
    return data


def _ring(keys: ObjectKeys, name: str) -> KeyRing:
    ring = keys.ring(owner_of(name))
    if ring is None:
        raise CannotUnseal(f"the key of the object {name} was not given to this command")
    return ring
