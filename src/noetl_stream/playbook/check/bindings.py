"""The namespaces that templates may read at each place, and the paths of bare names there (LANGUAGE §2)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from noetl_stream.model.events import Boundary
from noetl_stream.playbook.model.document import ParsedPlaybook
from noetl_stream.playbook.model.loop import READ_ONLY, LoopDraft
from noetl_stream.playbook.model.step import MERGED_ARGS, StepDraft
from noetl_stream.template import Bindings
from noetl_stream.template.runtime.scope import NAMESPACES, SHADOWABLE

Path = tuple[str, ...]

_WORKER: Final = NAMESPACES - {"keychain", "outcome", "event", "token"} | SHADOWABLE
_SERVER: Final = frozenset(["workload", "ctx", "steps", "execution_id", "execution"])

INPUTS: Final = _WORKER | {"keychain"}
POLICY: Final = _WORKER | {"outcome"}
BOUNDS: Final = _WORKER
"""The namespaces of ``attempts`` and timeouts of a task: those of its inputs, without secrets."""

SUGAR: Final = _WORKER - {"_task", "_attempt"}
ARC: Final = _SERVER | {"event", "vars", "args"}
ADMISSION: Final = _SERVER | {"args", "token"}
STARTED: Final = _SERVER - {"steps"} | {"args"}
"""The namespaces of a step run's timeout: none that may be kept by reference."""

LOOP: Final = _SERVER | {"args"}
INNER_LOOP: Final = LOOP | {"iter"}
RESULT: Final = _SERVER
STARTING: Final = frozenset(["workload", "execution_id", "execution"])
"""The namespaces that exist before an execution begins."""

_ORDER: Final = ("args", "ctx", "iter", "workload", "results", "steps")
"""The order in which namespaces are searched for a bare name (LANGUAGE §2)."""

_WORDS: Final = SHADOWABLE | {"schedule"}
"""Names that are namespaces unless they are declared, in the playbook or in the workload of a schedule."""

Names = Mapping[str, Path]
"""Bare names of one namespace with their paths, such as ``{"city": ("iter", "parent", "city")}``."""


class IterNames(msgspec.Struct, frozen=True):
    """The keys of ``iter`` at one place: those that rules set, and the iterators of the levels, innermost first.

    ``is_fixed``: rules cannot set keys there, as in the ``in`` of an inner loop.
    """

    written: tuple[str, ...]
    iterators: tuple[str, ...]
    is_fixed: bool = False

    def names_at(self, depth: int) -> tuple[str, ...]:
        """The keys of ``iter`` (depth 0), ``iter.parent`` (depth 1), and so on."""
        own = self.written if depth == 0 else ()
        if depth >= len(self.iterators):
            return own
        fixed = READ_ONLY if depth + 1 < len(self.iterators) else READ_ONLY - {"parent"}
        return (*own, self.iterators[depth], *sorted(fixed))

    @property
    def bare(self) -> Names:
        """The bare names bound to keys of ``iter``, innermost iterator first."""
        found = {name: ("iter", *["parent"] * depth, name) for depth, name in enumerate(self.iterators) if name}
        return found | {name: ("iter", name) for name in self.written if name not in found}


NOTHING_IN_ITER: Final = IterNames((), ())


class Visible(msgspec.Struct, frozen=True):
    """The names visible to templates at one place.

    Attributes:
        namespaces: The readable namespaces.
        bindings: Bare names and their paths.
        shadowed: All paths of bare names that are declared more than once.
        unambiguous: ``bindings`` with ``None`` for the names in ``shadowed``.
        elsewhere: Paths of names of this step that cannot be read here.
        iter: The keys of ``iter``.
        vars: The keys of ``vars``.
        results: The tasks with results.
        step: The name of the step.
        knows_end: Whether ``execution`` has the coming end.
        keychain: The keychain entries.
        waits: Whether tokens or branches may wait at this admission or ``next`` for values that its guards read.
        token: The keys of ``token`` that rules of the admission set.
        emitted_on: The boundaries of a step run at which an event is emitted; empty in all other places.
    """

    namespaces: frozenset[str]
    bindings: Names
    shadowed: Mapping[str, tuple[Path, ...]]
    elsewhere: Names
    iter: IterNames = NOTHING_IN_ITER
    vars: Collection[str] = ()
    results: Collection[str] = ()
    step: str = ""
    knows_end: bool = False
    keychain: Collection[str] = ()
    waits: bool = False
    token: Collection[str] = ()
    emitted_on: frozenset[Boundary] = frozenset()
    unambiguous: Bindings = msgspec.field(default_factory=dict)


