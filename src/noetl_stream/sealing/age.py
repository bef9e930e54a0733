"""Files encrypted to public keys, in the format of age (https://age-encryption.org/v1): the program ``age`` opens them.

A file key, generated for the file, is sealed to each recipient (X25519, HKDF, ChaCha20-Poly1305) in a header that it
also authenticates. The content follows in chunks of 64 KiB, each sealed with its number and whether it is the last, so
that nothing can be omitted, moved or cut off, and any chunk can be read by itself. Not taken from a library: those for
Python encrypt files as a whole, where backups are written as a stream, and decrypt only from the beginning, where an
archive is read in parts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from noetl_stream.errors import UsageError
from noetl_stream.sealing import bech32
from noetl_stream.sealing.chunk_reader import CHUNK_BYTES, ChunkReader
from noetl_stream.sealing.keys import KEY_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

TAG_BYTES: Final = 16
FILE_KEY_BYTES: Final = 16
SEALED_BYTES: Final = CHUNK_BYTES + TAG_BYTES
MAX_HEADER_LINES: Final = 1_000
MAX_LINE_BYTES: Final = 1_024

_RECIPIENT: Final = "age"
_IDENTITY: Final = "age-secret-key-"
_VERSION: Final = b"age-encryption.org/v1\n"
_STANZA: Final = "X25519"
_SEAL_INFO: Final = b"age-encryption.org/v1/X25519"
_FIRST_NONCE: Final = bytes(12)


class WritableFile(Protocol):
    def write(self, data: bytes) -> int: ...


def new_identity() -> str:
    """Makes a private key, ``AGE-SECRET-KEY-1…``."""
    return bech32.encode(_IDENTITY, os.urandom(KEY_BYTES)).upper()


def recipient_of(identity: str) -> str:
    """Returns the public key of an identity, ``age1…``."""
    return bech32.encode(_RECIPIENT, _public_key(read_identity(identity, "the identity")))


def read_recipient(text: str, where: str) -> bytes:
    """Parses a public key; raises :class:`~noetl_stream.errors.UsageError` that names ``where`` it is from."""
    return _read(text, where, _RECIPIENT, "is not a public key of age: `noetl-stream backup make-key` makes one")


def read_identity(text: str, where: str) -> bytes:
    """Parses a private key; raises as :func:`read_recipient`."""
    return _read(text, where, _IDENTITY, "is not a private key of age")


def _read(text: str, where: str, prefix: str, fault: str) -> bytes:
    try:
        found, key = bech32.decode(text)
    except ValueError:
        found, key = "", b""
    if found != prefix or len(key) != KEY_BYTES:
        raise UsageError(f"{where} {fault}")
    return key


class AgeWriter:
    """Encrypts writes into a file, which :meth:`close` completes and leaves open.

    Args:
        recipients: Public keys; the owner of any matching private key can read the file.
    """

    def __init__(self, file: WritableFile, recipients: Sequence[str]) -> None:
        file_key, nonce = os.urandom(FILE_KEY_BYTES), os.urandom(TAG_BYTES)
        stanzas = (_sealed_key(file_key, read_recipient(one, "the recipient")) for one in recipients)
        head = _VERSION + b"".join(stanzas) + b"---"
        file.write(head + b" " + _encode(_header_mac(file_key, head)) + b"\n" + nonce)
        self._cipher = _content_cipher(file_key, nonce)
        self._file = file
        self._number = 0
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        whole = max(len(self._held) - 1, 0) // CHUNK_BYTES  # the last chunk is marked, so one is held back
        for at in range(0, whole * CHUNK_BYTES, CHUNK_BYTES):
            self._seal(bytes(self._held[at : at + CHUNK_BYTES]), is_last=False)
        del self._held[: whole * CHUNK_BYTES]
        return len(data)

    def flush(self) -> None:
        """Does nothing: a chunk is sealed once it is full."""

    def close(self) -> None:
        self._seal(bytes(self._held), is_last=True)

    def _seal(self, chunk: bytes, *, is_last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, is_last=is_last), chunk, None))
        self._number += 1


class AgeReader(ChunkReader):
    """Decrypts a file of :class:`AgeWriter`, or of ``age``. Sequential reads read the file sequentially.

    Args:
        size: The bytes of the encrypted file.
        where: The file's name, for errors.

    Raises:
        UsageError: no identity opens it, or it was modified; also raised by each read.
    """

    def __init__(self, file: BinaryIO, size: int, identities: Sequence[str], where: str) -> None:
        self._file = file
        self._where = where
        file_key, header_bytes = self._open_header([read_identity(one, "the identity") for one in identities])
        nonce = file.read(TAG_BYTES)
        self._cipher = _content_cipher(file_key, nonce)
        self._start = header_bytes + len(nonce)
        sealed = size - self._start
        self._chunks = -(-sealed // SEALED_BYTES)
        plain = sealed - self._chunks * TAG_BYTES
        last_bytes = plain - (self._chunks - 1) * CHUNK_BYTES
        if self._chunks < 1 or last_bytes < (self._chunks > 1):
            raise self._modified()
        super().__init__(plain)
        if not plain:
            self.load(0, 0)  # before the first read

    def load(self, first: int, last: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        start = self._start + first * SEALED_BYTES
        if self._file.tell() != start:
            self._file.seek(start)
        sealed = self._file.read((last - first + 1) * SEALED_BYTES)
        plain = []
        try:
            for number in range(first, last + 1):
                at = (number - first) * SEALED_BYTES
                nonce = _nonce(number, is_last=number == self._chunks - 1)
                plain.append(self._cipher.decrypt(nonce, sealed[at : at + SEALED_BYTES], None))
        except InvalidTag:
            raise self._modified() from None
        return b"".join(plain)

    def _open_header(self, identities: Sequence[bytes]) -> tuple[bytes, int]:
        """Returns the file key, and the length of the header."""
        if (head := self._line()) != _VERSION:
            raise UsageError(f"{self._where} is not encrypted with age")
        stanzas: list[tuple[list[str], bytes]] = []
        for _ in range(MAX_HEADER_LINES):
            line = self._line()
            if line.startswith(b"--- "):
                file_key = next(filter(None, (_opened_key(*one, identities) for one in stanzas)), None)
                if file_key is None:
                    variables = "NOETL_BACKUP_IDENTITY_FILE, NOETL_ARCHIVE_IDENTITY_FILE"
                    hint = f"name the private key of one of them: {variables}"
                    raise UsageError(f"{self._where} is encrypted to others: no identity here opens it", hint=hint)
                if not hmac.compare_digest(_decode(line[4:-1]), _header_mac(file_key, head + b"---")):
                    raise self._modified()
                return file_key, len(head) + len(line)
            head += line
            if line.startswith(b"-> "):
                stanzas.append((line[3:-1].decode(errors="replace").split(" "), b""))
            elif stanzas:
                stanzas[-1] = (stanzas[-1][0], stanzas[-1][1] + line[:-1])
        raise self._modified()

    def _line(self) -> bytes:
        line = self._file.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise self._modified()
        return line

    def _modified(self) -> UsageError:
        return UsageError(f"{self._where} was modified or cut off: it cannot be decrypted")


def _sealed_key(file_key: bytes, recipient: bytes) -> bytes:
    """Returns the lines of a header that hold the file key for one recipient."""
    secret = os.urandom(KEY_BYTES)
    share = _public_key(secret)
    cipher = _key_cipher(secret, recipient, share + recipient)
    return (
        f"-> {_STANZA} ".encode()
        + _encode(share)
        + b"\n"
        + _encode(cipher.encrypt(_FIRST_NONCE, file_key, None))
        + b"\n"
    )


def _opened_key(words: Sequence[str], body: bytes, identities: Sequence[bytes]) -> bytes | None:
    """Returns the file key of a stanza; ``None`` if none of the identities opens it."""
    from cryptography.exceptions import InvalidTag

    share, sealed = _decode(words[-1].encode()), _decode(body)
    if len(words) != 2 or words[0] != _STANZA or len(sealed) != FILE_KEY_BYTES + TAG_BYTES:
        return None
    for identity in identities:
        try:
            cipher = _key_cipher(identity, share, share + _public_key(identity))
            return cipher.decrypt(_FIRST_NONCE, sealed, None)
        except (InvalidTag, ValueError):  # another recipient's, or not a key
            continue
    return None


def _key_cipher(secret: bytes, public: bytes, salt: bytes) -> ChaCha20Poly1305:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    shared = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    return ChaCha20Poly1305(_derive(shared, salt, _SEAL_INFO))


def _public_key(secret: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _content_cipher(file_key: bytes, nonce: bytes) -> ChaCha20Poly1305:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(_derive(file_key, nonce, b"payload"))


def _header_mac(file_key: bytes, head: bytes) -> bytes:
    return hmac.digest(_derive(file_key, b"", b"header"), head, hashlib.sha256)


def _derive(secret: bytes, salt: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=salt, info=info).derive(secret)


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _encode(data: bytes) -> bytes:
    return base64.b64encode(data).rstrip(b"=")


def _decode(text: bytes) -> bytes:
    """Decodes base64 without padding; nothing if it is not in its only canonical form."""
    try:
        found = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except ValueError:
        return b""
    return found if _encode(found) == text else b""
