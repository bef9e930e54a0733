"""Whether patches and reads of one execution's ``ctx`` have a legal order, in the way of Elle: a graph of what must
have come before what has no cycle.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from noetl_testkit.history.lines import BadHistory, Line

Edges = dict[int, dict[int, str]]


class Operation(NamedTuple):
    """A patch or a read.

    Attributes:
        ended: ``inf`` for a patch whose answer is unknown.
        writes: By key; of a patch.
        sees: By key; of a read, which sees all keys.
        position: Of an accepted patch, if the answer says it: patches of an execution follow each other by it.
    """

    began: float
    ended: float
    lines: Sequence[Line]
    writes: Mapping[str, Any] = {}
    sees: Mapping[str, Any] | None = None
    position: int | None = None
    is_refused: bool = False


def register_problems(operations: Sequence[Operation]) -> Iterator[tuple[str, list[Line]]]:
    """What no order of these explains, and the lines that prove it.

    Raises:
        BadHistory: a value of a key is written twice, so that a read does not say which patch it sees.
    """
    writers: dict[tuple[str, str], int] = {}
    for at, one in enumerate(operations):
        for written in ((key, _text(value)) for key, value in one.writes.items()):
            if writers.setdefault(written, at) != at:
                raise BadHistory(
                    f"line {one.lines[0].number}: a patch writes a value of {written[0]} for a second time"
                )
    for read in operations:
        for key in sorted({key for key, _ in writers} & (read.sees or {}).keys()):
            writer = writers.get((key, _text((read.sees or {})[key])))
            if writer is None:
                yield f"a read sees a value of {key} that nobody wrote", [*read.lines]
            elif operations[writer].is_refused:
                yield f"a read sees a value of {key} whose patch was refused", [*operations[writer].lines, *read.lines]
    edges = _edges(operations, writers)
    if cycle := _shortest_cycle(edges):
        named = [_name(operations[one]) for one in cycle]
        whys = [edges[one][after] for one, after in pairwise(cycle)]
        told = [f"{one} {why} {after}" for (one, after), why in zip(pairwise(named), whys, strict=True)]
        yield f"no order explains that {', '.join(told)}", [line for one in cycle[1:] for line in operations[one].lines]


def _edges(operations: Sequence[Operation], writers: Mapping[tuple[str, str], int]) -> Edges:
    """What must have come before what, and why: later reasons, which say more, replace earlier ones."""
    edges: Edges = defaultdict(dict)
    taken = [at for at, one in enumerate(operations) if not one.is_refused]
    for one in taken:
        for other in taken:
            if operations[one].ended < operations[other].began:
                edges[one][other] = "was answered before"
    placed = sorted((at for at in taken if operations[at].position is not None), key=lambda at: _place(operations[at]))
    for one, other in pairwise(placed):
        edges[one][other] = "stands before"
    for key in sorted({key for key, _ in writers}):
        writing = [at for at in taken if key in operations[at].writes]
        for reader in (at for at in taken if operations[at].sees is not None):
            _see(edges, operations, writing, reader, key)
    return edges


def _see(edges: Edges, operations: Sequence[Operation], writing: Sequence[int], reader: int, key: str) -> None:
    """What a read says of the patches of a key: it follows the one it sees, and precedes those after that one."""
    seen = operations[reader].sees or {}
    if key not in seen:
        after = [at for at in writing if operations[at].ended < float("inf")]
    else:
        found = [at for at in writing if operations[at].writes[key] == seen[key]]
        for writer in found:
            edges[writer][reader] = "is seen by"
        known = [operations[at].position for at in found]
        place = known[0] if known else None
        after = [] if place is None else [at for at in writing if _place(operations[at]) > place]
    for later in after:
        edges[reader][later] = "does not see"


def _place(operation: Operation) -> int:
    return -1 if operation.position is None else operation.position


def _shortest_cycle(edges: Edges) -> list[int]:
    """Its members, the first again at the end; empty if there is none."""
    left = {one: set(after) for one, after in edges.items()}
    while leaves := {one for one, after in left.items() if not after & left.keys()}:
        left = {one: after for one, after in left.items() if one not in leaves}
    found = [path for one in left if (path := _way_back(left, one))]
    return min(found, key=len, default=[])


def _way_back(edges: Mapping[int, set[int]], start: int) -> list[int]:
    before: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        one = waiting.popleft()
        for after in sorted(edges.get(one, ())):
            if after == start:
                path = [start, one]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return path[::-1]
            if after not in before:
                before[after] = one
                waiting.append(after)
    return []


def _name(operation: Operation) -> str:
    return f"{'the read' if operation.sees is not None else 'the patch'} of line {operation.lines[0].number}"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
