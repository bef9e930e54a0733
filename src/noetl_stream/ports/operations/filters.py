"""The table of filters of executions: the command line, HTTP and bulk requests read it (LANGUAGE §9 *Finding*)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from noetl_stream.model.labels import MAX_KEY_CHARS
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.verbs import Default, ItemsBelow, Labels, Named


class ExecutionFilter(msgspec.Struct, frozen=True, gc=False):
    """Which executions of a list: all of these hold. Times are ms since the epoch."""

    status: Annotated[Sequence[ExecutionStatus], Meta(description="Any of these.")] = ()
    path: Annotated[str | None, Meta(description="Of this playbook, or of playbooks below it.")] = None
    labels: Labels = {}
    started_from_ms: int | None = None
    started_before_ms: int | None = None
    error: Annotated[str | None, Meta(description="Words that the error has.", max_length=512)] = None
    key: Annotated[str | None, Meta(description="Its business key.", min_length=1, max_length=MAX_KEY_CHARS)] = None
    inputs: Annotated[Mapping[str, str], Named("input"), Default({})] = {}
    failed_step: Annotated[str | None, Meta(description="The step that failed.", min_length=1, max_length=256)] = None
    worker: Annotated[str | None, Meta(description="A worker that ran a step.", min_length=1, max_length=64)] = None
    longer_than_s: Annotated[float | None, Meta(description="It has ended, and took at least so long: 90s, 2h.")] = None
    due: Annotated[
        str | None,
        Meta(description="Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.", max_length=64),
    ] = None
    scope: ItemsBelow = ()

    @property
    def searches_values(self) -> bool:
        """Whether it searches values that may be hidden where an execution is shown."""
        return self.error is not None or self.key is not None or bool(self.labels or self.inputs)
