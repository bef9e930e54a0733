"""The registry of the kinds of aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.engine.aggregates.contract import AggregateKind
from noetl_stream.engine.aggregates.key_limits import LimitKind
from noetl_stream.engine.aggregates.schedules import ScheduleKind
from noetl_stream.engine.aggregates.triggers import TriggerKind

KINDS: Final[Mapping[str, AggregateKind[Any]]] = {
    kind.name: kind for kind in (ScheduleKind(), TriggerKind(), LimitKind())
}
