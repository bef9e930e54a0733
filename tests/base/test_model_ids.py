"""Ids: the partition of an execution, and times as they are shown."""

from __future__ import annotations

import pytest

from noetl_stream.model.ids import partition_of
from noetl_stream.model.outcome import parse_shown_time, shown_time

EXECUTIONS = ["", "a", "execution-1", "0193540b-0000-7000-8000-000000000000", "é"]


def fnv_1a(text: str) -> int:
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


@pytest.mark.parametrize("partitions", [1, 12, 32, 100])
def test_the_partition_is_the_hash_of_the_id_modulo_their_number(partitions: int) -> None:
    assert [partition_of(one, partitions) for one in EXECUTIONS] == [fnv_1a(one) % partitions for one in EXECUTIONS]


@pytest.mark.parametrize("unix_ms", [0, 1, 999, 1_800_000_000_000, 1_800_000_000_123, 253_402_300_799_999])
def test_a_time_shown_to_the_millisecond_is_read_again(unix_ms: int) -> None:
    assert parse_shown_time(shown_time(unix_ms)) == unix_ms


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2027-01-15T08:00:00Z", "2027-01-15T08:00:00.123+01:00", "2027-01-15T08:00:00.1234Z"],
)
def test_a_time_in_another_form_is_not_read(text: str) -> None:
    with pytest.raises(ValueError):
        parse_shown_time(text)
