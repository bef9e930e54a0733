"""What is said of numbers that lose digits is bounded, whatever holds them."""

from __future__ import annotations

import tracemalloc

from noetl_stream.model.json.texts import MAX_POINTER_CHARACTERS, MAX_POINTERS, digits_lost, digits_lost_text

LOSSY = b"0.12345678901234567891"


def test_a_few_numbers_are_all_named() -> None:
    assert digits_lost(b'{"a/b": [1.5, %s], "~": {"c": %s}}' % (LOSSY, LOSSY)) == ["/a~1b/1", "/~0/c"]


def test_of_many_lossy_numbers_the_first_are_named() -> None:
    found = digits_lost(b"[" + b",".join([LOSSY] * 5_000) + b"]")
    assert found == [f"/{index}" for index in range(MAX_POINTERS)]
    assert digits_lost_text(found).endswith(": /0, /1, /2 and many more")


def test_a_long_key_is_not_repeated_for_each_number_below_it() -> None:
    key = b"k" * 500_000
    data = b'{"%s": [%s]}' % (key, b",".join([LOSSY] * 5_000))
    tracemalloc.start()
    found = digits_lost(data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {pointer[MAX_POINTER_CHARACTERS:] for pointer in found} == {"…"}
    assert most < 20 * len(data)
