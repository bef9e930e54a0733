"""The graph of a drawing, including unreachable parts, and its texts for layout by other programs: Mermaid and DOT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import asdict, replace

from noetl_stream.playbook.net.flow import Facts, Reached, ended_event, reach_of
from noetl_stream.playbook.plan import ArcPlan, Plan, StepPlan, compensation_of

SHOWN_CHARS: Final = 40
"""The most characters of a guard in a label."""

ArcKind = Literal["always", "guarded", "failure", "never"]


class Node(msgspec.Struct, frozen=True):
    """A step in a drawing.

    Attributes:
        kinds: The kinds of its tasks, in order.
        loop: The levels of its loop, outermost first, such as ``city, parallel``.
        join: The number of tokens it waits for, as written; ``None`` without a join.
        admission: Whether rules admit its tokens.
        waits: The places that may wait for a change from outside: its ``admission``, its ``next``.
        routing: The mode of its arcs.
        is_entry, is_reached: Whether runs begin with it, and whether any run reaches it.
        is_finally: Whether it runs at every end, and nothing leads to it.
        undone_by: The kinds of the tasks that undo it, in order.
    """

    step: str
    line: int
    kinds: tuple[str, ...]
    loop: tuple[str, ...]
    join: str | None
    admission: bool
    waits: tuple[str, ...]
    routing: str
    is_entry: bool
    is_reached: bool
    is_finally: bool = False
    undone_by: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The lines of the step's label: its name, kinds, loop, compensation, join and waits."""
        shown = [self.step]
        if self.kinds:
            shown.append(_counted(self.kinds))
        shown += [f"for each {level}" for level in self.loop]
        shown += [f"undone by {_counted(self.undone_by)}"] if self.undone_by else []
        marks = ["finally"] if self.is_finally else []
        marks += [f"joins {self.join}"] if self.join else []
        marks += ["admission"] if self.admission else []
        marks += ["waits at next"] if "next" in self.waits else []
        return [*shown, " · ".join(marks)] if marks else shown


def _counted(kinds: tuple[str, ...]) -> str:
    counted = {kind: kinds.count(kind) for kind in kinds}
    return ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in counted.items())


class Edge(msgspec.Struct, frozen=True):
    """An arc and its guard as written; its kind is ``failure`` if it fires only then, ``never`` if it never fires."""

    source: str
    target: str
    when: str | None
    kind: ArcKind
    line: int

    @property
    def label(self) -> str:
        """The label of the arc: its guard without the braces, cut to :data:`SHOWN_CHARS`."""
        text = "" if self.when is None else " ".join(self.when.strip().removeprefix("{{").removesuffix("}}").split())
        return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


class Graph(msgspec.Struct, frozen=True):
    """The steps and arcs of a playbook, in file order."""

    path: str
    digest: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def to_json(self) -> dict[str, Any]:
        """The graph as JSON: ``path``, ``digest``, ``steps`` and ``arcs``, whose ends are ``from`` and ``to``."""
        arcs = [
            {"from": edge.source, "to": edge.target, "when": edge.when, "kind": edge.kind, "line": edge.line}
            for edge in self.edges
        ]
        return {"path": self.path, "digest": self.digest, "steps": list(map(asdict, self.nodes)), "arcs": arcs}


def drawable_part(draft: Plan) -> Plan | None:
    """The drawable part of a plan with errors: its named steps, and the arcs between them; ``None`` without a step."""
    names = [name for name in draft.steps if name]
    steps = {
        name: replace(step, arcs=tuple(arc for arc in step.arcs if arc.step in names))
        for name, step in draft.steps.items()
        if name
    }
    return replace(draft, steps=steps, entry=draft.entry if draft.entry in steps else names[0]) if names else None


def graph_of(plan: Plan) -> Graph:
    """Builds the graph of a plan."""
    reach = reach_of(plan)
    nodes = tuple(_node(plan, step, reach) for step in plan.steps.values())
    return Graph(plan.path, plan.digest, nodes, tuple(_edges(plan, reach)))


