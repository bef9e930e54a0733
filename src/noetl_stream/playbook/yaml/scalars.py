"""YAML 1.2 core schema: plain words that are null, booleans or numbers; the rest is text (LANGUAGE §1)."""

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

MAX_NUMBER_CHARS: Final = 40
"""Characters of a number's spelling. Longer numbers would be out of range anyway."""
_LARGEST: Final = 2**63


class NumberOutOfRange(ValueError):
    """A number that JSON or a 64-bit integer cannot hold."""


def resolve(word: str) -> Plain:
    """The value of a plain (unquoted) scalar.

    Raises:
        NumberOutOfRange: for NaN, infinity and numbers beyond 64 bits.
    """
    if word in _NULL:
        return None
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    if _NOT_FINITE.match(word):
        raise NumberOutOfRange("JSON has no NaN or infinity")
    whole = _DECIMAL.match(word) or _OCTAL.match(word) or _HEX.match(word)
    if not whole and not _FLOAT.match(word):
        return word
    if len(word) > MAX_NUMBER_CHARS:
        raise NumberOutOfRange(f"number longer than {MAX_NUMBER_CHARS} characters")
    if whole:
        return _integer(word)
    number = float(word)
    if not math.isfinite(number):
        raise NumberOutOfRange("number too large for a 64-bit float")
    return number


def has_leading_zero(word: str) -> bool:
    """Whether a plain word looks like a code (``007``) but is a number."""
    return _LEADING_ZERO.match(word) is not None


def _integer(word: str) -> int:
    base = 8 if word.startswith("0o") else 16 if word.startswith("0x") else 10
    number = int(word[2:] if base != 10 else word, base)
    if not -_LARGEST <= number < _LARGEST:
        raise NumberOutOfRange("number too large for a 64-bit integer")
    return number
