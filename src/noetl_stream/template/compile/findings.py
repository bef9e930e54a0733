"""Collects the problems of a text during compilation, and resolves its names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from jinja2 import nodes

from noetl_stream.template.compile.parsing import place_of
from noetl_stream.template.failures import FindingCode, TemplateFinding, closest, shorten
from noetl_stream.template.runtime.scope import NAMESPACES

Bindings: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""Bare names with their paths: ``{"total": ("ctx", "total")}``; ``None`` for a name that is not bound."""

MAX_PROBLEMS: Final = 50
"""The most problems reported for one text."""

_NAME_CHARS: Final = 80
_WHERE_ALLOWED: Final = {
    "outcome": "use `outcome` in task policies only; elsewhere read the task's result, or `<task>.outcome`",
    "event": "use `event` in the arcs of `next` only",
    "keychain": "use `keychain` in tool inputs only",
    "token": "use `token` in admission guards only",
    "_prev": "use `_prev` inside a pipeline only",
    "_task": "use `_task` in the inputs and policy of a task only",
    "_attempt": "use `_attempt` in the inputs and policy of a task only",
    "results": "use `results` inside a pipeline only",
    "iter": "use `iter` inside a pipeline or in an inner loop only",
    "args": "use `args` inside a step only",
    "vars": "use `vars` inside a pipeline or in the arcs of its step only",
    **dict.fromkeys(("ctx", "steps"), "nothing has run yet where this is asked: use `workload`"),
}
_OTHER_LANGUAGES: Final = {"null": "none", "nil": "none", "undefined": "none", "TRUE": "true", "FALSE": "false"}


class Findings:
    """The problems of one text with their positions, up to :data:`MAX_PROBLEMS`."""

    def __init__(self, text: str, pointer: tuple[str | int, ...]) -> None:
        self._text: Final = text
        self._pointer: Final = pointer
        self._problems: Final[list[TemplateFinding]] = []

    @property
    def problems(self) -> list[TemplateFinding]:
        """The problems, in text order."""
        return sorted(self._problems, key=lambda problem: (problem.line, problem.column))

    @property
    def full(self) -> bool:
        """Whether further problems are dropped."""
        return len(self._problems) >= MAX_PROBLEMS

    def add(
        self, code: FindingCode, message: str, offset: int, hint: str | None = None, *, name: str | None = None
    ) -> None:
        """Adds a problem at ``offset`` of the text; ``name`` is the name that is not defined."""
        if not self.full:
            line, column = place_of(self._text, offset)
            self._problems.append(TemplateFinding(code, message, hint, self._pointer, line, column, name=name))


class Names(msgspec.Struct, frozen=True):
    """The names that can be used at one place of a playbook."""

    namespaces: frozenset[str]
    bindings: Bindings
    functions: frozenset[str]

    def resolve(self, node: nodes.Name, findings: Findings) -> tuple[str, ...] | None:
        """The path of a name; ``None``, after reporting it, if it has none."""
        name = node.name
        if name in self.namespaces:
            return (name,)
        bound = self.bindings.get(name)
        shown = shorten(name, _NAME_CHARS)
        # `token` is a namespace in admission guards only; elsewhere a playbook may use the name.
        if name in NAMESPACES and not (name == "token" and bound):
            _report_unavailable(name, f"`{name}` is not available here", node, findings)
        elif bound is None:
            if not findings.full:
                message = f"`{shown}` is not defined"
                hint = None if name in self.bindings else self._unbound_hint(name)
                findings.add("unbound_name", message, node.lineno, hint, name=name)
        elif bound[0] not in self.namespaces:
            message = f"`{shown}` means `{'.'.join(bound)}`, which is not available here"
            _report_unavailable(bound[0], message, node, findings)
        else:
            return bound
        return None

    def report_unknown_function(self, callee: nodes.Name, findings: Findings) -> None:
        """Reports a call of an unknown function."""
        name, known = shorten(callee.name, _NAME_CHARS), ", ".join(f"`{name}()`" for name in sorted(self.functions))
        if callee.name in self.bindings or callee.name in NAMESPACES:
            findings.add("template_syntax", f"`{name}` is not a function", callee.lineno)
        else:
            message, hint = f"unknown function `{name}`", f"functions: {known}"
            findings.add("unbound_name", message, callee.lineno, hint, name=callee.name)

    def _unbound_hint(self, name: str) -> str:
        if name in _OTHER_LANGUAGES:
            return f"write `{_OTHER_LANGUAGES[name]}`"
        close = closest(name, sorted({*self.bindings, *self.namespaces}))
        guess = f"did you mean `{close}`? if not, " if close else ""
        name = shorten(name, _NAME_CHARS)
        return f"{guess}write `workload.{name}`, `ctx.{name}` or `args.{name}` for a value from outside"


def _report_unavailable(namespace: str, message: str, node: nodes.Node, findings: Findings) -> None:
    findings.add("namespace_not_here", message, node.lineno, _WHERE_ALLOWED.get(namespace))
