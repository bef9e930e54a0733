"""What templates may read at each place of a playbook, and what bare names mean there (LANGUAGE §2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from noetl_stream.playbook.document import Document
from noetl_stream.playbook.names import NAMESPACES
from noetl_stream.playbook.step import StepDraft

Path = tuple[str, ...]

_WORKER: Final = NAMESPACES - {"keychain", "outcome", "event", "token"}
_SERVER: Final = frozenset(["workload", "ctx", "steps", "execution_id"])

INPUTS: Final = _WORKER | {"keychain"}
POLICY: Final = _WORKER | {"outcome"}
ARC: Final = _SERVER | {"event", "vars", "args"}
ADMISSION: Final = _SERVER | {"args", "token"}
LOOP: Final = _SERVER | {"args"}
RESULT: Final = _SERVER


@dataclass(frozen=True, slots=True)
class Visible:
    """The names of one place: namespaces, what bare names are bound to, every reading of those that are declared more
    than once, the bindings of those that are not, and names that mean something only in other places."""

    namespaces: frozenset[str]
    bindings: Mapping[str, Path]
    shadowed: Mapping[str, tuple[Path, ...]]
    unambiguous: Mapping[str, Path]
    elsewhere: Mapping[str, Path]


class Declared:
    """Every name a playbook declares."""

    def __init__(self, document: Document, steps: list[StepDraft]) -> None:
        self.steps: Final = {step.name: step for step in steps if step.name}
        self._workload = tuple(document.workload)
        self._ctx = tuple(dict.fromkeys(name for step in steps for name in written(step, "ctx")))
        self._args: dict[str, dict[str, None]] = {}
        for step in steps:
            for arc in step.arcs:
                self._args.setdefault(arc.step, {}).update(dict.fromkeys(arc.args.keys if arc.args else ()))

    def visible(self, namespaces: frozenset[str], step: StepDraft | None) -> Visible:
        """The names of a place in ``step``, or outside of all steps."""
        candidates: dict[str, list[Path]] = {}
        elsewhere: dict[str, Path] = {}
        for namespace, names in self._in_order(step):
            for name in names:
                if name in NAMESPACES:
                    continue
                if namespace in namespaces:
                    candidates.setdefault(name, []).append((namespace, name))
                else:
                    elsewhere.setdefault(name, (namespace, name))
        return Visible(
            namespaces=namespaces,
            bindings={name: paths[0] for name, paths in candidates.items()},
            shadowed={name: tuple(paths) for name, paths in candidates.items() if len(paths) > 1},
            unambiguous={name: paths[0] for name, paths in candidates.items() if len(paths) == 1},
            elsewhere=elsewhere,
        )

    def _in_order(self, step: StepDraft | None) -> Iterable[tuple[str, Iterable[str]]]:
        """Namespaces in the order in which they win (LANGUAGE §2 *Bare names*)."""
        yield "args", self._args.get(step.name, ()) if step else ()
        yield "ctx", self._ctx
        yield "iter", iter_names(step) if step else ()
        yield "workload", self._workload
        yield "results", [task.name for task in step.tasks] if step else ()
        yield "steps", self.steps


def written(step: StepDraft, namespace: str) -> list[str]:
    """The keys that the task policies of a step write into ``ctx``, ``iter`` or ``vars``, each once."""
    policies = [task.policy for task in step.tasks if task.policy]
    rules = [rule for policy in policies for rule in policy.rules]
    return list(dict.fromkeys(key.name for rule in rules for key, _ in rule.writes.get(namespace, ())))


def iter_names(step: StepDraft) -> list[str]:
    """What ``iter`` holds in a step beyond what the loop itself sets."""
    iterator = [step.loop.iterator] if step.loop and step.loop.iterator else []
    return [*iterator, *(name for name in written(step, "iter") if name not in iterator)]
