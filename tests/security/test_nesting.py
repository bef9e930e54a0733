"""The bound on how deep values nest: exact, cheap, and at every door (LANGUAGE §12)."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pytest

import noetl_stream
from noetl_stream.errors import PayloadRefused, TooDeep
from noetl_stream.model.json import codec, values
from noetl_stream.model.json.values import MAX_DEPTH, cut_below, nests_deeper

TEXTS: Final = ["", "]", "[[[[", '"', "\\", '\\"[', "\\\\", '{"a":[', "é]", "a\nb"]


def random_value(dice: random.Random, levels: int) -> Any:
    if not levels or dice.random() < 0.1:
        return dice.choice([None, 1, *TEXTS])
    members = [random_value(dice, levels - 1) for _ in range(dice.randint(0, 3))]
    return members if dice.random() < 0.5 else {dice.choice(TEXTS) + str(n): one for n, one in enumerate(members)}


def depth_of(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize("seed", range(200))
def test_the_depth_counted_in_bytes_is_that_of_the_value_whatever_its_texts_hold(seed: int) -> None:
    dice = random.Random(seed)
    value = [[[random_value(dice, 7)]]]
    depth = depth_of(value)
    data = json.dumps(value, ensure_ascii=dice.random() < 0.5).encode()
    assert [nests_deeper(data, most) for most in range(3, depth + 5)] == [True] * (depth - 3) + [False] * 5


@pytest.mark.parametrize("seed", range(50))
def test_brackets_are_counted_in_pieces_between_which_other_threads_run(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def counts(steps: Sequence[int], initial: int) -> Iterator[int]:
        counted.append(len(steps))
        return accumulate(steps, initial=initial)

    monkeypatch.setattr(values, "accumulate", counts)
    monkeypatch.setattr(values, "_PIECE", 7)
    dice = random.Random(seed)
    value = [[[[random_value(dice, 7) for _ in range(20)]]]]
    depth, data = depth_of(value), json.dumps(value).encode()
    assert [nests_deeper(data, depth - 1), nests_deeper(data, depth)] == [True, False]
    assert max(counted) <= 7


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('["]",', ',"["]')])
@pytest.mark.parametrize("levels", [1, MAX_DEPTH, MAX_DEPTH + 1, 960, 100_000])
def test_a_chain_is_refused_from_one_level_above_the_bound(opening: str, closing: str, levels: int) -> None:
    data = (opening * levels + "1" + closing * levels).encode()
    assert nests_deeper(data) == (levels > MAX_DEPTH)
    if levels > MAX_DEPTH:
        with pytest.raises(TooDeep, match="nested more than 200 levels deep"):
            codec.decode_value(data)


def test_only_values_below_the_bound_are_cut() -> None:
    value = {"a": [1, {"b": [2]}], "c": 3}
    cut_below(value, 3)
    assert value == {"a": [1, {"b": "…"}], "c": 3}


def decoders() -> Mapping[str, Any]:
    return {name: found for name, found in vars(codec).items() if name.startswith("decode_") and callable(found)}


LAZY: Final = ("decode_as", "decode_entry", "decode_facts")
"""They decode later, or by another decoder."""


@pytest.mark.parametrize("name", [name for name in decoders() if name not in LAZY])
def test_no_decoder_of_the_codec_recurses_until_python_gives_up(name: str) -> None:
    decode = decoders()[name]
    for opening in (b"[", b'{"fact":', b'{"events":[', b'{"a":'):
        with pytest.raises(PayloadRefused):
            decode(opening * 100_000)


STORED: Final = {
    "cli/execution/batch.py",  # its own file of a batch
    "gateway/http/serving.py",  # an answer of this gateway
}
"""The modules at a door that decode what this project has written itself."""


def test_input_from_outside_is_decoded_with_the_bound() -> None:
    root = Path(noetl_stream.__file__).parent
    doors = ("cli", "gateway", "mcp", "playbook/trigger", "trigger", "worker/secrets")
    lenient = {
        str(path.relative_to(root))
        for door in doors
        for path in (root / door).rglob("*.py")
        if re.search(r"\b(codec\.)?decode_json\(", path.read_text(encoding="utf-8"))
    }
    assert lenient == STORED
