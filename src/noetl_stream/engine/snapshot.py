"""Snapshots: the bytes of a state, from which an execution is loaded without its whole journal (PROTOCOL §5).

A state shares values: a step run sees the ``ctx`` of its time, which differs from the present one in a few keys. The
bytes
therefore hold each value once, and every ``ctx`` and ``steps`` as indexes into tables. A decoded state shares values in
the same way, because decisions compare them by identity.

A snapshot is a cache: for any fault, :func:`read_snapshot` raises ``SnapshotUnusable``, and the journal is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, Final, Protocol, get_type_hints

import msgspec

from noetl_stream.engine.state import Chosen, Evaluation, Execution, LoopState, StepRun
from noetl_stream.errors import NoetlError
from noetl_stream.model.events import Path, SharedValue
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Outcome, Payload, StepValue

SNAPSHOT_FORMAT: Final = 2
"""The format of snapshots. Increase it whenever the content or form of a state changes; other formats are not read."""

MAX_SNAPSHOT_BYTES: Final = 16 * 1024 * 1024
"""The largest snapshot: a larger state is replayed from its journal."""

VERIFIED_SHARE: Final = 100
"""One in this many loads of a snapshot is compared with a replay."""


class SnapshotUnusable(NoetlError):
    """A snapshot is unusable: the journal is replayed instead."""


class StoredSnapshot(Protocol):
    """A stored snapshot. ``digest`` is the :func:`digest_of_snapshot` of the other fields."""

    @property
    def execution_id(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def format(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def body(self) -> bytes: ...


def encode_state(state: Execution) -> bytes:
    """The bytes of a state, without the values of references, which are loaded again.

    Raises:
        PayloadRefused: JSON cannot represent a value.
    """
    tables = _Writer()
    form = tables.execution(state)
    values, outcomes, results = tables.values.rows, tables.outcomes.rows, tables.results.rows
    return codec.encode(StoredState(values, outcomes, results, tables.ctxs.rows, tables.steps.rows, form))


def decode_state(body: bytes) -> Execution:
    """Decodes the bytes of a state.

    Raises:
        SnapshotUnusable: the bytes are not those of a state.
    """
    try:
        found = _decoder().decode(body)
        return _Reader(found).execution(found.state)
    except (msgspec.DecodeError, LookupError, ValueError, RecursionError) as error:
        raise SnapshotUnusable(f"it does not decode: {error}") from None


def read_snapshot(row: StoredSnapshot) -> Execution:
    """The state in a snapshot.

    Raises:
        SnapshotUnusable: it has another format, is damaged, or is of another execution or position.
    """
    if row.format != SNAPSHOT_FORMAT:
        raise SnapshotUnusable(f"it has format {row.format}, this version reads {SNAPSHOT_FORMAT}")
    if row.digest != digest_of_snapshot(row.execution_id, row.position, row.body):
        raise SnapshotUnusable("its digest is another")
    state = decode_state(row.body)
    if (state.execution_id, state.position) != (row.execution_id, row.position):
        raise SnapshotUnusable(f"it is of {state.execution_id} at {state.position}")
    return state


def digest_of_snapshot(execution_id: str, position: int, body: bytes) -> str:
    """The digest of a snapshot with its execution and position: BLAKE2b of 128 bits, in hex."""
    place = f"{execution_id}\x1f{position}\x1f{SNAPSHOT_FORMAT}\x1f".encode()
    return blake2b(place + body, digest_size=16).hexdigest()


def is_drawn(digest: str) -> bool:
    """Whether loads of this snapshot are compared with a replay: 1 %, and the same ones on every server."""
    return int(digest[:8], 16) % VERIFIED_SHARE == 0


# --- the form of the bytes --------------------------------------------------------------------------------------------


_LEFT_OUT: Final = frozenset({"budget", "resolved"})
"""Fields of a state that are not stored: the budget, and values of references, which are loaded again."""


def _form(of: type[msgspec.Struct], **changed: Any) -> type[msgspec.Struct]:
    """The stored form of a struct of the state: defaults are omitted, and fields in ``changed`` have another type."""
    hints = get_type_hints(of)
    fields: list[Any] = []
    for field in msgspec.structs.fields(of):
        if field.name in changed or field.name in _LEFT_OUT:
            continue
        if field.default is not msgspec.NODEFAULT:
            fields.append((field.name, hints[field.name], field.default))
        elif field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
            fields.append((field.name, hints[field.name], default))
        else:
            fields.append((field.name, hints[field.name]))
    fields += changed.items()
    return msgspec.defstruct(f"Stored{of.__name__}", fields, module=__name__, kw_only=True, omit_defaults=True)


StoredLoopState: Final[Any] = _form(
    LoopState, items=int, done=str, results=list[tuple[int, Payload]], inner="dict[int, StoredLoopState]"
)
"""The stored form of a loop: ``done`` in hex, as it exceeds JSON integers, and ``results`` with the newest first."""

StoredStepRun: Final[Any] = _form(
    StepRun, ctx=int, steps=int, loop="StoredLoopState | None", shared=list[tuple[Path, int, str, SharedValue]]
)
StoredEvaluation: Final[Any] = _form(Evaluation, ctx=int, steps=int)
StoredChosen: Final[Any] = _form(Chosen, ctx=int, steps=int)
StoredExecution: Final[Any] = _form(
    Execution,
    workload=dict[str, int],
    ctx=int,
    steps=int,
    runs="dict[str, StoredStepRun]",
    evaluation="StoredEvaluation | None",
    chosen="dict[str, StoredChosen]",
)


class StoredStepValue(msgspec.Struct):
    """The stored form of a :class:`~noetl_stream.model.outcome.StepValue`: indexes of outcomes."""

    outcome: int
    results: dict[str, int]


class StoredState(msgspec.Struct):
    """The stored form of an execution: tables of values, outcomes and results of steps, and every ``ctx`` and ``steps``
    as indexes into them.
    """

    values: list[Any]
    outcomes: list[Outcome]
    results: list[StoredStepValue]
    ctxs: list[dict[str, int]]
    steps: list[dict[str, int]]
    state: StoredExecution


@cache
def _decoder() -> msgspec.json.Decoder[StoredState]:
    return msgspec.json.Decoder(StoredState)


class _Places:
    """A table with one row for each distinct value. ``make`` turns a value into its row."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.rows: list[Any] = []
        self._make = make
        self._places: dict[int, int] = {}

    def __getitem__(self, given: Any) -> int:
        """The index of a value, found by its identity; the state keeps the value alive."""
        place = self._places.get(id(given))
        if place is None:
            row = self._make(given)
            place = self._places[id(given)] = len(self.rows)
            self.rows.append(row)
        return place


