"""Bech32 (BIP 173) without its limit of length: the encoding of age's keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_CHARACTERS: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CHECKSUM_WORDS: Final = 6


def encode(prefix: str, data: bytes) -> str:
    """Writes ``data`` as lower-case Bech32."""
    words = _regrouped(data, 8, 5, padded=True)
    rest = _checksum([*_expanded(prefix), *words, *[0] * _CHECKSUM_WORDS]) ^ 1
    words += [rest >> 5 * (5 - at) & 31 for at in range(_CHECKSUM_WORDS)]
    return f"{prefix}1{''.join(_CHARACTERS[word] for word in words)}"


def decode(text: str) -> tuple[str, bytes]:
    """Reads the prefix and the data of a Bech32 text, in one case.

    Raises:
        ValueError: the text is not Bech32, or its checksum is wrong. The message shows nothing of it.
    """
    lower = text.lower()
    prefix, _, coded = lower.rpartition("1")
    if not prefix or text not in (lower, text.upper()) or len(coded) < _CHECKSUM_WORDS or not text.isascii():
        raise ValueError("not Bech32")
    words = [_CHARACTERS.find(one) for one in coded]
    if -1 in words or _checksum([*_expanded(prefix), *words]) != 1:
        raise ValueError("a character is wrong")
    return prefix, bytes(_regrouped(words[:-_CHECKSUM_WORDS], 5, 8, padded=False))


def _expanded(prefix: str) -> list[int]:
    return [*(ord(one) >> 5 for one in prefix), 0, *(ord(one) & 31 for one in prefix)]


def _checksum(words: Iterable[int]) -> int:
    found = 1
    for word in words:
        top = found >> 25
        found = (found & 0x1FFFFFF) << 5 ^ word
        for at, value in enumerate(_GENERATOR):
            found ^= value if top >> at & 1 else 0
    return found


def _regrouped(words: Iterable[int], bits: int, wanted: int, *, padded: bool) -> list[int]:
    """Converts words of ``bits`` into words of ``wanted`` bits."""
    held = held_bits = 0
    found = []
    for word in words:
        held, held_bits = held << bits | word, held_bits + bits
        while held_bits >= wanted:
            held_bits -= wanted
            found.append(held >> held_bits & (1 << wanted) - 1)
    rest = held & (1 << held_bits) - 1
    if padded and held_bits:
        found.append(rest << wanted - held_bits)
    elif not padded and (rest or held_bits >= bits):
        raise ValueError("bits are left over")
    return found
