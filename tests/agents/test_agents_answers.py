"""What a tool answers is never longer than a model can hold, and all of it can be had, part by part."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from noetl_stream.errors import NoetlError, NotFound, PlaybookRefused, UsageError
from noetl_stream.mcp.answers import (
    MAX_BYTES,
    ROOM,
    ToolAnswer,
    error_document,
    list_answer,
    part_of,
    plain_object,
    size_of,
)
from noetl_stream.ports.operations.verbs import DocumentPage

LONG = "long " * 100_000
TEXT = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | TEXT,
    lambda inner: some.lists(inner, max_size=40) | some.dictionaries(TEXT, inner, max_size=40),
    max_leaves=60,
)


def whole(value: Any, pointer: str = "") -> Any:
    """A value, from as many answers as it takes."""
    parts, cursor = [], None
    while True:
        answer = part_of(value, pointer, cursor)
        assert size_of(plain_object(answer)) <= MAX_BYTES
        parts.append(filled(value, answer.data))
        cursor = answer.next
        if cursor is None:
            break
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], dict):
        return {key: member for part in parts for key, member in part.items()}
    return reduce(add, parts)


def filled(value: Any, shown: Any) -> Any:
    """What was shown, with what was cut from it."""
    if isinstance(shown, dict):
        if "$cut" in shown:
            return whole(value, shown["$cut"])
        return {key: filled(value, member) for key, member in shown.items()}
    return [filled(value, item) for item in shown] if isinstance(shown, list) else shown


@given(VALUES)
def test_a_short_answer_is_complete(value: Any) -> None:
    assert part_of(value) == ToolAnswer(value)


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        "ж" * 100_000,
        '"\\\n' * 60_000,
        list(range(100_000)),
        [{"name": "one", "text": LONG}, {"name": "two", "rows": [[LONG, 1], 2]}],
        {"id": "one", "rows": [{"n": n, "text": "x" * 300} for n in range(2000)], "error": {"message": LONG}},
        {f"key {n}": {"inner": "x" * 100} for n in range(5000)},
        {"a/b": {"~": {"": LONG}}, "": [LONG]},
        {"deep": {"deep": {"deep": {"deep": [{"deep": LONG}] * 3}}}},
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_long_answer_can_be_had_part_by_part(value: Any) -> None:
    assert whole(value) == value


def test_small_members_stay_complete_beside_long_ones() -> None:
    value = {"status": "failed", "result": {"rows": list(range(100_000))}, "error": {"kind": "http", "message": LONG}}
    data = part_of(value).data
    assert data["status"] == "failed"
    assert data["error"]["kind"] == "http"
    cut = data["error"]["message"]
    assert (cut["$cut"], cut["is"], cut["length"]) == ("/error/message", "text", len(LONG))
    assert LONG.startswith(cut["first"])
    assert data["result"]["rows"]["first"][:3] == [0, 1, 2]


@pytest.mark.parametrize("size", [700, 70_000])
def test_a_long_name_is_no_way_around_the_bound(size: int) -> None:
    value = {"n" * size + str(n): {"m" * size: LONG} for n in range(200)}
    for shown in (value, [value], {"inner": value}):
        assert size_of(plain_object(part_of(shown))) <= MAX_BYTES


@pytest.mark.parametrize(
    ("pointer", "hint"),
    [
        ("/c", "there are: a, b"),
        ("/a/2", "the list has 2 items"),
        ("/a/x", "the list has 2 items"),
        ("/b/0", "it is a"),
    ],
)
def test_an_unknown_pointer_is_answered_with_the_known_ones(pointer: str, hint: str) -> None:
    with pytest.raises(NotFound) as error:
        part_of({"a": [1, 2], "b": "text"}, pointer)
    assert hint in str(error.value.hint)


@pytest.mark.parametrize(
    ("pointer", "cursor"), [("a", None), ("", "x"), ("", "-1"), ("", "1"), ("/a", "3"), ("/a", "²")]
)
def test_a_wrong_pointer_or_cursor_is_refused(pointer: str, cursor: str | None) -> None:
    with pytest.raises(UsageError):
        part_of({"a": [1, 2]}, pointer, cursor)


async def test_a_list_has_as_many_items_as_there_is_room_for() -> None:
    async def read(limit: int) -> DocumentPage[Any]:
        return DocumentPage(["x" * 9000] * limit, str(limit))

    answer = await list_answer(read, 100)
    assert (len(answer.data["items"]), answer.next) == (3, "3")
    assert (await list_answer(read, 2)).next == "2"


async def test_one_item_that_is_too_long_is_cut() -> None:
    async def read(limit: int) -> DocumentPage[Any]:
        return DocumentPage([{"id": "one", "error": LONG}][:limit], "more")

    answer = await list_answer(read, 5)
    assert answer.next == "more"
    assert size_of(answer.data) <= ROOM


def test_an_error_is_bounded_too() -> None:
    refused = PlaybookRefused(LONG, [{"message": LONG, "line": 1}] * 300, hint=LONG)
    found = error_document(refused)
    assert size_of(found) <= MAX_BYTES
    assert found["kind"] == "playbook-refused"
    assert found["diagnostics"]["is"] == "list"
    assert error_document(NoetlError("a password")) == {
        "kind": "internal",
        "error": "it failed; the log has the details",
    }
