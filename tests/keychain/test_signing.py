"""Signatures: by whom, of what, for what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.sealing.signing import Signer

FIRST, SECOND = (read_key(new_key(), "a test") for _ in range(2))
SIGNER = Signer(KeyRing(FIRST), "a test")


def test_a_signature_holds_for_what_was_signed_alone() -> None:
    signature = SIGNER.sign("execution-1", "request-1", body=b"{}")
    assert SIGNER.holds(signature, "execution-1", "request-1", body=b"{}")
    assert not SIGNER.holds(signature, "execution-2", "request-1", body=b"{}")
    assert not SIGNER.holds(signature, "request-1", "execution-1", body=b"{}")
    assert not SIGNER.holds(signature, "execution-1", "request-1", body=b"[]")
    assert not SIGNER.holds(signature, "execution-1", body=b"request-1\0{}")


def test_no_signature_holds_for_a_name_with_a_separator_in_it() -> None:
    assert not SIGNER.holds(SIGNER.sign("", "", body=b"a\0"), "", "\0a")
    assert not SIGNER.holds(SIGNER.sign("a", "b", "c"), "a\0b", "c", body=b"")
    assert not SIGNER.holds(SIGNER.sign("a\0b"), "a\0b")


SHORT = st.text("ab\0", max_size=3)
NAMES = st.lists(st.text("ab", max_size=3), max_size=4)


@given(NAMES, SHORT, st.lists(SHORT, max_size=4), SHORT)
def test_no_other_names_and_body_have_the_same_signature(
    one: list[str], body: str, other: list[str], more: str
) -> None:
    signature = SIGNER.sign(*one, body=body.encode())
    assert SIGNER.holds(signature, *other, body=more.encode()) == ((one, body) == (other, more))


def test_a_signature_for_one_purpose_is_none_for_another() -> None:
    assert not Signer(KeyRing(FIRST), "another").holds(SIGNER.sign("a"), "a")


def test_a_signature_by_an_old_key_is_valid_until_the_key_is_removed() -> None:
    signature = SIGNER.sign("a")
    rotated = Signer(KeyRing(SECOND, (FIRST,)), "a test")
    assert rotated.holds(signature, "a")
    assert rotated.sign("a").startswith(SECOND.id)
    assert not Signer(KeyRing(SECOND), "a test").holds(signature, "a")


@given(st.text())
def test_any_other_text_is_no_signature(text: str) -> None:
    assert not SIGNER.holds(text, "a")
    assert not SIGNER.holds(f"{FIRST.id}.{text}", "a")
