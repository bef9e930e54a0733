"""What every filter and test of templates needs: the rendering it runs in, and what it must not be given."""

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
"""Where a rendering's scope and meter stand among the names of a Jinja context. No template can write these names."""


def meter_of(context: Context) -> Meter:
    """The meter of the rendering that runs in ``context``."""
    meter: Meter = context.parent[METER]
    return meter


def scope_of(context: Context) -> Scope:
    """The scope of the rendering that runs in ``context``."""
    scope: Scope = context.parent[SCOPE]
    return scope


def refuse_no_value(name: str, value: Any) -> None:
    """Refuses what the filter ``name`` cannot take, whatever it does.

    Raises:
        EvaluationFailure: for the absent value, and for what is no value at all.
    """
    if value is ABSENT:
        raise EvaluationFailure(f"an absent value has no use in the filter `{name}`", hint="use default() first")
    if isinstance(value, LoopContext | Macro | Namespace):
        raise EvaluationFailure(f"the filter `{name}` takes a value, not a {type(value).__name__}")


def leading(pass_arg: _PassArg | None, context: Context) -> tuple[Any, ...]:
    """What one of Jinja's own functions wants before the value."""
    if pass_arg is None:
        return ()
    if pass_arg is _PassArg.context:
        return (context,)
    return (context.eval_ctx if pass_arg is _PassArg.eval_context else context.environment,)
