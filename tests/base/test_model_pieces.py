"""Long JSON in pieces is the same JSON, and no piece of it is long."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from noetl_stream.errors import PayloadRefused, TooDeep
from noetl_stream.model.json import codec, pieces

MANY = pieces.LONG_BYTES // 8
SHAPES: dict[str, Any] = {
    "a list": [[n, None, True, 1.5] for n in range(MANY)],
    "an object": {f"k{n}": {"n": n} for n in range(MANY)},
    "a text": 'é"\\\n\0' * 2 * MANY,
    "texts": ["x" * MANY] * 40,
    "a long member among short ones": [1, {"a": 2, "b": ["y", list(range(MANY))], "c": ()}, "z"],
    "keys that are numbers": {n: [n] for n in range(MANY)},
    "rows with texts like rows": [{"a": n, "b": '},{"a":1', "c": [{}, {}]} for n in range(MANY)],
    "texts like texts": ['","', ","] * MANY,
    "numbers": [7] * 4 * MANY,
    "numbers by key": {f"k{n}": n for n in range(2 * MANY)},
    "short ones after a long one": [["x" * MANY * 9], *range(MANY)],
    "nested lists": [[[[["x" * MANY * 9]]]], []],
}


@pytest.mark.parametrize("name", SHAPES)
def test_long_json_is_the_same_in_pieces(name: str) -> None:
    value, encoded = SHAPES[name], codec.encode(SHAPES[name])
    assert pieces.is_long(value)
    assert pieces.encode(value) == encoded
    assert pieces.decode(encoded) == codec.decode_json(encoded)


@pytest.mark.parametrize("name", SHAPES)
def test_no_piece_is_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, decode, sizes = codec.encode, codec.decode_json, [0]

    def encoding(value: object) -> bytes:
        sizes.append(len(encode(value)))
        return encode(value)

    def decoding(data: Any) -> Any:
        if not bytes(data).startswith(b'"'):  # a text is one piece: to decode it takes little more than to copy it
            sizes.append(len(data))
        return decode(data)

    monkeypatch.setattr(codec, "encode", encoding)
    monkeypatch.setattr(codec, "decode_json", decoding)
    pieces.decode(pieces.encode(SHAPES[name]))
    assert max(sizes) <= 6 * pieces.LONG_BYTES, "as many bytes as characters need when all are escaped"


@pytest.mark.parametrize(
    "value", [[7] * 4 * MANY, [{"a": 1}] * MANY, [[1]] * MANY, ["x"] * 2 * MANY, {f"k{n}": n for n in range(2 * MANY)}]
)
def test_short_members_are_decoded_many_at_once(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone takes more time, and far more memory, than it has bytes."""
    encoded, kinds, decode_as = codec.encode(value), [], codec.decode_as

    def decoding(kind: Any, data: bytes) -> Any:
        kinds.append((kind, len(data)))
        return decode_as(kind, data)

    monkeypatch.setattr(codec, "decode_as", decoding)
    assert pieces.decode(encoded) == value
    assert [size for _, size in kinds if size > 2 * pieces.LONG_BYTES] == []


@pytest.mark.parametrize("separator", [", ", ",\n  "])
def test_white_space_between_members_changes_nothing(separator: str) -> None:
    rows = [{"a": n, "b": [1, "x"]} for n in range(MANY)]
    text = "[ " + separator.join(codec.encode(row).decode() for row in rows) + " ]"
    assert pieces.decode(text.encode()) == rows


class Document(msgspec.Struct, omit_defaults=True, rename="camel"):
    first_value: Any = None
    raw: msgspec.Raw = msgspec.Raw(b"")
    more: list[Any] = []


def test_a_document_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, rows = codec.encode, [{"a": n, "b": [n]} for n in range(MANY)]
    short, long = Document({"a": 1}), Document(rows, msgspec.Raw(encode(["x" * MANY])), [Document(rows), None])
    expected, sizes = encode([short, {"k": long}]), [0]

    def encoding(value: object) -> bytes:
        if not isinstance(value, Document):  # the pieces of its fields are copied
            sizes.append(len(encode(value)))
        return encode(value)

    monkeypatch.setattr(codec, "encode", encoding)
    assert pieces.is_long(long) and not pieces.is_long(short)
    assert pieces.encode([short, {"k": long}]) == expected
    assert max(sizes) <= pieces.LONG_BYTES


def test_of_a_long_value_only_the_beginning_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"a": n} for n in range(MANY)]
    encoded, encode, sizes = codec.encode(rows), codec.encode, []

    def encoding(value: object) -> bytes:
        sizes.append(len(encode(value)))
        return encode(value)

    monkeypatch.setattr(codec, "encode", encoding)
    found = pieces.beginning(rows, 2_000)
    assert encoded.startswith(found) and len(found) >= 2_000
    assert sum(sizes) < 2 * pieces.LONG_BYTES
    assert pieces.beginning({"a": 1}, 2_000) == b'{"a":1}'


def test_invalid_json_from_outside_is_refused_in_the_words_of_the_parser() -> None:
    text = b"[" + b"1," * pieces.LONG_BYTES + b"x]"
    with pytest.raises(msgspec.DecodeError, match=f"byte {len(text) - 2}"):
        pieces.parse(text)
    assert pieces.parse(text.replace(b"x", b"1")) == [1] * (pieces.LONG_BYTES + 1)


def deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def some_value(random: Random, depth: int) -> Any:
    if depth == 0 or random.random() < 0.3:
        return random.choice([None, False, 7, -0.5, "é\0", "x" * random.randrange(300_000)])
    members = [some_value(random, depth - 1) for _ in range(random.choice([0, 1, 3, 6]))]
    return members if random.random() < 0.5 else {f"k{index}": member for index, member in enumerate(members)}


@pytest.mark.parametrize("seed", range(20))
def test_any_json_is_the_same_in_pieces(seed: int) -> None:
    value = some_value(Random(seed), 5)
    encoded = codec.encode(value)
    assert pieces.encode(value) == encoded
    assert pieces.decode(encoded) == value


def test_invalid_json_is_refused_with_the_same_error() -> None:
    long = ["x" * pieces.LONG_BYTES]
    with pytest.raises(PayloadRefused, match="not JSON"):
        pieces.encode([*long, object()])
    with pytest.raises(TooDeep):
        pieces.encode(deep(long, 2_000))


@pytest.mark.parametrize("member", ["1", '"x"', "{}", "[]", '"k":1'])
@pytest.mark.parametrize("end", [",", ",,", ", x", ",1]]", "", '"'])
def test_invalid_json_at_the_end_is_refused_too(member: str, end: str) -> None:
    before, after = ("{", "}") if ":" in member else ("[", "]")
    for number in range(8):
        members = ",".join([member] * (pieces.LONG_BYTES // (len(member) + 1) + number))
        assert pieces.decode(f"{before}{members}{after}".encode())
        with pytest.raises(PayloadRefused):
            pieces.decode(f"{before}{members}{end}".encode())
        if end:
            with pytest.raises(PayloadRefused):
                pieces.decode(f"{before}{members}{end}{after}".encode())


@pytest.mark.parametrize("value", [[{"id": n} for n in range(50_000)], {f"k{n}": [n] for n in range(50_000)}])
def test_a_value_of_many_members_is_encoded_in_few_calls(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To go through the members one by one takes many times as long as to encode them."""
    encode, calls = codec.encode, []
    monkeypatch.setattr(codec, "encode", lambda part: calls.append(part) or encode(part))
    assert pieces.encode(value) == encode(value)
    assert 1 < len(calls) < 100
