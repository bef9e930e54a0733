"""The data of templates: namespaces, results and their views, the absent value (LANGUAGE §2); and scopes as JSON, for
another process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from noetl_stream.model.json.codec import decode_json
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.outcome import EMPTY, ErrorInfo, Outcome, Payload, Reference, StepValue
from noetl_stream.template.failures import ReferenceNeeded
from noetl_stream.template.runtime.meter import Budget

JSON: TypeAlias = Any
"""A plain JSON value: ``None``, ``bool``, ``int``, ``float``, ``str``, or a ``list`` or ``dict[str, …]`` of them."""

References: TypeAlias = Mapping[str, Any]
"""Values loaded from the object store, by :attr:`Reference.key`."""

NO_REFERENCES: Final[References] = {}

NAMESPACES: Final = frozenset(
    {
        *("workload", "ctx", "vars", "iter", "args", "keychain", "execution_id", "steps", "results"),
        *("_prev", "_task", "_attempt", "outcome", "event", "token"),
    }
)
"""The namespaces of LANGUAGE §2, and ``token`` of §4, which is for admission guards only."""

SHADOWABLE: Final = frozenset({"execution"})
"""Namespaces whose name a playbook may use for its own, which then takes precedence as a bare name."""

HELPER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "http": ("status", "headers"),
    "pg": ("code", "sqlstate", "message"),
    "py": ("exception_type", "traceback"),
}
"""The fields of the built-in kinds' blocks in ``outcome`` (LANGUAGE §5)."""

_UNREAD: Final = object()


class Absent:
    """The type of :data:`ABSENT`: false and equal only to null; its attributes are absent, all else is an error."""

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
        raise TypeError("cannot iterate over an absent value")

    def __contains__(self, element: object) -> NoReturn:
        raise TypeError("cannot search an absent value")

    def _refuse(self, other: object = None) -> NoReturn:
        raise TypeError("cannot order or calculate with an absent value")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __neg__ = __pos__ = __abs__ = __int__ = __float__ = __round__ = _refuse


ABSENT: Final = Absent()
"""A known value that is missing, such as an error or a result that does not exist yet. Not the same as undefined."""


class Scope(msgspec.Struct, frozen=True):
    """The data for one rendering.

    Attributes:
        namespaces: Values by namespace: plain JSON; :class:`ResultView` or :data:`ABSENT` under ``steps`` and
            ``results``; :func:`outcome_view` and :func:`event_view`. ``_prev`` may also be a payload.
        references: Values loaded after a :class:`~noetl_stream.template.failures.ReferenceNeeded`, by its key.
        limits: Limits of the execution; ``max_template_*`` bound each rendering.
        budget: The cost bound of this rendering and others together. ``None``: no bound.
    """

    namespaces: Mapping[str, Any]
    references: References = msgspec.field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    budget: Budget | None = None


class LazyResult:
    """A payload that is decoded on first use and cached."""

    __slots__ = ("_value", "payload")

    def __init__(self, payload: Payload) -> None:
        self.payload: Final = payload
        self._value: Any = _UNREAD

    def value(self, references: References) -> Any:
        """The JSON value of the payload.

        Raises:
            ReferenceNeeded: The value is in the object store and not in ``references``.
        """
        reference = self.payload.reference
        if reference is not None:
            try:
                return references[reference.key]
            except KeyError:
                raise ReferenceNeeded(reference) from None
        if self._value is _UNREAD:
            self._value = decode_json(self.payload.value)
        return self._value


