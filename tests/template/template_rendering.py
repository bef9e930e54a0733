"""Shared by the template tests: a scope like those of workers and servers, and helpers to compile and render."""

from __future__ import annotations

from typing import Any

from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.outcome import ErrorInfo, Meta, Outcome, Payload, Reference
from noetl_stream.template import (
    ABSENT,
    ExpressionError,
    ResultView,
    Scope,
    TemplateProblem,
    compile_guard,
    compile_template,
    holds,
    render,
)
from noetl_stream.template.failures import TemplateFinding
from noetl_stream.template.runtime.scope import event_view, outcome_view

NAMESPACES = frozenset(
    {
        *("workload", "ctx", "vars", "iter", "args", "execution_id", "steps", "results"),
        *("_prev", "_task", "_attempt", "outcome", "event"),
    }
)
BINDINGS = {
    "total": ("ctx", "total"),
    "url": ("workload", "url"),
    "page": ("iter", "page"),
    "load": ("steps", "load"),
    "fetch": ("results", "fetch"),
    "items": ("workload", "items"),
}

LOADED = Outcome("ok", payload_of({"data": {"rows": [1, 2, 3]}, "status": 200}), meta=Meta(attempt=2))
LISTED = Outcome("ok", payload_of([10, 20]))
FAILED = Outcome("error", error=ErrorInfo("http_status", "503", retryable=True), helper={"status": 503, "headers": {}})


def scope(**namespaces: Any) -> Scope:
    """A scope with a value in every namespace; ``namespaces`` replaces some."""
    return Scope(
        {
            "workload": {"url": "http://api", "items": [{"n": 1}, {"n": 2}], "flag": "false", "deep": {"a": {"b": 1}}},
            "ctx": {"total": 7, "items": "a key", "none": None, "empty": [], "name": "Ada", "rows": [3, 1, 2]},
            "vars": {},
            "iter": {"page": 1, "index": 0, "parent": {"index": 4}},
            "args": {"who": "me"},
            "execution_id": "e1",
            "steps": {"load": ResultView(LOADED, {"first": LISTED}), "later": ABSENT},
            "results": {"fetch": ResultView(LOADED), "list": ResultView(LISTED), "failed": ResultView(FAILED)},
            "_prev": ABSENT,
            "_task": "fetch",
            "_attempt": 1,
            "outcome": outcome_view(LOADED, "http"),
            "event": event_view("step.done", "load", payload_of({"data": 5})),
        }
        | namespaces
    )


def referenced(key: str = "k") -> Payload:
    """A payload in the object store."""
    return Payload(reference=Reference("nats", key, 1_000_000))


def rendered(source: Any, in_scope: Scope | None = None, **namespaces: Any) -> Any:
    """Compiles and renders ``source``."""
    template = compile_template(source, namespaces=NAMESPACES, bindings=BINDINGS)
    return render(template, in_scope or scope(**namespaces))


def failure(source: Any, in_scope: Scope | None = None, **namespaces: Any) -> ExpressionError:
    """The error of rendering ``source``."""
    template = compile_template(source, namespaces=NAMESPACES, bindings=BINDINGS)
    try:
        value = render(template, in_scope or scope(**namespaces))
    except ExpressionError as error:
        return error
    raise AssertionError(f"{source!r} rendered to {value!r}")


def decided(condition: str | bool, in_scope: Scope | None = None, **namespaces: Any) -> bool:
    """Whether the guard ``condition`` is true."""
    guard = compile_guard(condition, namespaces=NAMESPACES, bindings=BINDINGS)
    return holds(guard, in_scope or scope(**namespaces))


def problems(source: Any, **options: Any) -> tuple[TemplateFinding, ...]:
    """The problems of ``source``."""
    given = {"namespaces": NAMESPACES, "bindings": BINDINGS} | options
    try:
        compile_template(source, **given)
    except TemplateProblem as problem:
        return problem.problems
    return ()


def codes(source: Any, **options: Any) -> list[str]:
    """The codes of the problems of ``source``."""
    return [problem.code for problem in problems(source, **options)]
