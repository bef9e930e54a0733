"""The cache that keeps what was used most recently."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.lru import LruCache


def test_the_least_recently_used_goes_first() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert list(cache.items()) == [("a", 1), ("c", 3)]
    cache.put("a", 4)
    cache.put("d", 5)
    assert list(cache.items()) == [("a", 4), ("d", 5)]


def test_asking_and_iterating_use_nothing() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert "a" in cache
    assert list(cache) == ["a", "b"]
    cache.put("c", 3)
    assert "a" not in cache


def test_dropped_and_cleared_entries_are_forgotten_and_make_room() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.drop("a")
    cache.drop("unknown")
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (None, 2, 3, 2)
    cache.clear()
    assert (cache.get("b"), len(cache)) == (None, 0)
    cache.put("d", 4)
    cache.put("e", 5)
    assert list(cache) == ["d", "e"]


def test_sizes_of_entries_are_summed() -> None:
    cache: LruCache[str, str] = LruCache(5, size_of=len)
    cache.put("a", "xx")
    cache.put("b", "xx")
    cache.put("a", "xxx")
    assert list(cache) == ["b", "a"]
    cache.put("c", "x")
    assert list(cache) == ["a", "c"]
    cache.put("d", "xxxxxx")
    assert list(cache) == []


operations = st.lists(st.tuples(st.sampled_from("gpd"), st.integers(0, 5), st.integers(1, 4)))


@given(st.integers(1, 8), operations)
def test_a_cache_keeps_the_most_recent_entries_that_fit(max_size: int, done: list[tuple[str, int, int]]) -> None:
    cache: LruCache[int, int] = LruCache(max_size, size_of=lambda value: value)
    expected: list[tuple[int, int]] = []
    for operation, key, value in done:
        known = dict(expected)
        if operation == "g":
            assert cache.get(key) == known.get(key)
            value = known.get(key, 0)
        elif operation == "p":
            cache.put(key, value)
        else:
            cache.drop(key)
        expected = [entry for entry in expected if entry[0] != key]
        if operation == "p" or (operation == "g" and key in known):
            expected.append((key, value))
        while sum(size for _, size in expected) > max_size:
            del expected[0]
        assert list(cache.items()) == expected
