"""Files encrypted with age: what another implementation writes and reads, and what a changed file gives."""

from __future__ import annotations

import random
from io import BytesIO

import pyrage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.errors import UsageError
from noetl_stream.sealing import bech32
from noetl_stream.sealing.age import AgeReader, AgeWriter, new_identity, read_identity, read_recipient, recipient_of
from noetl_stream.sealing.chunk_reader import CHUNK_BYTES, buffered

SIZES = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 7)
IDENTITY, OTHER = new_identity(), new_identity()
RECIPIENTS = [recipient_of(IDENTITY)]
NO_PUBLIC_KEYS = ("", "age1hidden", "age1qqqqqqqq", "ssh-ed25519 AAAA", RECIPIENTS[0][:-1] + "!", IDENTITY)


def sample(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def encrypted(data: bytes, recipients: list[str], piece_bytes: int = 50_000) -> bytes:
    file = BytesIO()
    writer = AgeWriter(file, recipients)
    for at in range(0, len(data), piece_bytes):
        writer.write(data[at : at + piece_bytes])
    writer.close()
    return file.getvalue()


def decrypted(data: bytes, *identities: str) -> bytes:
    return buffered(AgeReader(BytesIO(data), len(data), identities, "the file")).read()


@pytest.mark.parametrize("size", SIZES)
def test_another_implementation_reads_what_is_written_and_writes_what_is_read(size: int) -> None:
    theirs = pyrage.x25519.Identity.from_str(IDENTITY)
    assert str(theirs.to_public()) == RECIPIENTS[0]
    assert pyrage.decrypt(encrypted(sample(size), RECIPIENTS), [theirs]) == sample(size)
    both = [pyrage.x25519.Recipient.from_str(recipient_of(OTHER)), theirs.to_public()]
    assert decrypted(pyrage.encrypt(sample(size), both), IDENTITY) == sample(size)


def test_each_recipient_opens_a_file_and_nobody_else() -> None:
    written = encrypted(b"rows", [recipient_of(IDENTITY), recipient_of(OTHER)])
    assert decrypted(written, OTHER) == decrypted(written, new_identity(), IDENTITY) == b"rows"
    with pytest.raises(UsageError, match="the file is encrypted to others: no identity here opens it") as refused:
        decrypted(written, new_identity())
    assert "NOETL_BACKUP_IDENTITY_FILE" in str(refused.value.hint)
    with pytest.raises(UsageError, match="the file is not encrypted with age"):
        decrypted(b"rows\n", IDENTITY)


@given(st.data())
def test_any_part_of_a_file_is_read_as_of_the_file_that_was_written(data: st.DataObject) -> None:
    plain = sample(4 * CHUNK_BYTES + 100)
    file = encrypted(plain, RECIPIENTS)
    reader = buffered(AgeReader(BytesIO(file), len(file), [IDENTITY], "the file"), 1_000)
    for _ in range(3):
        at = data.draw(st.integers(0, len(plain)))
        length = data.draw(st.integers(0, 3 * CHUNK_BYTES))
        reader.seek(at)
        assert reader.read(length) == plain[at : at + length]


@pytest.mark.parametrize("size", [1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5])
def test_a_file_that_was_changed_cut_off_or_continued_is_refused(size: int) -> None:
    file = encrypted(sample(size), RECIPIENTS)
    changed = [file[:at] for at in (0, 10, 120, len(file) - 1)]
    changed += [file[: -(size % CHUNK_BYTES or CHUNK_BYTES) - 16], file + b"x"]
    changed += [flipped(file, at) for at in (3, 30, 60, 120, 180, len(file) - 1)]
    for one in changed:
        with pytest.raises(UsageError, match=r"the file (was modified|is encrypted to others|is not encrypted)"):
            decrypted(one, IDENTITY)


def test_chunks_that_changed_places_are_refused() -> None:
    file = encrypted(sample(3 * CHUNK_BYTES), RECIPIENTS)
    sealed = CHUNK_BYTES + 16
    start = len(file) - 3 * sealed
    moved = file[:start] + file[start + sealed : start + 2 * sealed] + file[start : start + sealed] + file[-sealed:]
    with pytest.raises(UsageError, match="was modified or cut off"):
        decrypted(moved, IDENTITY)


def flipped(file: bytes, at: int) -> bytes:
    return file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :]


@pytest.mark.parametrize("text", NO_PUBLIC_KEYS, ids=range(len(NO_PUBLIC_KEYS)))
def test_a_text_that_is_no_public_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError, match=r"^NOETL_X is not a public key of age") as refused:
        read_recipient(text, "NOETL_X")
    assert not text or text not in str(refused.value)


@given(st.binary(max_size=40), st.integers(0, 200))
def test_one_changed_character_of_a_key_is_noticed(data: bytes, at: int) -> None:
    text = bech32.encode("age", data)
    assert bech32.decode(text) == bech32.decode(text.upper()) == ("age", data)
    at %= len(text)
    changed = text[:at] + ("q" if text[at] != "q" else "p") + text[at + 1 :]
    with pytest.raises(ValueError, match=r"Bech32|character"):
        bech32.decode(changed)
    assert len(read_identity(IDENTITY, "the key")) == 32