def _node(plan: Plan, step: StepPlan, reach: Reached) -> Node:
    levels = step.loop.levels() if step.loop else []
    undone_by = plan.steps.get(compensation_of(step.name))
    waits = [name for name, wait in (("admission", step.admit and step.admit.wait), ("next", step.next_wait)) if wait]
    return Node(
        step=step.name,
        line=step.line,
        kinds=tuple(task.kind for task in step.tasks),
        loop=tuple(f"{level.iterator}, {level.mode}" for level in levels),
        join=None if step.join is None else str(step.join),
        admission=step.admit is not None,
        waits=tuple(waits),
        routing=step.routing,
        is_entry=step.name == plan.entry,
        is_reached=step.name in reach.runs or step.name == plan.finally_step,
        is_finally=step.name == plan.finally_step,
        undone_by=tuple(task.kind for task in undone_by.tasks) if undone_by is not None else (),
    )


def _edges(plan: Plan, reach: Reached) -> Iterator[Edge]:
    for step in plan.steps.values():
        for index, arc in enumerate(step.arcs):
            is_dead = step.name not in reach.arrived or (step.name, index) in reach.flow.dead
            when = None if arc.guard is None else arc.guard.source
            yield Edge(step.name, arc.step, when, "never" if is_dead else _kind(step, arc), arc.line)


def _kind(step: StepPlan, arc: ArcPlan) -> ArcKind:
    done = ended_event("loop.done" if step.loop is not None else "step.done", step.name)
    if arc.handles_failure and Facts().value(arc.guard, event=done) is False:
        return "failure"
    return "always" if arc.guard is None else "guarded"


_MERMAID_ARROWS: Final[Mapping[ArcKind, str]] = {"always": "-->", "guarded": "-->", "failure": "-.->", "never": "-.-x"}
_DOT_STYLES: Final[Mapping[ArcKind, str]] = {
    "always": "",
    "guarded": "",
    "failure": ' style=dashed color="#b3261e"',
    "never": ' style=dotted color="#999999"',
}


def mermaid(graph: Graph) -> str:
    """Draws a Mermaid flowchart. Steps have ids of their own, so that names such as ``end`` are safe."""
    return "\n".join(["flowchart TD", *_mermaid_lines(graph)]) + "\n"


def _mermaid_lines(graph: Graph) -> Iterator[str]:
    ids = {node.step: f"s{index}" for index, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        label = "<br/>".join(map(_mermaid_text, node.lines))
        opened, closed = ("([", "])") if node.is_entry else ("{{", "}}") if node.join else ("[", "]")
        yield f'  {ids[node.step]}{opened}"{label}"{closed}'
    for edge in graph.edges:
        label = f'|"{_mermaid_text(edge.label)}"|' if edge.label else ""
        yield f"  {ids[edge.source]} {_MERMAID_ARROWS[edge.kind]}{label} {ids[edge.target]}"
    unreached = [ids[node.step] for node in graph.nodes if not node.is_reached]
    if unreached:
        yield "  classDef unreached stroke-dasharray:4 4,color:#777"
        yield f"  class {','.join(unreached)} unreached"


def _mermaid_text(text: str) -> str:
    """Escapes text for quotes: characters that Mermaid or HTML would read as code become entities."""
    safe = " .,_×·…"
    return "".join(one if one.isalnum() or one in safe else f"#{ord(one)};" for one in text)


def dot(graph: Graph) -> str:
    """Draws a DOT digraph, for Graphviz."""
    nodes = [_dot_node(node) for node in graph.nodes]
    edges = [_dot_edge(edge) for edge in graph.edges]
    look = ['  node [shape=box style=rounded fontname="sans-serif"]', '  edge [fontname="sans-serif" fontsize=10]']
    return "\n".join(["digraph playbook {", *look, *nodes, *edges, "}"]) + "\n"


def _dot_node(node: Node) -> str:
    style = "" if node.is_reached else ' style="rounded,dashed" fontcolor="#777777"'
    marks = (" penwidth=2" if node.is_entry else "") + (" shape=hexagon" if node.join else "")
    return f"  {_dot_text(node.step)} [label={_dot_text(chr(10).join(node.lines))}{marks}{style}]"


def _dot_edge(edge: Edge) -> str:
    label = f"label={_dot_text(edge.label)}"
    return f"  {_dot_text(edge.source)} -> {_dot_text(edge.target)} [{label}{_DOT_STYLES[edge.kind]}]"


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
