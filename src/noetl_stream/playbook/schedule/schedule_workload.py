"""The workload of a schedule: templates over ``schedule``, rendered once for each occurrence (LANGUAGE §15). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json.codec import check_text, encode
from noetl_stream.model.labels import KEY_FORM, key_text
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.schedule.occurrence import OccurrenceView
from noetl_stream.template import Budget, ExpressionError, OverBudget, Scope, Template, compile_template, render

NAMESPACE: Final = "schedule"


class Unrenderable(Exception):
    """A workload without a value for an occurrence; the message has the reason."""


def render_workload(
    workload: Mapping[str, Any], occurrence: Callable[[], OccurrenceView], limits: Limits = DEFAULT_LIMITS
) -> dict[str, Any]:
    """The workload for an occurrence, which is computed only for templates: its interval takes a search in the
    timetable.

    Raises:
        Unrenderable: a template cannot be evaluated, or the result is too large or cannot be stored.
    """
    template = _compiled(encode(workload))
    names = {} if template.is_constant else {NAMESPACE: msgspec.to_builtins(occurrence())}
    try:
        found = render(template, Scope(names, limits=limits, budget=Budget(limits.max_inline_operations)))
        encoded = encode(found)
        check_text(encoded)
    except ExpressionError as error:
        raise Unrenderable(str(error)) from None
    except OverBudget:
        most = f"{limits.max_inline_operations:,} operations (limits.max_inline_operations)"
        raise Unrenderable(f"its templates cost more than {most}") from None
    except PayloadRefused as error:
        raise Unrenderable(f"it cannot be stored: {error.message}") from None
    if len(encoded) > limits.max_workload_bytes:
        most = f"{limits.max_workload_bytes:,} (limits.max_workload_bytes)"
        raise Unrenderable(f"it has {len(encoded):,} bytes of JSON; the limit is {most}")
    assert isinstance(found, dict)
    return found


def render_key(key: Any, occurrence: Callable[[], OccurrenceView], limits: Limits = DEFAULT_LIMITS) -> str:
    """The business key of an occurrence's execution; ``""`` for a schedule without one.

    Raises:
        Unrenderable: as for :func:`render_workload`, or it is not a valid key.
    """
    if key is None:
        return ""
    text = key_text(render_workload({"key": key}, occurrence, limits)["key"])
    if not text:
        raise Unrenderable(KEY_FORM)
    return text


@lru_cache(maxsize=256)
def _compiled(workload: bytes) -> Template:
    names = frozenset([NAMESPACE])
    return compile_template(msgspec.json.decode(workload), namespaces=names, bindings={}, expressions_only=True)
