"""Timeouts of one attempt and their layering (LANGUAGE §1 *Layering*, §5 *Timeouts*; v10 §3.1)."""

from __future__ import annotations

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.sections import Section, is_null, read_section
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, holds_template, kind_of


class TimeoutParts(Section):
    title = "`timeout`"

    total: float | None = None
    connect: float | None = None
    read: float | None = None


def read_timeouts(node: Node | None, problems: Problems) -> Timeouts:
    """Reads ``timeout``, in seconds greater than 0; ``timeout: 30`` is ``{total: 30}``."""
    if node is None:
        return Timeouts()
    if isinstance(node, Scalar):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            message = f"`timeout` must be seconds or {{total, connect, read}}, not {kind_of(node)}"
            problems.error("wrong_type", message, node)
            return Timeouts()
        return Timeouts(total=_seconds(float(node.value), node, problems))
    parts = read_section(node, TimeoutParts, problems)
    seconds: dict[str, float | None] = {}
    for name in ("total", "connect", "read"):
        value, at = getattr(parts, name), node.get(name) if isinstance(node, Mapping) else None
        seconds[name] = _seconds(float(value), at, problems) if value is not None and at is not None else None
    return Timeouts(**seconds)


def overlay(outer: Timeouts, inner: Timeouts) -> Timeouts:
    """Merges two scopes part by part; the inner one wins."""
    return Timeouts(
        total=outer.total if inner.total is None else inner.total,
        connect=outer.connect if inner.connect is None else inner.connect,
        read=outer.read if inner.read is None else inner.read,
    )


def read_seconds(node: Node | None, what: str, problems: Problems) -> float | None:
    """A literal number of seconds greater than 0; ``None`` if absent or invalid."""
    if is_null(node):
        return None
    assert node is not None
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = (
            "write a constant: templates are not allowed here" if holds_template(node) else "write a number such as 600"
        )
        problems.error("wrong_type", f"{what} must be a number of seconds, not {kind_of(node)}", node, hint)
        return None
    return _seconds(float(value), node, problems, what)


def _seconds(value: float, at: Node, problems: Problems, what: str = "a timeout") -> float | None:
    if value > 0:
        return value
    problems.error("invalid_value", f"{what} must be greater than 0 seconds", at, "remove it for no timeout")
    return None
