"""The blocks of ``docs/explanation/formats.md``: what a plain step stores, as the code makes it. Run to write them.

A block follows its mark, ``<!-- stored: report -->``. Its lines break where a member or an element begins; what is
stored has neither line breaks nor the spaces before them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "explanation" / "formats.md"
BLOCK: Final = re.compile(r"<!-- stored: (\w+) -->\n\n```text\n.*?^```$", re.DOTALL | re.MULTILINE)
WIDTH: Final = 120

sys.path.append(str(ROOT / "benchmarks"))

from core_work import CHAIN, rehearse  # noqa: E402  benchmarks are no package
from noetl_stream.engine.replay import replay_entries  # noqa: E402
from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, digest_of_snapshot, encode_state  # noqa: E402
from noetl_stream.ports.stores.store import EntryRow, StoredEntry  # noqa: E402
from noetl_stream.protocol.subjects import command_subject, decided  # noqa: E402


def page() -> str:
    """The page with the blocks that the code gives now."""
    made = blocks()
    return BLOCK.sub(
        lambda found: f"<!-- stored: {found[1]} -->\n\n```text\n{made[found[1]]}```", PAGE.read_text(encoding="utf-8")
    )


def blocks() -> dict[str, str]:
    """By name: the second of three steps, whose report is folded in a tick of its own."""
    rehearsal = rehearse(CHAIN, 1)
    (report,), written = rehearsal.messages[2], rehearsal.written[2]
    (ordered,), (record,), (row,), (feed,) = (
        rehearsal.written[1].commands,
        written.records,
        written.executions,
        written.feed,
    )
    columns = {name: getattr(row, name) for name in row.__struct_fields__}
    return {
        "command": message(command_subject(ordered.pool, ordered.execution_id, ordered.command_id), ordered.body),
        "report": message(report.subject, report.body),
        "rows": "".join(map(journal_row, written.entries)),
        "execution": "".join(f"{name} {shown(value)}\n" for name, value in columns.items() if value is not None),
        "feed": f"partition {feed.partition}, tick {feed.tick}: {feed.entries.decode()}\n",
        "snapshot": snapshot([entry for tick in rehearsal.written[:3] for entry in tick.entries]),
        "record": message(decided(record.partition, record.execution_id), record.body),
    }


def snapshot(rows: Sequence[EntryRow]) -> str:
    """The state after these entries, which is short enough to be shown: most snapshots are of longer journals."""
    entries = [
        StoredEntry(**{name: getattr(row, name, None) for name in StoredEntry.__struct_fields__}) for row in rows
    ]
    state = replay_entries(rows[0].execution_id, entries)
    assert state is not None
    body = encode_state(state)
    place = f"execution_id {state.execution_id}, position {state.position}, format {SNAPSHOT_FORMAT}"
    digest = digest_of_snapshot(state.execution_id, state.position, body)
    return f"{place}\ndigest {digest}\nbody, {len(body)} bytes:\n{broken(body)}"


def message(subject: str, body: bytes) -> str:
    return f"{subject}\n{len(body)} bytes:\n{broken(body)}"


def journal_row(row: EntryRow) -> str:
    columns = {name: getattr(row, name) for name in row.__struct_fields__ if name not in ("data", "decisions")}
    line = ", ".join(f"{name} {value}" for name, value in columns.items() if value is not None)
    return f"{line}\ndata:\n{broken(row.data)}decisions:\n{broken(row.decisions or b'null')}"


def shown(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def broken(body: bytes) -> str:
    """The text over several lines, so that each is short.

    Raises:
        AssertionError: without the breaks it would not be the same.
    """
    lines = "".join(f"{line}\n" for line in _lines(json.loads(body), ""))
    assert re.sub(r"\n *", "", lines).encode() == body
    return lines


def _lines(value: Any, indent: str) -> Iterator[str]:
    whole = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if len(indent + whole) <= WIDTH or not isinstance(value, dict | list):
        yield indent + whole
        return
    is_object = isinstance(value, dict)
    members = (
        [(f"{json.dumps(name)}:", one) for name, one in value.items()] if is_object else [("", one) for one in value]
    )
    yield indent + ("{" if is_object else "[")
    for number, (name, one) in enumerate(members, start=1):
        first, *more = _lines(one, indent + "  ")
        lines = [f"{indent}  {name}{first.lstrip()}", *more]
        yield from lines[:-1]
        yield lines[-1] + ("," if number < len(members) else "")
    yield indent + ("}" if is_object else "]")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
