"""Trials of a trigger's templates with an event of each kind that it may receive (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from noetl_stream.model.aggregates import UNTIMED
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.trigger.matching import view_of, visible_in
from noetl_stream.playbook.yaml.nodes import Node, Scalar, texts_of
from noetl_stream.template import (
    Budget,
    ExpressionError,
    Guard,
    OverBudget,
    Scope,
    Template,
    compile_guard,
    compile_template,
    holds,
    render,
)
from noetl_stream.trigger.events import EventShape


class EventSamples:
    """Samples of the events that a trigger may receive: those for which ``when`` holds, once it was checked.

    The samples have the types and the nulls of the events, but not their content: for a template that reads content,
    only faults that occur with any content are reported. A template that reads a value of unknown type is not tried.
    """

    def __init__(self, shape: EventShape, problems: Problems) -> None:
        self._shape = shape
        self._problems = problems
        self._names = visible_in(shape.source).namespaces
        self._left = [(sample.label, {"event": view_of(sample.event)}) for sample in shape.samples()]
        self._possible = len(self._left)

    def check(self, name: str, node: Node) -> None:
        """Reports texts of a value that cannot be evaluated for these events; as an error if for none of them."""
        for at, text in texts_of(node):
            read = (
                compile_guard(text, namespaces=self._names, bindings={})
                if name == "when"
                else compile_template(text, namespaces=self._names, bindings={}, expressions_only=True)
            )
            if not read.paths or not all(map(self._shape.is_known, read.paths)):
                continue
            faults = dict(self._faults(read))
            if not faults:
                continue
            label, error = next(iter(faults.items()))
            if len(faults) == self._possible:
                self._report(name, at, f"for any event: {error}")
            else:
                hint = "say what it is then, with `| default('', true)` or `if`, or leave these events out by `when`"
                self._problems.warn("cannot_render", f"`{name}` cannot be evaluated for {label}: {error}", at, hint)

    def _report(self, name: str, at: Scalar, why: str) -> None:
        self._problems.error("cannot_render", f"`{name}` cannot be evaluated {why}", at, "correct the expression")

    def _faults(self, read: Guard | Template) -> Iterator[tuple[str, str]]:
        """The samples for which it cannot be evaluated, with the reason. Samples for which a guard does not hold are
        omitted; if their content decided that, such an event is still possible.
        """
        for label, names in [*self._left]:
            of_content = any(self._is_content(path, names) for path in read.paths)
            scope = Scope(names, limits=DEFAULT_LIMITS, budget=Budget(DEFAULT_LIMITS.max_inline_operations))
            try:
                if isinstance(read, Guard):
                    if not holds(read, scope):
                        self._left.remove((label, names))
                        self._possible -= not of_content
                else:
                    render(read, scope)
            except ExpressionError as error:
                if not of_content or _is_of_type(error):
                    yield label, str(error)
            except OverBudget:
                yield label, "it costs too much"

    def _is_content(self, path: tuple[str, ...], names: Mapping[str, Any]) -> bool:
        """Whether the sample's value at a path stands for any content: not for null, a time, or one of few words."""
        value: Any = names
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value is not None and value != UNTIMED and not self._shape.words(path)


def _is_of_type(error: ExpressionError) -> bool:
    """Whether a fault is one of types or of null, with any content; a guard that is text has no cause."""
    cause = error.__cause__
    return cause is None or isinstance(cause, TypeError) or "null" in str(cause)
