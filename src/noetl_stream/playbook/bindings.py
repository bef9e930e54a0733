"""What templates may read at each place of a playbook, and what bare names mean there (LANGUAGE §2)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
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


_ORDER: Final = ("args", "ctx", "iter", "workload", "results", "steps")
"""In which order namespaces win a bare name (LANGUAGE §2)."""


@dataclass(frozen=True, slots=True)
class Visible:
    """The names of one place: namespaces, what bare names are bound to, every reading of those that are declared more
    than once, and what names of this step mean that cannot be read here."""

    namespaces: frozenset[str]
    bindings: Mapping[str, Path]
    shadowed: Mapping[str, tuple[Path, ...]]
    elsewhere: Mapping[str, Path]

    @property
    def unambiguous(self) -> Mapping[str, Path]:
        """The bindings of names that are declared once."""
        return {name: path for name, path in self.bindings.items() if name not in self.shadowed}


class Declared:
    """Every name a playbook declares.

    ``ctx``, ``workload`` and ``steps`` can be read everywhere, so their bindings are made once; a place adds those of
    its own step.
    """

    def __init__(self, document: Document, steps: list[StepDraft]) -> None:
        self.steps: Final = {step.name: step for step in steps if step.name}
        ctx = dict.fromkeys(name for step in steps for name in written(step, "ctx"))
        self._shared: dict[str, Collection[str]] = {"ctx": ctx, "workload": document.workload, "steps": self.steps}
        self._args: dict[str, dict[str, None]] = {}
        for step in steps:
            for arc in step.arcs:
                self._args.setdefault(arc.step, {}).update(dict.fromkeys(arc.args.keys if arc.args else ()))
        names = [name for shared in self._shared.values() for name in shared]
        self._bindings, self._shadowed = _bound(names, self._shared)

    def visible(self, namespaces: frozenset[str], step: StepDraft | None) -> Visible:
        """The names of a place in ``step``, or outside of all steps."""
        own = self._own(step) if step else {}
        here = {name: names for name, names in own.items() if name in namespaces}
        bindings, shadowed = _bound((name for names in here.values() for name in names), self._shared | here)
        return Visible(
            namespaces=namespaces,
            bindings=ChainMap(bindings, self._bindings),
            shadowed=ChainMap(shadowed, self._shadowed),
            elsewhere={name: (space, name) for space in own if space not in here for name in own[space]},
        )

    def _own(self, step: StepDraft) -> dict[str, Collection[str]]:
        tasks = [task.name for task in step.tasks]
        return {"args": self._args.get(step.name, {}), "iter": iter_names(step), "results": tasks}


def _bound(
    names: Iterable[str], declared: Mapping[str, Collection[str]]
) -> tuple[dict[str, Path], dict[str, tuple[Path, ...]]]:
    """What ``names`` mean: the reading that wins, and all readings of those that have several."""
    bindings: dict[str, Path] = {}
    shadowed: dict[str, tuple[Path, ...]] = {}
    for name in names:
        paths = tuple((space, name) for space in _ORDER if name in declared.get(space, ()))
        if name not in NAMESPACES:
            bindings[name] = paths[0]
            if len(paths) > 1:
                shadowed[name] = paths
    return bindings, shadowed


def written(step: StepDraft, namespace: str) -> list[str]:
    """The keys that the task policies of a step write into ``ctx``, ``iter`` or ``vars``, each once."""
    policies = [task.policy for task in step.tasks if task.policy]
    rules = [rule for policy in policies for rule in policy.rules]
    return list(dict.fromkeys(key.name for rule in rules for key, _ in rule.writes.get(namespace, ())))


def iter_names(step: StepDraft) -> list[str]:
    """What ``iter`` holds in a step beyond what the loop itself sets."""
    iterator = [step.loop.iterator] if step.loop and step.loop.iterator else []
    return [*iterator, *(name for name in written(step, "iter") if name not in iterator)]