class Declarations:
    """The names that a playbook declares.

    ``ctx``, ``workload`` and ``steps`` are readable everywhere, so they are bound once; each place adds the names of
    its own step.

    Attributes:
        steps: The steps by name.
        ctx: The keys of ``ctx`` that rules set.
        workload: The declared keys of ``workload``.
        defaults: Their values.
        is_closed: Whether an execution can have no further key of ``workload``.
    """

    def __init__(self, document: ParsedPlaybook, steps: list[StepDraft]) -> None:
        self.steps: Final = {step.name: step for step in steps if step.name}
        self._keychain: Final = document.keychain
        self._finally_step: Final = document.ending.finally_step
        ctx = (name for step in steps for pipeline in step.pipelines for name in written_keys(pipeline, "ctx"))
        self._common: dict[str, Names] = {
            "ctx": _paths("ctx", ctx),
            "workload": _paths("workload", document.inputs),
            "steps": _paths("steps", self.steps),
        }
        self.ctx: Final = self._common["ctx"].keys()
        self.workload: Final = self._common["workload"].keys()
        self.defaults: Final = document.workload
        schema = document.workload_schema
        self.is_closed: Final = schema is not None and schema.is_closed
        self._args: dict[str, dict[str, Path]] = {}
        for step in steps:
            for arc in step.arcs:
                self._args.setdefault(arc.step, {}).update(_paths("args", arc.args.keys if arc.args else ()))
            if step.join:
                self._args.setdefault(step.name, {}).update(_paths("args", MERGED_ARGS))
        self._bindings, self._shadowed, self._unambiguous = _bind(self._common, self._common.values())

    def args_of(self, step: str) -> Collection[str]:
        """The keys of ``args`` that the arcs to a step give."""
        return self._args.get(step, ())

    def visible(self, namespaces: frozenset[str], step: StepDraft | None, level: LoopDraft | None = None) -> Visible:
        """The names visible at a place in ``step``, or outside all steps.

        Args:
            level: The loop level that the place belongs to; ``None`` for the pipeline.
        """
        names = _iter_names(step, level) if step else NOTHING_IN_ITER
        own = self._own_names(step, names) if step else {}
        in_pipeline = self._own_names(step, _iter_names(step, None)) if step else {}
        here = {space: bound for space, bound in own.items() if space in namespaces}
        bindings, shadowed, unambiguous = _bind(self._common | here, here.values())
        is_last = step is not None and step.name == self._finally_step and namespaces in (INPUTS, POLICY, SUGAR, BOUNDS)
        for name in _WORDS:
            path = bindings.get(name) or self._bindings.get(name)
            if path is not None:
                shadowed[name] = (*(shadowed.get(name) or self._shadowed.get(name) or (path,)), (name,))
                unambiguous[name] = None
        token = step.admit.token_keys if step is not None and step.admit is not None else []
        return Visible(
            namespaces=namespaces | {"token"} if token else namespaces,
            bindings=ChainMap(bindings, self._bindings),
            shadowed=ChainMap(shadowed, self._shadowed),
            elsewhere={name: path for bound in in_pipeline.values() for name, path in bound.items()},
            iter=names,
            vars=self._keys_of_vars(step) if step else (),
            results=own.get("results", ()),
            step=step.name if step else "",
            knows_end=is_last,
            keychain=self._keychain,
            waits=step is not None and _waits(step, namespaces),
            token=token if namespaces != ADMISSION else (),
            unambiguous=ChainMap(unambiguous, self._unambiguous),
        )

    def _keys_of_vars(self, step: StepDraft) -> list[str]:
        """The keys of ``vars`` that the pipeline sets; for a compensation also those of the run that it undoes."""
        undone = self.steps.get(step.name, step)
        return [*written_keys(step, "vars"), *(written_keys(undone, "vars") if undone is not step else ())]

    def _own_names(self, step: StepDraft, names: IterNames) -> dict[str, Names]:
        results = _paths("results", step.results)
        return {"args": self._args.get(step.name, {}), "iter": names.bare, "results": results}


def _waits(step: StepDraft, namespaces: frozenset[str]) -> bool:
    if namespaces == ADMISSION:
        return step.admit is not None and step.admit.wait is not None
    return namespaces == ARC and step.router.wait is not None


def _paths(namespace: str, names: Iterable[str]) -> dict[str, Path]:
    return {name: (namespace, name) for name in names}


def _bind(
    declared: Mapping[str, Names], wanted: Iterable[Names]
) -> tuple[dict[str, Path], dict[str, tuple[Path, ...]], dict[str, Path | None]]:
    """Computes ``bindings``, ``shadowed`` and ``unambiguous`` of :class:`Visible`, for the names in ``wanted``."""
    bindings: dict[str, Path] = {}
    shadowed: dict[str, tuple[Path, ...]] = {}
    unambiguous: dict[str, Path | None] = {}
    spaces = [declared[space] for space in _ORDER if space in declared]
    for name in (name for names in wanted for name in names if name not in NAMESPACES):
        paths = tuple(names[name] for names in spaces if name in names)
        bindings[name] = paths[0]
        unambiguous[name] = paths[0] if len(paths) == 1 else None
        if len(paths) > 1:
            shadowed[name] = paths
    return bindings, shadowed, unambiguous


def written_keys(step: StepDraft, namespace: str) -> list[str]:
    """The keys of ``ctx``, ``iter`` or ``vars`` that a step's task policies set, without duplicates."""
    names = [key.name for rule in step.rules for key, _ in rule.writes.get(namespace, ())]
    shared = [shared.key.name for rule in step.rules for shared in rule.shared] if namespace == "ctx" else []
    return list(dict.fromkeys(names + shared))


def _iter_names(step: StepDraft, level: LoopDraft | None) -> IterNames:
    levels = step.levels if level is None else step.levels[: step.levels.index(level)]
    iterators = tuple(around.iterator or "" for around in reversed(levels))
    written = written_keys(step, "iter") if level is None else ()
    return IterNames(tuple(written), iterators, is_fixed=level is not None)
