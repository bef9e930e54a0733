"""Records snapshots of the states of recorded journals: ``test_snapshot_histories.py`` reads those of every format.

    python tests/histories/snapshots/snapshot_records.py

Writes two files named by the format: ``.txt`` with what it consists of, and ``.jsonl`` with a snapshot a line, of each
execution of each recorded release, at some positions. Files of a format that was released are never written again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import inspect

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.replay import recorded_facts
from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, StoredState, digest_of_snapshot, encode_state
from noetl_stream.engine.state import Execution
from noetl_stream.model.limits import Limits
from noetl_stream.ports.stores.store import StoredEvent

FOLDER: Final = Path(__file__).parent
EVERY: Final = 20


def journals() -> Iterator[tuple[str, str, list[StoredEvent]]]:
    """Release, execution and journal of all that is recorded."""
    for file in sorted(FOLDER.parent.glob("*/journal.jsonl")):
        found: dict[str, list[StoredEvent]] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            execution_id, row["data"] = row.pop("execution_id"), json.dumps(row["data"]).encode()
            found.setdefault(execution_id, []).append(StoredEvent(**row))
        for execution_id, events in found.items():
            yield file.parent.name, execution_id, events


def states(execution_id: str, journal: list[StoredEvent]) -> Iterator[Execution]:
    """After each event."""
    state: Execution | None = None
    for recorded in recorded_facts(execution_id, journal):
        state = evolve(state, recorded, execution_id)
        assert state is not None
        yield state


def snapshots() -> Iterator[str]:
    for release, execution_id, journal in journals():
        for state in states(execution_id, journal):
            if state.position % EVERY == 0:
                body = encode_state(state)
                place = {"release": release, "execution_id": execution_id, "position": state.position}
                digest = digest_of_snapshot(execution_id, state.position, body)
                yield json.dumps({**place, "format": SNAPSHOT_FORMAT, "digest": digest, "body": body.decode()})


def form() -> list[str]:
    """What the format consists of: each struct, its fields and their types."""
    return sorted(_structs(inspect.type_info(StoredState), {}).values())


def _structs(kind: Any, found: dict[str, str]) -> dict[str, str]:
    """Facts and limits are left out: what journals say of them is read by every later version."""
    is_struct = isinstance(kind, inspect.StructType) and kind.tag is None and kind.cls is not Limits
    if is_struct and kind.cls.__name__ not in found:
        name = kind.cls.__name__
        found[name] = ""
        fields = ", ".join(f"{field.encode_name}: {_words(field.type)}" for field in kind.fields)
        found[name] = f"{name}{' as an array' * kind.array_like} ({fields})"
        for field in kind.fields:
            _structs(field.type, found)
    for part in _parts(kind):
        _structs(part, found)
    return found


def _parts(kind: Any) -> list[Any]:
    found: list[Any] = []
    for name in ("item_type", "key_type", "value_type", "item_types", "types", "fields"):
        part = getattr(kind, name, None)
        if part is not None and not isinstance(kind, inspect.StructType):
            found += [getattr(one, "type", one) for one in (part if isinstance(part, tuple) else (part,))]
    return found


def _words(kind: Any) -> str:
    name = kind.cls.__name__ if hasattr(kind, "cls") else type(kind).__name__
    values = sorted(map(str, getattr(kind, "values", ())))
    inner = [] if isinstance(kind, inspect.StructType) else [_words(part) for part in _parts(kind)]
    return name + (f"[{', '.join([*values, *inner])}]" if values or inner else "")


if __name__ == "__main__":
    for suffix, lines in ((".txt", form()), (".jsonl", list(snapshots()))):
        (FOLDER / f"{SNAPSHOT_FORMAT}{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"format {SNAPSHOT_FORMAT}: recorded\n")
