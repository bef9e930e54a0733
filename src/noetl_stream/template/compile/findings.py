"""What is wrong with a text, collected while it is compiled, and what its names mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from jinja2 import nodes

from noetl_stream.template.compile.parsing import place_of
from noetl_stream.template.failures import BareName, TemplateFinding, closest, shorten
from noetl_stream.template.runtime.scope import NAMESPACES

Bindings: TypeAlias = Mapping[str, tuple[str, ...]]
"""Bare names and the paths they mean: ``{"total": ("ctx", "total")}``."""

MOST_PROBLEMS: Final = 50
"""How many problems of one text are told."""

_NAME_CHARS: Final = 80
_WHERE_ALLOWED: Final = {
    "outcome": "`outcome` exists in task policy only; elsewhere read the task's result, or `<task>.outcome`",
    "event": "`event` exists in the arcs of `next` only",
    "keychain": "`keychain` exists in tool inputs only",
    "token": "`token` exists in admission guards only",
    "_prev": "`_prev` exists inside a pipeline only",
    "_task": "`_task` exists in the inputs and the policy of a task only",
    "_attempt": "`_attempt` exists in the inputs and the policy of a task only",
    "results": "`results` exists inside a pipeline only",
    "iter": "`iter` exists inside a pipeline, and in an inner loop",
    "args": "`args` exists inside a step only",
    "vars": "`vars` exists inside a step run and in its arcs only",
}
_OTHER_LANGUAGES: Final = {"null": "none", "nil": "none", "undefined": "none", "TRUE": "true", "FALSE": "false"}


class Findings:
    """Problems of one text, with their places; the first :data:`MOST_PROBLEMS` of them."""

    def __init__(self, text: str, pointer: tuple[str | int, ...]) -> None:
        self._text: Final = text
        self._pointer: Final = pointer
        self._problems: Final[list[TemplateFinding]] = []

    @property
    def problems(self) -> list[TemplateFinding]:
        """What was found, in the order of the text."""
        return sorted(self._problems, key=lambda problem: (problem.line, problem.column))

    @property
    def full(self) -> bool:
        """Whether nothing more is noted."""
        return len(self._problems) >= MOST_PROBLEMS

    def add(self, code: str, message: str, offset: int, hint: str | None = None) -> None:
        """Notes a problem at ``offset`` of the text."""
        if not self.full:
            self._problems.append(TemplateFinding(code, message, hint, self._pointer, *place_of(self._text, offset)))

    def add_bare_name(self, name: str, message: str, offset: int, hint: str) -> None:
        """Notes a name that is bound nowhere."""
        if not self.full:
            place = place_of(self._text, offset)
            self._problems.append(BareName("unbound_name", message, hint, self._pointer, *place, name))


@dataclass(frozen=True, slots=True)
class Names:
    """What names mean in one place of a playbook."""

    namespaces: frozenset[str]
    bindings: Bindings
    functions: frozenset[str]

    def meaning(self, node: nodes.Name, findings: Findings) -> tuple[str, ...] | None:
        """The path that a name stands for; ``None`` if it stands for none, which is then noted."""
        name = node.name
        if name in self.namespaces:
            return (name,)
        bound = self.bindings.get(name)
        shown = shorten(name, _NAME_CHARS)
        # `token` is a namespace of admission guards alone; elsewhere a playbook may use the name.
        if name in NAMESPACES and not (name == "token" and bound):
            _not_here(name, f"`{name}` cannot be used here", node, findings)
        elif bound is None:
            if not findings.full:
                findings.add_bare_name(name, f"`{shown}` is bound to nothing", node.lineno, self._unbound_hint(name))
        elif bound[0] not in self.namespaces:
            message = f"`{shown}` means `{'.'.join(bound)}`, which cannot be used here"
            _not_here(bound[0], message, node, findings)
        else:
            return bound
        return None

    def note_unknown_function(self, callee: nodes.Name, findings: Findings) -> None:
        """Notes that no function has the name of ``callee``."""
        name, known = shorten(callee.name, _NAME_CHARS), ", ".join(f"`{name}()`" for name in sorted(self.functions))
        if callee.name in self.bindings or callee.name in NAMESPACES:
            findings.add("template_syntax", f"`{name}` is a value, it cannot be called", callee.lineno)
        else:
            message = f"there is no function `{name}`"
            findings.add_bare_name(callee.name, message, callee.lineno, f"the functions are {known}")

    def _unbound_hint(self, name: str) -> str:
        if name in _OTHER_LANGUAGES:
            return f"write `{_OTHER_LANGUAGES[name]}`"
        close = closest(name, sorted({*self.bindings, *self.namespaces}))
        known = f"did you mean `{close}`? otherwise " if close else ""
        name = shorten(name, _NAME_CHARS)
        return f"{known}write `workload.{name}`, `ctx.{name}` or `args.{name}` for what comes from outside"


def _not_here(namespace: str, message: str, node: nodes.Node, findings: Findings) -> None:
    findings.add("namespace_not_here", message, node.lineno, _WHERE_ALLOWED.get(namespace))
