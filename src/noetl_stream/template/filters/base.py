"""The base of all filters and tests: the meter and scope of a rendering, and values that no filter accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from jinja2.runtime import Context, LoopContext, Macro
from jinja2.utils import Namespace, _PassArg

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import ABSENT, Scope

Filter: TypeAlias = Callable[..., Any]

SCOPE: Final = "@scope"
METER: Final = "@meter"
"""The names of a rendering's scope and meter in a Jinja context. Templates cannot write these names."""


def meter_of(context: Context) -> Meter:
    """The meter of the current rendering."""
    meter: Meter = context.parent[METER]
    return meter


def scope_of(context: Context) -> Scope:
    """The scope of the current rendering."""
    scope: Scope = context.parent[SCOPE]
    return scope


def reject_non_value(name: str, value: Any) -> None:
    """Rejects a value that no filter accepts.

    Raises:
        EvaluationFailure: The value is absent, or a loop, macro or namespace object.
    """
    if value is ABSENT:
        raise EvaluationFailure(f"filter `{name}` does not accept an absent value", hint="apply default() first")
    if isinstance(value, LoopContext | Macro | Namespace):
        raise EvaluationFailure(f"filter `{name}` takes a value, not a {type(value).__name__}")


def leading_args(pass_arg: _PassArg | None, context: Context) -> tuple[Any, ...]:
    """The arguments that a Jinja function takes before the value."""
    if pass_arg is None:
        return ()
    if pass_arg is _PassArg.context:
        return (context,)
    return (context.eval_ctx if pass_arg is _PassArg.eval_context else context.environment,)
