"""Schedules and triggers that EVENTS mentions, for an operator to register again after a rebuild."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from noetl_stream.model.aggregates import (
    RequestedFact,
    ScheduleRegistered,
    StarterDeleted,
    StarterPaused,
    StarterRegistered,
    StarterResumed,
)


class RecordedStarter(NamedTuple):
    """A schedule or a trigger, as last requested. ``playbook`` and ``by`` are empty if its registration is trimmed."""

    kind: str
    path: str
    playbook: str = ""
    by: str = ""
    is_paused: bool = False

    def __str__(self) -> str:
        about = f"starts {self.playbook}, registered by {self.by or 'nobody in particular'}"
        paused = ", paused" if self.is_paused else ""
        return f"{self.kind.lower()} {self.path}: {about if self.playbook else 'EVENTS has no more of it'}{paused}"


def starters_in(requests: Iterable[RequestedFact]) -> dict[str, RecordedStarter | None]:
    """What these requests, in order, have left registered, by path; ``None`` for what they have deleted.

    EVENTS does not say whether a request was refused.
    """
    found: dict[str, RecordedStarter | None] = {}
    for fact in requests:
        before = found.get(fact.key)
        match fact:
            case StarterRegistered():
                is_paused = isinstance(fact, ScheduleRegistered) and fact.paused if before is None else before.is_paused
                found[fact.key] = RecordedStarter(
                    type(fact).of, fact.key, fact.terms.playbook, fact.principal, is_paused
                )
            case StarterDeleted():
                found[fact.key] = None
            case StarterPaused() | StarterResumed():
                if before is not None:
                    found[fact.key] = before._replace(is_paused=isinstance(fact, StarterPaused))
    return found


def left_of(
    registered: Mapping[str, RecordedStarter | None], origins: Mapping[str, str]
) -> tuple[RecordedStarter, ...]:
    """Those left in the end, by path, including those known only by what they have started.

    Args:
        origins: The kinds of what has started executions, by path.
    """
    trimmed = {path: RecordedStarter(kind, path) for path, kind in origins.items() if path not in registered}
    left = [one for one in {**registered, **trimmed}.values() if one is not None]
    return tuple(sorted(left, key=lambda one: one.path))
