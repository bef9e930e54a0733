"""What templates can see: namespaces, results and their views, the absent value (LANGUAGE §2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from noetl_stream.model.codec import decode_json
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.reference import EMPTY, Payload
from noetl_stream.template.failures import ReferenceNeeded

JSON: TypeAlias = Any
"""A plain JSON value: ``None``, ``bool``, ``int``, ``float``, ``str``, or a ``list`` or ``dict[str, …]`` of them."""

References: TypeAlias = Mapping[str, Any]
"""Values that were loaded from the object store, by :attr:`Reference.key`."""

NO_REFERENCES: Final[References] = {}

NAMESPACES: Final = frozenset(
    {
        *("workload", "ctx", "vars", "iter", "args", "keychain", "execution_id", "steps", "results"),
        *("_prev", "_task", "_attempt", "outcome", "event", "token"),
    }
)
"""Every namespace of LANGUAGE §2, and ``token`` of §4, which exists in admission guards only."""

HELPER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "http": ("status", "headers"),
    "pg": ("code", "sqlstate", "message"),
    "py": ("exception_type", "traceback"),
}
"""Fields of the outcome's block of the built-in kinds (LANGUAGE §5)."""

_UNREAD: Final = object()


class Absent:
    """The type of :data:`ABSENT`: false, equal only to null, its attributes absent, of no use for anything else."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Absent)

    def __hash__(self) -> int:
        return hash(None)

    def __str__(self) -> str:
        return "None"

    def __repr__(self) -> str:
        return "ABSENT"

    def __iter__(self) -> NoReturn:
        raise TypeError("an absent value cannot be iterated")

    def __contains__(self, element: object) -> NoReturn:
        raise TypeError("an absent value cannot be searched")

    def _refuse(self, other: object = None) -> NoReturn:
        raise TypeError("an absent value cannot be ordered or calculated with")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __neg__ = __pos__ = __abs__ = __int__ = __float__ = __round__ = _refuse


ABSENT: Final = Absent()
"""A known value that is not there: no error, no result yet. Not to be confused with an undefined name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What one rendering sees.

    Attributes:
        namespaces: Values by namespace: plain JSON, with :class:`ResultView` or :data:`ABSENT` under ``steps`` and
            ``results``, and what :func:`outcome_view` and :func:`event_view` give. ``_prev`` may also be a payload.
        references: Values loaded after a :class:`~noetl_stream.template.failures.ReferenceNeeded`, by its key.
        limits: Those of the execution; ``max_template_*`` bound each rendering.
    """

    namespaces: Mapping[str, Any]
    references: References = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS


class LazyResult:
    """A payload that is decoded when it is first read, and then kept."""

    __slots__ = ("_payload", "_value")

    def __init__(self, payload: Payload) -> None:
        self._payload: Final = payload
        self._value: Any = _UNREAD

    def value(self, references: References) -> Any:
        """The JSON value.

        Raises:
            ReferenceNeeded: if it stands in the object store and is not in ``references``.
        """
        reference = self._payload.reference
        if reference is not None:
            try:
                return references[reference.key]
            except KeyError:
                raise ReferenceNeeded(reference) from None
        if self._value is _UNREAD:
            self._value = decode_json(self._payload.value)
        return self._value


class ResultView:
    """The result of a task or step as templates see it under its name (LANGUAGE §2 *Results*).

    Its keys are the result's own; then ``.data`` (the whole result, if it has no such key), ``.outcome`` (the envelope)
    and ``.results.<task>`` (results of a step's earlier tasks). A failed outcome that kept no result is absent.

    Args:
        outcome: The outcome of the task, or of the last task that ran in the step.
        results: Outcomes of the step's tasks by name.
        helper: Name of the outcome's block of the task's kind; without it the block is recognised by its fields.
    """

    __slots__ = ("_envelope", "_helper", "_result", "_results", "outcome")

    def __init__(
        self, outcome: Outcome, results: Mapping[str, Outcome] | None = None, *, helper: str | None = None
    ) -> None:
        self.outcome: Final = outcome
        self._results: Final[Mapping[str, Outcome]] = results or {}
        self._helper: Final = helper
        self._result: Final = result_of(outcome)
        self._envelope: Mapping[str, Any] | None = None

    def value(self, references: References) -> Any:
        """The result itself, or :data:`ABSENT`.

        Raises:
            ReferenceNeeded: if it stands in the object store and is not in ``references``.
        """
        return self._result.value(references) if isinstance(self._result, LazyResult) else ABSENT

    def extra(self, key: str) -> Any:
        """What the view adds to the result's own keys: ``outcome``, ``results``; ``None`` for any other key."""
        if key == "outcome":
            if self._envelope is None:
                helper = self._helper or _recognised_helper(self.outcome)
                self._envelope = _envelope(self.outcome, self._result, helper)
            return self._envelope
        if key == "results" and self._results:
            return OutcomeEnvelope((name, ResultView(outcome)) for name, outcome in self._results.items())
        return None


class OutcomeEnvelope(dict[str, Any]):
    """A mapping whose values may be views or absent: it is made plain when a template takes it as a whole."""


class OpenBlock(dict[str, Any]):
    """A block whose fields this package does not know (a plugin's kind): those not there are absent."""

    def __missing__(self, key: str) -> Absent:
        return ABSENT


def outcome_view(outcome: Outcome, helper: str | None) -> Mapping[str, Any]:
    """The namespace ``outcome`` of task policy: ``status``, ``result``, ``error``, ``meta`` and the kind's own block.

    Args:
        outcome: What the task run gave.
        helper: Name of the kind's block (``http``, ``pg``, ``py``, a plugin's), which then always exists; or ``None``.
    """
    return _envelope(outcome, result_of(outcome), helper)


def event_view(
    name: str | None,
    step: str,
    result: Payload | None = None,
    error: ErrorInfo | None = None,
    loop: Mapping[str, Any] | None = None,
    status: str | None = None,
) -> Mapping[str, Any]:
    """The namespace ``event`` of arcs: ``name``, ``step``, ``status``, ``result``, ``error``, ``loop`` (LANGUAGE §7).

    Args:
        name: ``step.done``, ``step.failed`` or ``loop.done``.
        status: ``success`` or ``error``; by default what ``error`` says.
    """
    return OutcomeEnvelope(
        name=name,
        step=step,
        status=status or ("success" if error is None else "error"),
        result=ABSENT if result is None else LazyResult(result),
        error=_error_view(error),
        loop=ABSENT if loop is None else loop,
    )


def result_of(outcome: Outcome) -> LazyResult | Absent:
    """The outcome's result: absent if it failed and kept none."""
    payload = outcome.result
    if outcome.status == "error" and payload.reference is None and bytes(payload.value) == bytes(EMPTY):
        return ABSENT
    return LazyResult(payload)


def _envelope(outcome: Outcome, result: LazyResult | Absent, helper: str | None) -> Mapping[str, Any]:
    envelope = OutcomeEnvelope(
        status=outcome.status,
        result=result,
        error=_error_view(outcome.error),
        meta=msgspec.structs.asdict(outcome.meta),
    )
    if helper is not None:
        known = HELPER_FIELDS.get(helper)
        envelope[helper] = (
            OpenBlock(outcome.helper)
            if known is None
            else OutcomeEnvelope(dict.fromkeys(known, ABSENT), **outcome.helper)
        )
    return envelope


def _error_view(error: ErrorInfo | None) -> Mapping[str, Any] | Absent:
    # Fields that an error may lack are absent, so that `outcome.error.retry_after_s | default(5)` means what it says.
    if error is None:
        return ABSENT
    fields = msgspec.structs.asdict(error)
    return OutcomeEnvelope((name, ABSENT if value is None else value) for name, value in fields.items())


def _recognised_helper(outcome: Outcome) -> str | None:
    written = outcome.helper.keys()
    return next((name for name, fields in HELPER_FIELDS.items() if written and written <= set(fields)), None)
