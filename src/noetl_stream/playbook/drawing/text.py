"""Drawings as text that other programs lay out: Mermaid and DOT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from noetl_stream.playbook.drawing.drawn_graph import ArcKind, Edge, Graph, Node

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
