"""YAML 1.2 core schema: which plain words are null, booleans and numbers; everything else is text (LANGUAGE §1)."""

from __future__ import annotations

import math
import re
from typing import Final

from noetl_stream.playbook.yaml.nodes import Plain

_NULL: Final = frozenset(["", "~", "null", "Null", "NULL"])
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL: Final = re.compile(r"0o[0-7]+\Z")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE: Final = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+\Z")

LONGEST_NUMBER: Final = 40
"""Characters of a number's spelling; beyond it a number is out of range anyway, or absurd."""
_LARGEST: Final = 2**63


class NumberOutOfRange(ValueError):
    """The word is a number that JSON or a 64-bit integer cannot hold."""


def resolve(word: str) -> Plain:
    """The value of a plain (unquoted) scalar.

    Raises:
        NumberOutOfRange: for NaN, infinity, and numbers beyond 64 bits.
    """
    if word in _NULL:
        return None
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    if _NOT_FINITE.match(word):
        raise NumberOutOfRange("NaN and infinity have no form in JSON")
    whole = _DECIMAL.match(word) or _OCTAL.match(word) or _HEX.match(word)
    if not whole and not _FLOAT.match(word):
        return word
    if len(word) > LONGEST_NUMBER:
        raise NumberOutOfRange(f"this number has more than {LONGEST_NUMBER} characters")
    if whole:
        return _integer(word)
    number = float(word)
    if not math.isfinite(number):
        raise NumberOutOfRange("this number is larger than a 64-bit float can hold")
    return number


def has_leading_zero(word: str) -> bool:
    """Whether this plain word reads like a code (``007``) but is a number."""
    return _LEADING_ZERO.match(word) is not None


def _integer(word: str) -> int:
    base = 8 if word.startswith("0o") else 16 if word.startswith("0x") else 10
    number = int(word[2:] if base != 10 else word, base)
    if not -_LARGEST <= number < _LARGEST:
        raise NumberOutOfRange("this number does not fit into 64 bits")
    return number
