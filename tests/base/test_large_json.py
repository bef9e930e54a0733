"""Large JSON is decoded without the garbage collector, which would look through all of it again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec

LARGE = b"[" + b"[]," * 1_000_000 + b"[]]"


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """The collections that have begun."""
    found: list[str] = []

    def note(phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            found.append(phase)

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_nothing_is_collected_while_large_json_is_decoded(collections: list[str]) -> None:
    value = codec.decode_json(LARGE)
    assert len(collections) <= 1, "one is due once the value is there"
    assert len(value) == 1_000_001


@pytest.mark.parametrize("data", [LARGE, LARGE + b"]"])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_garbage_collector_is_restored_afterwards(data: bytes, is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()
    try:
        codec.decode_json(data)
    except PayloadRefused:
        assert data != LARGE
    finally:
        was_enabled = gc.isenabled()
        gc.enable()
    assert was_enabled == is_enabled
