"""Checks what compiled templates read against what the playbook declares (LANGUAGE §2, §5, §7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from noetl_stream.model.outcome import ErrorInfo, Meta
from noetl_stream.playbook.check.bindings import Declared, IterNames, Path, Visible
from noetl_stream.playbook.check.templates import TemplateRead
from noetl_stream.playbook.diagnostics import Location, Problems, did_you_mean, listed
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.playbook.plan import Reads
from noetl_stream.template import Guard
from noetl_stream.template.runtime.scope import HELPER_FIELDS

OUTCOME_KEYS: Final = frozenset(["status", "result", "error", "meta"])
EVENT_KEYS: Final = frozenset(["name", "step", "status", "result", "error", "loop"])
TOKEN_KEYS: Final = frozenset(["from_step", "cause"])
FAILURE_KEYS: Final = frozenset(["name", "status", "error"])
"""What an arc's guard reads of ``event`` to say that it handles failures (LANGUAGE §7)."""

_FIELDS: Final = {
    "error": [field.name for field in msgspec.structs.fields(ErrorInfo)],
    "meta": [field.name for field in msgspec.structs.fields(Meta)],
    "loop": ["count", "ok", "failed", "skipped"],
    **HELPER_FIELDS,
}
"""Fields of the blocks of ``outcome`` and ``event``, all that there can be."""

_DECLARE: Final = "declare it: keychain: [ { name: …, kind: credential } ], or read it by a `kind: secrets` task before"

_CARRIED: Final = ("workload", "ctx", "steps")


class ReadChecks:
    """Judges what templates read."""

    def __init__(self, declared: Declared, kinds: Kinds, problems: Problems) -> None:
        self._declared = declared
        self._problems = problems
        self._helpers = {spec.helper for spec in kinds.values() if spec.helper} | HELPER_FIELDS.keys()

    def check(self, readings: Iterable[TemplateRead], visible: Visible, kind: KindSpec | None = None) -> None:
        """Reports names that nothing in the playbook can give a value.

        Args:
            kind: That of the task whose inputs or policy these are.
        """
        for reading in readings:
            match reading.path:
                case ("steps", _, *_):
                    self._known(reading, self._declared.steps, "unknown_step", "there is no step `{}`")
                case ("results", _, *_):
                    self._known(reading, visible.results, "unknown_task", "there is no task `{}` in this step")
                case ("event", _, *_):
                    self._block(reading, EVENT_KEYS, ("error", "loop"))
                case ("token", _, *_):
                    self._block(reading, TOKEN_KEYS, ())
                case ("outcome", key, *_) if kind is not None:
                    self._outcome(reading, key, kind)
                case ("iter", *keys):
                    self._iter(reading, keys, visible.iter)
                case ("keychain",):
                    message = "`keychain` is read by the name of an entry"
                    self._problems.error("keychain_whole", message, reading.at, "write keychain.<name>")
                case ("keychain", _, *_):
                    message = "the keychain has no entry `{}`"
                    self._known(reading, visible.keychain, "unknown_name", message, else_hint=_DECLARE)
                case ("vars", key, *_) if key not in visible.vars:
                    self._never_set(reading, "vars", key, visible.vars)
                case _:
                    pass

    def compare(self, guard: Guard, find: Callable[[Path], Location], visible: Visible) -> None:
        """Reports comparisons with a literal that can never be there (LANGUAGE §2).

        Args:
            find: Where the guard reads a path.
        """
        end = "loop.done" if visible.iter.iterators else "step.done"
        possible: dict[Path, tuple[str, ...]] = {
            ("event", "name"): (end, "step.failed"),
            ("event", "status"): ("success", "error"),
            ("outcome", "status"): ("ok", "error"),
        }
        for path, literal in guard.comparisons:
            words = possible.get(path)
            if words and literal not in words:
                hint = f"write one of {listed(words)}"
                message = f"`{'.'.join(path)}` is never `{literal}` here"
                self._problems.error("impossible_comparison", message, find(path), hint)

    def _known(
        self,
        reading: TemplateRead,
        known: Collection[str],
        code: str,
        message: str,
        depth: int = 1,
        else_hint: str | None = None,
    ) -> bool:
        name = reading.path[depth]
        if name in known:
            return True
        hint = did_you_mean(name, known) or else_hint or (f"known: {listed(sorted(known))}" if known else None)
        self._problems.error(code, message.format(name), reading.at, hint)
        return False

    def _block(self, reading: TemplateRead, known: Collection[str], closed: Collection[str]) -> None:
        """Keys of a namespace; of its ``closed`` blocks, their fields too."""
        namespace, key, *more = reading.path
        message = f"`{namespace}` has no `{{}}`"
        if self._known(reading, known, "unknown_name", message) and key in closed and more:
            self._known(reading, _FIELDS[key], "unknown_name", f"`{namespace}.{key}` has no `{{}}`", depth=2)

    def _outcome(self, reading: TemplateRead, key: str, kind: KindSpec) -> None:
        if key in self._helpers and key != kind.helper:
            own = f"it has `outcome.{kind.helper}`" if kind.helper else "it has no block of its own"
            message = f"a task of kind `{kind.kind}` has no `outcome.{key}`"
            self._problems.error("foreign_helper", message, reading.at, own)
            return
        helper = [kind.helper] if kind.helper else []
        closed = {"error", "meta", *helper} & _FIELDS.keys()
        self._block(reading, OUTCOME_KEYS | {*helper}, closed)

    def _iter(self, reading: TemplateRead, keys: list[str], names: IterNames) -> None:
        """Follows ``iter.parent…`` from level to level; only the pipeline's own ``iter`` holds what rules set."""
        depth = 0
        while keys[depth : depth + 1] == ["parent"] and depth + 1 < len(names.iterators):
            depth += 1
        known = names.at(depth)
        if len(keys) == depth or (key := keys[depth]) in known:
            return
        place = ".".join(("iter", *["parent"] * depth))
        other = names.bare.get(key)
        if key == "parent" and names.iterators:
            message = f"`{place}` has no `parent`: there is no loop around that level"
            self._problems.error("unknown_name", message, reading.at)
        elif depth == 0 and not names.is_fixed and other is None:
            self._never_set(reading, "iter", key, known)
        else:
            hint = f"that is `{'.'.join(other)}`" if other else did_you_mean(key, known) or f"it has {listed(known)}"
            self._problems.error("unknown_name", f"`{place}` has no `{key}`", reading.at, hint)

    def _never_set(self, reading: TemplateRead, namespace: str, key: str, known: Collection[str]) -> None:
        hint = did_you_mean(key, known) or f"write it with `set_{namespace}` in a task's policy"
        self._problems.warn("never_set", f"nothing in this step sets `{namespace}.{key}`", reading.at, hint)


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