class _Writer:
    """A writer of the stored form of a state, with its tables."""

    def __init__(self) -> None:
        self.values = _Places(lambda value: value)
        self.outcomes = _Places(lambda outcome: outcome)
        self.results = _Places(self._step_value)
        self.ctxs = _Places(self._mapping)
        self.steps = _Places(lambda steps: {name: self.results[value] for name, value in steps.items()})

    def execution(self, state: Execution) -> Any:
        evaluation = state.evaluation
        return StoredExecution(
            **_fields(state)
            | {
                "workload": self._mapping(state.workload),
                **self._ctx_and_steps(state),
                "requests": sorted(state.requests) or state.requests,  # equal states have equal bytes
                "runs": {key: self._run(run) for key, run in state.runs.items()},
                "evaluation": None if evaluation is None else self._stored_choice(StoredEvaluation, evaluation),
                "chosen": {key: self._stored_choice(StoredChosen, one) for key, one in state.chosen.items()},
            }
        )

    def _stored_choice(self, form: Any, given: Evaluation | Chosen) -> Any:
        return form(**_fields(given) | self._ctx_and_steps(given))

    def _ctx_and_steps(self, given: Execution | StepRun | Evaluation | Chosen) -> dict[str, int]:
        return {"ctx": self.ctxs[given.ctx], "steps": self.steps[given.steps]}

    def _mapping(self, values: Mapping[str, Any]) -> dict[str, int]:
        return {key: self.values[value] for key, value in values.items()}

    def _step_value(self, value: StepValue) -> StoredStepValue:
        results = {name: self.outcomes[outcome] for name, outcome in value.results.items()}
        return StoredStepValue(self.outcomes[value.outcome], results)

    def _run(self, run: StepRun) -> Any:
        shared, link = [], run.shared
        while link is not None:
            *contribution, link = link
            shared.append(contribution)
        loop = None if run.loop is None else self._loop(run.loop)
        return StoredStepRun(**_fields(run) | self._ctx_and_steps(run) | {"loop": loop, "shared": shared})

    def _loop(self, loop: LoopState) -> Any:
        results: list[Any] = []
        link = loop.results
        while link is not None:
            *result, link = link
            results.append(result)
        changed = {
            "items": self.values[loop.items],
            "done": f"{loop.done:x}",
            "results": results,
            "inner": {index: self._loop(inner) for index, inner in loop.inner.items()},
        }
        return StoredLoopState(**_fields(loop) | changed)


class _Reader:
    """A reader of the stored form of a state."""

    def __init__(self, found: StoredState) -> None:
        self._values = found.values
        outcomes = found.outcomes
        results = [
            StepValue(outcomes[one.outcome], {name: outcomes[place] for name, place in one.results.items()})
            for one in found.results
        ]
        self._ctxs = [self._mapping(row) for row in found.ctxs]
        self._steps = [{name: results[place] for name, place in row.items()} for row in found.steps]

    def execution(self, form: Any) -> Execution:
        evaluation = form.evaluation
        return Execution(
            **_fields(form)
            | {
                "workload": self._mapping(form.workload),
                **self._ctx_and_steps(form),
                "runs": {key: self._run(run) for key, run in form.runs.items()},
                "evaluation": None
                if evaluation is None
                else Evaluation(**_fields(evaluation) | self._ctx_and_steps(evaluation)),
                "chosen": {key: Chosen(**_fields(one) | self._ctx_and_steps(one)) for key, one in form.chosen.items()},
            }
        )

    def _ctx_and_steps(self, form: Any) -> dict[str, Any]:
        return {"ctx": self._ctxs[form.ctx], "steps": self._steps[form.steps]}

    def _mapping(self, row: Mapping[str, int]) -> dict[str, Any]:
        return {key: self._values[place] for key, place in row.items()}

    def _run(self, form: Any) -> StepRun:
        link: Any = None
        for contribution in reversed(form.shared):
            link = (*contribution, link)
        loop = None if form.loop is None else self._loop(form.loop)
        return StepRun(**_fields(form) | self._ctx_and_steps(form) | {"loop": loop, "shared": link})

    def _loop(self, form: Any) -> LoopState:
        link: Any = None
        for index, payload in reversed(form.results):
            link = (index, payload, link)
        changed = {
            "items": self._values[form.items],
            "done": int(form.done, 16),
            "results": link,
            "inner": {index: self._loop(inner) for index, inner in form.inner.items()},
        }
        return LoopState(**_fields(form) | changed)


def _fields(given: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.__struct_fields__ if name not in _LEFT_OUT}
