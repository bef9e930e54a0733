"""Signatures: by whom, of what, for what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.sealing.signing import Signer

FIRST, SECOND = (read_key(new_key(), "a test") for _ in range(2))
SIGNER = Signer(KeyRing(FIRST), "a test")


def test_a_signature_holds_for_what_was_signed_alone() -> None:
    signature = SIGNER.sign("execution-1", b"{}")
    assert SIGNER.holds(signature, "execution-1", b"{}")
    assert not SIGNER.holds(signature, "execution-2", b"{}")
    assert not SIGNER.holds(signature, b"{}", "execution-1")
    assert not SIGNER.holds(signature, "execution-1")


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_no_two_lists_of_parts_have_the_same_signature(one: list[str], other: list[str]) -> None:
    assert SIGNER.holds(SIGNER.sign(*one), *other) == (one == other)


def test_a_signature_for_one_purpose_is_none_for_another() -> None:
    assert not Signer(KeyRing(FIRST), "another").holds(SIGNER.sign("a"), "a")


def test_what_an_old_key_signed_holds_until_the_key_goes() -> None:
    signature = SIGNER.sign("a")
    rotated = Signer(KeyRing(SECOND, (FIRST,)), "a test")
    assert rotated.holds(signature, "a")
    assert rotated.sign("a").startswith(SECOND.id)
    assert not Signer(KeyRing(SECOND), "a test").holds(signature, "a")


@given(st.text())
def test_any_other_text_is_no_signature(text: str) -> None:
    assert not SIGNER.holds(text, "a")
    assert not SIGNER.holds(f"{FIRST.id}.{text}", "a")
