"""What is encrypted opens with its key, name and version only; what is handed over opens for one receiver only."""

from __future__ import annotations

import base64

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.sealing.handover import CannotOpen, HandoverKey, Sealed, seal
from noetl_stream.sealing.keys import (
    CannotDecrypt,
    KeyRing,
    SealedEnvelope,
    decrypt,
    encrypt,
    key_ring,
    new_key,
    read_key,
)

KEY = read_key(new_key(), "a test")
OTHER = read_key(new_key(), "a test")
KEYS = KeyRing(KEY)
VALUE = b'{"password":"secret"}'


def test_a_value_is_read_back() -> None:
    assert decrypt(KEYS, "pg", 3, encrypt(KEYS, "pg", 3, VALUE)) == VALUE


def test_the_same_value_is_never_encrypted_the_same_way_twice() -> None:
    assert encrypt(KEYS, "pg", 1, VALUE).sealed != encrypt(KEYS, "pg", 1, VALUE).sealed


@pytest.mark.parametrize(("name", "version"), [("other", 3), ("pg", 2)])
def test_an_envelope_put_under_another_name_or_version_does_not_open(name: str, version: int) -> None:
    with pytest.raises(CannotDecrypt, match="was modified in the store"):
        decrypt(KEYS, name, version, encrypt(KEYS, "pg", 3, VALUE))


@pytest.mark.parametrize("place", [0, 12, -1])
def test_a_changed_envelope_does_not_open(place: int) -> None:
    envelope = encrypt(KEYS, "pg", 1, VALUE)
    sealed = bytearray(envelope.sealed)
    sealed[place] ^= 1
    with pytest.raises(CannotDecrypt, match=f"key {KEY.id} cannot decrypt it"):
        decrypt(KEYS, "pg", 1, SealedEnvelope(KEY.id, bytes(sealed)))


def test_an_empty_envelope_does_not_open() -> None:
    with pytest.raises(CannotDecrypt):
        decrypt(KEYS, "pg", 1, SealedEnvelope(KEY.id, b""))


def test_an_old_key_decrypts_but_does_not_encrypt() -> None:
    envelope = encrypt(KEYS, "pg", 1, VALUE)
    rotated = KeyRing(OTHER, (KEY,))
    assert decrypt(rotated, "pg", 1, envelope) == VALUE
    assert encrypt(rotated, "pg", 1, VALUE).key_id == OTHER.id


def test_a_missing_key_is_named_with_what_to_do() -> None:
    with pytest.raises(CannotDecrypt) as caught:
        decrypt(KeyRing(OTHER), "pg", 1, encrypt(KEYS, "pg", 1, VALUE))
    assert f"is encrypted with key {KEY.id}, which is not configured" in caught.value.message
    assert caught.value.hint is not None
    assert OTHER.id in caught.value.hint and "NOETL_CREDENTIAL_OLD_KEYS" in caught.value.hint


def test_a_key_has_the_same_name_in_both_alphabets_and_without_padding() -> None:
    raw = b"\xff" * 16 + b"\xfb" * 16
    texts = [base64.b64encode(raw), base64.urlsafe_b64encode(raw), base64.b64encode(raw).rstrip(b"=")]
    assert len({read_key(text.decode(), "a test") for text in texts}) == 1


@pytest.mark.parametrize("text", ["", "short", "!" * 44, base64.b64encode(b"x" * 31).decode()])
def test_an_invalid_key_is_rejected_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError, match=r"^MY_KEY is ") as caught:
        read_key(text, "MY_KEY")
    assert "openssl rand -base64 32" in str(caught.value)
    assert not text or text not in str(caught.value)


def test_keys_are_not_shown() -> None:
    assert repr(KEY) == f"Key(id='{KEY.id}')"


def test_the_first_key_of_a_ring_is_the_current_one() -> None:
    texts = [new_key(), new_key()]
    ring = key_ring(texts, "a test")
    assert ring is not None
    assert [ring.current, *ring.old] == [read_key(text, "a test") for text in texts]
    assert key_ring([], "a test") is None


def test_the_receiver_opens_what_was_sealed_to_its_key() -> None:
    question = HandoverKey()
    sealed = seal(VALUE, question.public_key, b"about this")
    assert question.open(sealed, b"about this") == VALUE
    assert VALUE not in b"".join(sealed)


def test_a_sealed_value_does_not_open_with_another_key_or_context() -> None:
    question = HandoverKey()
    sealed = seal(VALUE, question.public_key, b"about this")
    attempts = [
        (HandoverKey(), sealed, b"about this"),
        (question, sealed, b"about that"),
        (question, Sealed(HandoverKey().public_key, sealed.body), b"about this"),
        (question, Sealed(sealed.public_key, sealed.body[:-1]), b"about this"),
        (question, Sealed(b"no key", sealed.body), b"about this"),
    ]
    for asker, answer, about in attempts:
        with pytest.raises(CannotOpen):
            asker.open(answer, about)


@pytest.mark.parametrize("receiver", [b"", b"x" * 31, b"\0" * 32])
def test_sealing_to_an_invalid_key_fails(receiver: bytes) -> None:
    with pytest.raises(CannotOpen):
        seal(VALUE, receiver, b"")
