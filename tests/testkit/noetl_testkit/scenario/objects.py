"""The object store of a scenario: results that workers keep by reference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from noetl_stream.engine.state import RecordedFact
from noetl_stream.model import events
from noetl_stream.model.events import Path
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Payload, Reference

Journal = Callable[[], Iterator[RecordedFact]]


class Objects(dict[str, Any]):
    """Values by key. The key of a loop's result is looked up in the journal (``docs/adr/0002``).

    Attributes:
        takes: Whether a result, given as JSON, is stored here instead of in events; initially always false.
    """

    def __init__(self, execution_id: str, journal: Journal) -> None:
        super().__init__()
        self._execution_id = execution_id
        self.takes: Callable[[bytes], bool] = lambda data: False
        self._journal = journal

    def shared_with(self, execution_id: str, journal: Journal) -> Objects:
        """The same values, for a rerun with this id and journal."""
        objects = Objects(execution_id, lambda: chain(self._journal(), journal()))
        objects.update(self)
        objects.takes = self.takes
        return objects

    def keep(self, value: Any) -> Payload:
        """The value inline, or stored here and referenced."""
        if self.takes(codec.encode(value)):
            return Payload(reference=self.put(value))
        return codec.payload_of(value)

    def put(self, value: Any) -> Reference:
        """Stores the value and returns its reference."""
        data = codec.encode(value)
        key = f"{self._execution_id}/object-{len(self)}"
        self[key] = codec.decode_json(data)
        return Reference("nats", key, len(data), "sha256:" + hashlib.sha256(data).hexdigest())

    def value_of(self, payload: Payload) -> Any:
        """The value of the payload."""
        return codec.decode_json(payload.value) if payload.reference is None else self[payload.reference.key]

    def __missing__(self, key: str) -> Any:
        _, dot, step_run_id = key.partition(".")
        if not dot:
            raise KeyError(key)
        return self._gathered(step_run_id)

    def _gathered(self, step_run_id: str) -> Any:
        commands: set[str] = set()
        counts: dict[Path, int] = {}
        last: dict[Path, Payload] = {}
        results: dict[Path, Payload] = {}
        for recorded in self._journal():
            fact = recorded.fact
            if isinstance(fact, events.StepScheduled) and fact.step_run_id == step_run_id:
                commands.add(fact.command_id)
            if isinstance(fact, events.LoopStarted | events.LoopDone) and fact.step_run_id == step_run_id:
                if isinstance(fact, events.LoopDone) or not fact.path:
                    counts[fact.path] = fact.count
            elif recorded.run is not None and recorded.run.command_id in commands:
                if isinstance(fact, events.TaskProcessed):
                    last[fact.path] = fact.outcome.result
                elif isinstance(fact, events.LoopIterationDone):
                    results[fact.path] = last.get(fact.path, Payload())
        return self._level((), counts, results)

    def _level(self, path: Path, counts: Mapping[Path, int], results: Mapping[Path, Payload]) -> list[Any]:
        found = []
        for index in range(counts[path]):
            inner = (*path, index)
            is_level = inner in counts
            value = self._level(inner, counts, results) if is_level else self.value_of(results.get(inner, Payload()))
            found.append(value)
        return found
