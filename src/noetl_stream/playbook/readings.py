"""Checks what compiled templates read against what the playbook declares (LANGUAGE §2, §5, §7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from noetl_stream.playbook.bindings import Declared, iter_names, written
from noetl_stream.playbook.diagnostics import Place, Problems, did_you_mean, listed
from noetl_stream.playbook.kinds import Kinds, KindSpec
from noetl_stream.playbook.loop import READ_ONLY
from noetl_stream.playbook.plan import Reads
from noetl_stream.playbook.step import StepDraft
from noetl_stream.playbook.templates import Reading
from noetl_stream.template import Guard

OUTCOME_KEYS: Final = frozenset(["status", "result", "error", "meta"])
EVENT_KEYS: Final = frozenset(["name", "step", "status", "result", "error", "loop"])
TOKEN_KEYS: Final = frozenset(["from_step", "cause"])
FAILURE_KEYS: Final = frozenset(["name", "status", "error"])
"""What an arc's guard reads of ``event`` to say that it handles failures (LANGUAGE §7)."""

_CARRIED: Final = ("workload", "ctx", "steps")


class ReadingChecks:
    """Judges what templates read. Outside of steps, ``step`` is ``None``."""

    def __init__(self, declared: Declared, kinds: Kinds, problems: Problems) -> None:
        self._declared = declared
        self._problems = problems
        self._helpers = {spec.helper for spec in kinds.values() if spec.helper} | {"http", "pg", "py"}

    def check(self, readings: Iterable[Reading], step: StepDraft | None, kind: KindSpec | None = None) -> None:
        """Reports names that nothing in the playbook can give a value."""
        for reading in readings:
            if reading.key is None:
                continue
            match reading.namespace:
                case "steps":
                    self._known(reading, self._declared.steps, "unknown_step", "there is no step `{}`")
                case "results":
                    tasks = [task.name for task in step.tasks] if step else []
                    self._known(reading, tasks, "unknown_task", "there is no task `{}` in this step")
                case "event":
                    self._known(reading, EVENT_KEYS, "unknown_name", "`event` has no `{}`")
                case "token":
                    self._known(reading, TOKEN_KEYS, "unknown_name", "`token` has no `{}`")
                case "outcome":
                    self._outcome(reading, kind)
                case "iter" if step:
                    self._scratch(reading, [*iter_names(step), *(READ_ONLY if step.loop else ())], "set_iter")
                case "vars" if step:
                    self._scratch(reading, written(step, "vars"), "set_vars")
                case _:
                    pass

    def compare(self, guard: Guard, find: Callable[[str, str], Place], step: StepDraft) -> None:
        """Reports comparisons with a literal that can never be there (LANGUAGE §2).

        Args:
            find: Where the guard reads a namespace's key.
        """
        end = "loop.done" if step.loop else "step.done"
        possible = {
            ("event", "name"): (end, "step.failed"),
            ("event", "status"): ("success", "error"),
            ("outcome", "status"): ("ok", "error"),
        }
        for path, literal in guard.comparisons:
            words = possible.get((path[0], path[1])) if len(path) == 2 else None
            if words and literal not in words:
                name = ".".join(path)
                hint = f"write one of {listed(words)}"
                message = f"`{name}` is never `{literal}` here"
                self._problems.error("impossible_comparison", message, find(*path), hint)

    def _known(self, reading: Reading, known: Collection[str], code: str, message: str) -> None:
        name = reading.key or ""
        if name not in known:
            hint = did_you_mean(name, known) or (f"known: {', '.join(known)}" if known else None)
            self._problems.error(code, message.format(name), reading.at, hint)

    def _outcome(self, reading: Reading, kind: KindSpec | None) -> None:
        name = reading.key
        if kind is None or name in OUTCOME_KEYS or name == kind.helper:
            return
        if name in self._helpers:
            own = f"it has `outcome.{kind.helper}`" if kind.helper else "it has no helper of its own"
            message = f"a task of kind `{kind.kind}` has no `outcome.{name}`"
            self._problems.error("foreign_helper", message, reading.at, own)
            return
        known = sorted(OUTCOME_KEYS | {kind.helper or "status"})
        self._known(reading, known, "unknown_name", "`outcome` has no `{}`")

    def _scratch(self, reading: Reading, known: Collection[str], setter: str) -> None:
        if reading.key not in known:
            name = f"{reading.namespace}.{reading.key}"
            hint = did_you_mean(reading.key or "", known) or f"write it with `{setter}` in a task's policy"
            self._problems.warn("never_set", f"nothing in this step sets `{name}`", reading.at, hint)


def union_of(reads: Iterable[tuple[str, str | None]], opaque: Iterable[str]) -> Reads:
    """What a step's commands must carry. ``opaque`` are namespaces of which any key may be read."""
    keys: dict[str, set[str]] = {name: set() for name in _CARRIED}
    whole = set(opaque)
    for namespace, key in reads:
        if namespace in keys:
            if key is None:
                whole.add(namespace)
            else:
                keys[namespace].add(key)

    def of(name: str) -> frozenset[str] | None:
        return None if name in whole else frozenset(keys[name])

    return Reads(workload=of("workload"), ctx=of("ctx"), steps=of("steps"))
