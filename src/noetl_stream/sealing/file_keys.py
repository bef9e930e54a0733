"""The keys of files kept by an operator, backups and archives: for signing, for trust, and for encryption.

A signature is Ed25519 (RFC 8032) over a text with the checksums of the files. The first line of the text names its kind
and the public key, so that the signature of an archive is never one of a backup.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from noetl_stream.errors import UsageError
from noetl_stream.sealing.keys import Unprinted, read_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PUBLIC_KEY_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")
"""The DER prefix of the 32 bytes of an Ed25519 public key (RFC 8410): the text of a key is a line of a PEM file."""

PUBLIC_KEY_BYTES: Final = len(PUBLIC_KEY_PREFIX) + 32

_SIGNED_WITH: Final = re.compile(rb"# noetl-stream (\w+), signed with ([A-Za-z0-9+/=]{60})\n")


class SignedText(NamedTuple):
    """A text and its signature; ``b""`` without a signing key."""

    text: bytes
    signature: bytes


class Signature(NamedTuple):
    """The result of checking a signature.

    Attributes:
        key: The public key that has signed the text; ``""`` without a signature.
        is_trusted: Whether the reader trusts that key.
        fault: The reason why it is not a signature of this text; ``""`` if it is one, or there is none.
    """

    key: str = ""
    is_trusted: bool = False
    fault: str = ""


class FileKeys(Unprinted, frozen=True):
    """The keys of one kind of files, as text.

    Attributes:
        signing_key: The private key that signs new files; ``""``: they are not signed.
        trusted_keys: Public keys that are trusted in addition to that of :attr:`signing_key`.
        recipients: Public keys of age to which new files are encrypted; none: they are not encrypted.
        identities: Private keys of age that decrypt files.
        accepts_unsigned: Whether the reader accepts files of anybody.
    """

    signing_key: str = ""
    trusted_keys: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    accepts_unsigned: bool = False

    @property
    def public_key(self) -> str:
        """Returns the public key of the signing key; ``""`` without one."""
        return public_key_of(self.signing_key) if self.signing_key else ""

    def sign(self, kind: str, text: str) -> SignedText:
        """Signs a text of this kind, which its first line then names."""
        if not self.signing_key:
            return SignedText(text.encode(), b"")
        signed = f"# noetl-stream {kind}, signed with {self.public_key}\n{text}".encode()
        return SignedText(signed, _private_key(self.signing_key).sign(signed))

    def check(self, kind: str, signed: SignedText) -> Signature:
        """Checks the signature and the kind of a text."""
        found = _SIGNED_WITH.match(signed.text)
        if found is None:
            return Signature(fault="it does not say who has signed it" if signed.signature else "")
        of_kind, key = found[1].decode(), found[2].decode()
        if of_kind != kind:
            return Signature(key, fault=f"it is the signature of another kind: {of_kind}")
        if not signed.signature:
            return Signature(key, fault="its signature is missing")
        if not _holds(key, signed):
            return Signature(key, fault="its signature is of another text")
        return Signature(key, key in (*self.trusted_keys, self.public_key))


def public_key_of(signing_key: str) -> str:
    """Returns the public key of a private one."""
    raw = _private_key(signing_key).public_key().public_bytes_raw()
    return base64.b64encode(PUBLIC_KEY_PREFIX + raw).decode()


def read_public_key(text: str, where: str) -> str:
    """Parses the public key of a signing key; raises :class:`~noetl_stream.errors.UsageError` that names ``where``."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found.startswith(PUBLIC_KEY_PREFIX) or len(found) != PUBLIC_KEY_BYTES:
        hint = "`noetl-stream backup keys` shows those that sign here: MCowBQYDK2VwAyEA…"
        raise UsageError(f"{where} is not the public key of a signer", hint=hint)
    return text


def _private_key(text: str) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(read_key(text, "the signing key").value)


def _holds(key: str, signed: SignedText) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(read_public_key(key, "it"))[len(PUBLIC_KEY_PREFIX) :]
        Ed25519PublicKey.from_public_bytes(raw).verify(signed.signature, signed.text)
    except (InvalidSignature, UsageError, ValueError):
        return False
    return True