class ResultView:
    """The result of a task or step as templates read it by name (LANGUAGE §2 *Results*).

    Its keys are those of the result itself, then ``.data`` (the whole result, unless it has such a key), ``.outcome``
    (the envelope) and ``.results.<task>`` (results of a step's tasks). A failed outcome without a result is absent.

    Args:
        outcome: The outcome of the task, or of the last task that ran in the step.
        results: Outcomes of the step's tasks by name.
        helper: Name of the kind's block in ``outcome``; recognized by its fields if not given.
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
        """The value of the result, or :data:`ABSENT`.

        Raises:
            ReferenceNeeded: The value is in the object store and not in ``references``.
        """
        return self._result.value(references) if isinstance(self._result, LazyResult) else ABSENT

    @property
    def step_value(self) -> StepValue:
        """The outcomes of the view, for a view of a step."""
        return StepValue(self.outcome, dict(self._results))

    @property
    def inline_bytes(self) -> int:
        """The size of the inline results that are decoded when they are read."""
        return sum(len(bytes(one.result.value)) for one in (self.outcome, *self._results.values()))

    def extra(self, key: str) -> Any:
        """The value of a key that the view adds, ``outcome`` or ``results``; ``None`` for any other key."""
        if key == "outcome":
            if self._envelope is None:
                helper = self._helper or _recognized_helper(self.outcome)
                self._envelope = outcome_view(self.outcome, helper, self._result)
            return self._envelope
        if key == "results" and self._results:
            return OutcomeEnvelope((name, ResultView(outcome)) for name, outcome in self._results.items())
        return None


class OutcomeEnvelope(dict[str, Any]):
    """A mapping whose values may be views or absent; it becomes plain when a template reads it as a whole."""


class Carried(dict[str, Any]):
    """The keys of a namespace that a place reads. The namespace also has ``others``, and may have more."""

    __slots__ = ("others",)

    def __init__(self, read: Mapping[str, Any], others: Iterable[str]) -> None:
        super().__init__(read)
        self.others = others


class OpenBlock(dict[str, Any]):
    """A block of ``outcome`` with unknown fields (a plugin's kind): missing fields are absent."""

    def __missing__(self, key: str) -> Absent:
        return ABSENT


def outcome_view(outcome: Outcome, helper: str | None, result: LazyResult | Absent | None = None) -> Mapping[str, Any]:
    """The namespace ``outcome`` of task policies: ``status``, ``result``, ``error``, ``meta`` and the kind's own block.

    Args:
        outcome: The outcome of the task run.
        helper: Name of the kind's block (``http``, ``pg``, ``py``, a plugin's), which then always exists; or ``None``.
        result: Its result, if already known.
    """
    envelope = OutcomeEnvelope(
        status=outcome.status,
        result=result_of(outcome) if result is None else result,
        error=_error_view(outcome.error),
        meta=msgspec.structs.asdict(outcome.meta),
    )
    if helper is not None:
        fields = HELPER_FIELDS.get(helper)
        known = None if fields is None else dict.fromkeys(fields, ABSENT)
        envelope[helper] = OpenBlock(outcome.helper) if known is None else OutcomeEnvelope(known, **outcome.helper)
    return envelope


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
        status: ``success`` or ``error``. Default: from ``error``.
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
    """The result of an outcome; absent if it failed without one."""
    payload = outcome.result
    if outcome.status == "error" and payload.reference is None and bytes(payload.value) == bytes(EMPTY):
        return ABSENT
    return LazyResult(payload)


def _error_view(error: ErrorInfo | None) -> Mapping[str, Any] | Absent:
    # Missing fields of an error are absent, so that `outcome.error.retry_after_s | default(5)` works.
    if error is None:
        return ABSENT
    fields = msgspec.structs.asdict(error)
    return OutcomeEnvelope((name, ABSENT if value is None else value) for name, value in fields.items())


def _recognized_helper(outcome: Outcome) -> str | None:
    written = outcome.helper.keys()
    return next((name for name, fields in HELPER_FIELDS.items() if written and written <= set(fields)), None)


Reads = Collection[tuple[str, str | None]]
"""Namespaces and first keys, as in :attr:`~noetl_stream.template.Template.reads`."""


class PackedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The namespace ``event``: the arguments of :func:`~noetl_stream.template.runtime.scope.event_view`."""

    name: str | None
    step: str
    status: str
    result: Payload | None = None
    error: ErrorInfo | None = None
    loop: dict[str, int] | None = None


class PackedScope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The namespaces of a scope as JSON: ``plain`` holds values, ``steps`` and ``absent`` make ``steps``."""

    plain: dict[str, Any] = {}
    steps: dict[str, StepValue] | None = None
    absent: list[str] = []
    event: PackedEvent | None = None

    def references(self) -> Iterator[Reference]:
        """The results by reference that the scope names."""
        payloads = [] if self.event is None or self.event.result is None else [self.event.result]
        for value in (self.steps or {}).values():
            payloads += [outcome.result for outcome in (value.outcome, *value.results.values())]
        return (payload.reference for payload in payloads if payload.reference is not None)


def pack(namespaces: Mapping[str, Any], names: Collection[str], reads: Reads) -> PackedScope:
    """Packs those of ``names`` that ``reads`` contains, without the keys that it does not.

    Args:
        namespaces: The namespaces of a scope that the server makes.
    """
    plain: dict[str, Any] = {}
    steps: dict[str, StepValue] | None = None
    absent: list[str] = []
    event = None
    for name in names:
        keys = {key for namespace, key in reads if namespace == name}
        if name not in namespaces or not keys:
            continue
        value = namespaces[name]
        if name == "event":
            event = _pack_event(value)
            continue
        if isinstance(value, Mapping) and None not in keys:
            value = {key: value[key] for key in sorted(map(str, keys)) if key in value}
        if name == "steps":
            steps = {key: view.step_value for key, view in value.items() if isinstance(view, ResultView)}
            absent = [key for key, view in value.items() if view is ABSENT]
        else:
            plain[name] = value
    return PackedScope(plain, steps, absent, event)


def unpack(*packed: PackedScope) -> dict[str, Any]:
    """The namespaces of packed scopes, in one or several parts."""
    namespaces: dict[str, Any] = {}
    for part in packed:
        namespaces |= part.plain
        if part.steps is not None:
            views = {name: ResultView(value.outcome, value.results) for name, value in part.steps.items()}
            namespaces["steps"] = dict.fromkeys(part.absent, ABSENT) | views
        if part.event is not None:
            event = part.event
            namespaces["event"] = event_view(
                event.name, event.step, event.result, event.error, event.loop, status=event.status
            )
    return namespaces


def _pack_event(view: Mapping[str, Any]) -> PackedEvent:
    result, error, loop = view["result"], view["error"], view["loop"]
    return PackedEvent(
        view["name"],
        view["step"],
        view["status"],
        result.payload if isinstance(result, LazyResult) else None,
        None if error is ABSENT else ErrorInfo(**{key: value for key, value in error.items() if value is not ABSENT}),
        None if loop is ABSENT else dict(loop),
    )
