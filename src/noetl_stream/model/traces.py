"""Traces (W3C Trace Context): the trace of an execution, and the ids of its spans.

A span's id derives from its subject, so that every process knows it before the span has ended. Only an attempt's id
includes the nonce of its run: two runs of one command may make the same attempt.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from noetl_stream.model.events import Path
from noetl_stream.model.ids import RunId

SPAN_BYTES: Final = 8
TRACE_BYTES: Final = 16

_TRACEPARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_TRACE_ID: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")
_CALLER: Final = re.compile(r"(?!0{16})([0-9a-f]{16})-(0[01])")


class Traceparent(msgspec.Struct, frozen=True, gc=False):
    """The content of a caller's ``traceparent``.

    Attributes:
        caller_span: The id of the caller's span, ``-``, and ``01`` if it is sampled, else ``00``.
    """

    trace_id: str
    caller_span: str


class Trace(NamedTuple):
    """The trace of an execution.

    Attributes:
        caller: The span of the caller outside noetl-stream that started the execution; empty if it named none.
        is_callers_sampled: Whether that span is sampled.
    """

    trace_id: str
    caller: str = ""
    is_callers_sampled: bool = False

    @property
    def forwarded_traceparent(self) -> str:
        """The ``traceparent`` of calls in this trace while this process records no spans; empty without a caller."""
        return traceparent(self.trace_id, self.caller, sampled=self.is_callers_sampled) if self.caller else ""


def read_traceparent(text: str) -> Traceparent | None:
    """Parses a ``traceparent``; ``None`` if ``text`` is invalid. Later versions may append fields."""
    found = _TRACEPARENT.fullmatch(text.strip())
    if found is None or (found[1] == "00" and found[5]):
        return None
    return Traceparent(found[2], f"{found[3]}-{int(found[4], 16) & 1:02x}")


def traceparent(trace_id: str, span_id: str, *, sampled: bool) -> str:
    return f"00-{trace_id}-{span_id}-{sampled:02x}"


@lru_cache(maxsize=1024)
def trace_of(execution_id: str, trace_id: str, caller_span: str) -> Trace:
    """The trace of an execution, by its events; a new one for ids that no trace may have."""
    if _TRACE_ID.fullmatch(trace_id) is None:
        return Trace(blake2b(execution_id.encode(), digest_size=TRACE_BYTES).hexdigest())
    found = _CALLER.fullmatch(caller_span)
    return Trace(trace_id) if found is None else Trace(trace_id, found[1], found[2] == "01")


def execution_span(execution_id: str) -> str:
    return _span("execution", execution_id)


def step_span(step_run_id: str) -> str:
    return _span("step", step_run_id)


def task_span(step_run_id: str, path: Path, task: str, visit: int) -> str:
    """
    Args:
        visit: See :func:`noetl_stream.engine.pipeline.visit_of`.
    """
    return _span("task", step_run_id, *path, task, visit)


def attempt_span(run: RunId, path: Path, task: str, visit: int, attempt: int) -> str:
    return _span("attempt", str(run), *path, task, visit, attempt)


def call_span(called_execution_id: str) -> str:
    """The span of the attempt that calls a playbook: the parent of the execution that it calls."""
    return _span("call", called_execution_id)


def _span(*cause: str | int) -> str:
    return blake2b("\x1f".join(map(str, cause)).encode(), digest_size=SPAN_BYTES).hexdigest()
