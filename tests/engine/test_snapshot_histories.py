"""Snapshots of every format are read as they were written, or not at all (PROTOCOL §5 *Snapshots*).

``tests/histories/snapshots/snapshot_records.py`` has recorded them, from the journals of earlier releases.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, SnapshotUnusable, read_snapshot

FOLDER = Path(__file__).resolve().parents[1] / "histories" / "snapshots"
sys.path.append(str(FOLDER))

from snapshot_records import form, journals, states  # noqa: E402  histories are no package


class Recorded(NamedTuple):
    release: str
    execution_id: str
    position: int
    format: int
    digest: str
    body: bytes


def recorded(file: Path) -> Iterator[Recorded]:
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Recorded(**row | {"body": row["body"].encode()})


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.jsonl")), ids=lambda file: f"format {file.stem}")
def test_a_recorded_snapshot_is_the_state_of_its_journal_or_is_not_read(file: Path) -> None:
    wanted = {(row.release, row.execution_id, row.position): row for row in recorded(file)}
    read = 0
    for release, execution_id, journal in journals():
        for state in states(execution_id, journal):
            row = wanted.get((release, execution_id, state.position))
            if row is not None and row.format == SNAPSHOT_FORMAT:
                assert read_snapshot(row) == state
                read += 1
            elif row is not None:
                with pytest.raises(SnapshotUnusable, match="it has format"):
                    read_snapshot(row)
                read += 1
    assert read == len(wanted) > 0


def test_another_form_of_the_state_is_another_format() -> None:
    """If this fails, snapshots no longer say what they said: raise ``SNAPSHOT_FORMAT``, and record the new one. A
    format that no release has written yet may change: record it again.
    """
    assert form() == (FOLDER / f"{SNAPSHOT_FORMAT}.txt").read_text(encoding="utf-8").splitlines()
