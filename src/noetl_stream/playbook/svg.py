"""Drawings as SVG, made without other programs, in a layered layout (Sugiyama's method).

Steps are in rows from the entry down, guards in the rows between them; arcs that lead back are drawn upward. Each row
is ordered so that few lines cross, then moved so that they are straight.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.playbook.check.step_graph import postorder
from noetl_stream.playbook.drawing import ArcKind, Edge, Graph, Node

MAX_POINTS: Final = 4000
"""The most steps and bends of one picture."""

CHAR_WIDTH: Final = 7.2
LINE_HEIGHT: Final = 16.0
PADDING: Final = 12.0
GAP: Final = 28.0
ROW_GAP: Final = 20.0

_SWEEPS: Final = 60

Key = str | tuple[int, int]
"""A step, or a bend of an arc: the index of its arc, and the row."""

Rows = Sequence[list[Key]]
Near = Mapping[Key, Sequence[Key]]
Sizes = Mapping[Key, tuple[float, float]]
Point = tuple[float, float]


class Box(msgspec.Struct, frozen=True):
    """A placed step: its centre, width and height."""

    node: Node
    x: float
    y: float
    width: float
    height: float


class DrawnArc(msgspec.Struct, frozen=True):
    """A placed arc: the points from its source to its target, and the centre of its label."""

    edge: Edge
    points: tuple[Point, ...]
    label_at: Point


class Picture(msgspec.Struct, frozen=True):
    """A laid-out picture; lengths are in pixels."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[DrawnArc, ...]


def lay_out(graph: Graph) -> Picture:
    """Lays out the steps and arcs of a graph.

    Raises:
        UsageError: more than :data:`MAX_POINTS` steps and bends.
    """
    row_of = _rows(graph)
    if sum(abs(row_of[edge.source] - row_of[edge.target]) for edge in graph.edges) + len(graph.nodes) > MAX_POINTS:
        message = f"the playbook is too large for a picture: more than {MAX_POINTS} steps and bends (max_points)"
        raise UsageError(message, hint="write it as dot, and let Graphviz draw it")
    chains = [_chain(index, edge, row_of) for index, edge in enumerate(graph.edges)]
    near: dict[Key, list[Key]] = {}
    for one, other in (link for chain in chains for link in pairwise(chain)):
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    sizes = _sizes(graph, chains)
    rows = _order_rows(graph, row_of, chains, near)
    across, down = _columns(rows, near, sizes), _heights(rows, sizes)
    places: dict[Key, Point] = {key: (across[key], down[row]) for row, keys in enumerate(rows) for key in keys}
    boxes = {node.step: Box(node, *places[node.step], *sizes[node.step]) for node in graph.nodes}
    lines = tuple(_line(edge, chain, places, boxes) for edge, chain in zip(graph.edges, chains, strict=True))
    right = max(across[key] + sizes[key][0] / 2 for key in across)
    bottom = max(box.y + box.height / 2 for box in boxes.values())
    return Picture(right + GAP, bottom + GAP, tuple(boxes.values()), lines)


def _rows(graph: Graph) -> dict[str, int]:
    """The row of each step: even, and below the steps whose arcs lead to it, except backward arcs."""
    steps = [node.step for node in sorted(graph.nodes, key=lambda node: not node.is_entry)]
    after: dict[str, list[str]] = {step: [] for step in steps}
    for edge in graph.edges:
        after[edge.source].append(edge.target)
    finished = postorder(after)
    place = {step: index for index, step in enumerate(finished)}
    row_of = dict.fromkeys(after, 0)
    for step in reversed(finished):
        for target in after[step]:
            # In a depth-first search, only a backward arc ends at a step that is finished later.
            if place[target] < place[step]:
                row_of[target] = max(row_of[target], row_of[step] + 2)
    return row_of


def _chain(index: int, edge: Edge, row_of: Mapping[str, int]) -> list[Key]:
    """The two steps of an arc with the bends between them, downward. An arc to its own step has one bend, below it."""
    ends = sorted((edge.source, edge.target), key=lambda step: row_of[step])
    upper, lower = (row_of[step] for step in ends)
    bends: list[Key] = [(index, row) for row in range(upper + 1, max(lower, upper + 2))]
    return [ends[0], *bends] if edge.source == edge.target else [ends[0], *bends, ends[1]]


def _label_bend(edge: Edge, chain: Sequence[Key]) -> Key:
    """The bend next to the source of an arc."""
    return chain[1] if edge.source == chain[0] else chain[-2]


def _sizes(graph: Graph, chains: Sequence[Sequence[Key]]) -> dict[Key, tuple[float, float]]:
    sizes: dict[Key, tuple[float, float]] = {}
    for node in graph.nodes:
        width = max(map(len, node.lines)) * CHAR_WIDTH + 2 * PADDING
        sizes[node.step] = (width, len(node.lines) * LINE_HEIGHT + PADDING)
    for edge, chain in zip(graph.edges, chains, strict=True):
        label = _label_bend(edge, chain)
        for key in chain:
            if not isinstance(key, str):
                sizes[key] = (len(edge.label) * CHAR_WIDTH if key == label else 0, LINE_HEIGHT)
    return sizes


def _order_rows(
    graph: Graph, row_of: Mapping[str, int], chains: Sequence[Sequence[Key]], near: Near
) -> list[list[Key]]:
    """Orders each row by the mean place of the connected elements in the row before."""
    bends = [key for chain in chains for key in chain if not isinstance(key, str)]
    count = max(1, *(row + 1 for row in row_of.values()), *(row + 1 for _, row in bends))
    rows: list[list[Key]] = [[] for _ in range(count)]
    for node in graph.nodes:
        rows[row_of[node.step]].append(node.step)
    for bend in bends:
        rows[bend[1]].append(bend)
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for above, ordered in pairwise(rows if downward else rows[::-1]):
            place = {key: index for index, key in enumerate(above)}
            means = {}
            for index, key in enumerate(ordered):
                linked = [place[other] for other in near.get(key, ()) if other in place]
                means[key] = fmean(linked or [index])
            ordered.sort(key=means.__getitem__)
    return rows


def _columns(rows: Rows, near: Near, sizes: Sizes) -> dict[Key, float]:
    """The centres of all elements: as close to the mean of their connected elements as their neighbours allow."""
    across: dict[Key, float] = {}
    for row in rows:
        across |= dict(zip(row, _offsets(row, sizes), strict=True))
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [fmean([across[other] for other in near.get(key, ())] or [across[key]]) for key in row]
            across |= dict(zip(row, _space_out(wanted, _offsets(row, sizes)), strict=True))
    left = min(across[key] - sizes[key][0] / 2 for key in across)
    return {key: x - left + GAP for key, x in across.items()}


def _offsets(row: Sequence[Key], sizes: Sizes) -> list[float]:
    """The centres of a row's elements with the least space between them."""
    gaps = [(sizes[one][0] + sizes[other][0]) / 2 + GAP for one, other in pairwise(row)]
    return list(accumulate(gaps, initial=0.0))[: len(row)]


def _space_out(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The positions closest to the wanted ones, at least as far apart as the offsets (isotonic regression)."""
    blocks: list[tuple[float, int]] = []
    for target, offset in zip(wanted, offsets, strict=True):
        mean, count = target - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, size = blocks.pop()
            mean, count = (mean * count + before * size) / (count + size), count + size
        blocks.append((mean, count))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]


def _heights(rows: Rows, sizes: Sizes) -> list[float]:
    """The vertical centre of each row."""
    centres, bottom = [], GAP
    for row in rows:
        height = max((sizes[key][1] for key in row), default=0.0)
        centres.append(bottom + height / 2)
        bottom += height + ROW_GAP
    return centres


def _line(edge: Edge, chain: Sequence[Key], places: Mapping[Key, Point], boxes: Mapping[str, Box]) -> DrawnArc:
    label_at = places[_label_bend(edge, chain)]
    source, target = boxes[edge.source], boxes[edge.target]
    if edge.source == edge.target:
        bottom, aside = source.y + source.height / 2, source.width / 4
        return DrawnArc(edge, ((source.x + aside, bottom), label_at, (source.x - aside, bottom)), label_at)
    bends = [places[key] for key in chain[1:-1]]
    if edge.source == chain[0]:
        start, end = source.y + source.height / 2, target.y - target.height / 2
    else:
        bends.reverse()
        start, end = source.y - source.height / 2, target.y + target.height / 2
    return DrawnArc(edge, ((source.x, start), *bends, (target.x, end)), label_at)


_NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLORS: Final[Mapping[ArcKind, str]] = {
    "always": "#334155",
    "guarded": "#334155",
    "failure": "#b3261e",
    "never": "#94a3b8",
}
_DASHES: Final[Mapping[ArcKind, str]] = {"failure": "6 4", "never": "2 4"}
_FONT: Final = {"font-family": "ui-monospace, Menlo, Consolas, monospace", "font-size": "12"}


def svg(graph: Graph) -> str:
    """Draws an SVG picture. A guard that is cut is shown whole as a tooltip.

    Raises:
        UsageError: the playbook is too large for a picture.
    """
    layout = lay_out(graph)
    size = {"width": f"{layout.width:.0f}", "height": f"{layout.height:.0f}"}
    box = f"0 0 {layout.width:.0f} {layout.height:.0f}"
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "viewBox": box, **_FONT})
    SubElement(root, "title").text = _xml_text(graph.path)
    SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    for kind, color in _COLORS.items():
        _arrowhead(SubElement(root, "defs"), kind, color)
    for line in layout.lines:
        _draw_line(root, line)
    for one in layout.boxes:
        _draw_box(root, one)
    indent(root)
    return tostring(root, encoding="unicode") + "\n"


def _arrowhead(parent: Element, kind: ArcKind, color: str) -> None:
    about = {"viewBox": "0 0 8 8", "refX": "8", "refY": "4", "markerWidth": "8", "markerHeight": "8", "orient": "auto"}
    marker = SubElement(parent, "marker", {"id": f"to-{kind}", **about})
    SubElement(marker, "path", {"d": "M0 0 L8 4 L0 8 z", "fill": color})


def _draw_line(parent: Element, line: DrawnArc) -> None:
    kind, color = line.edge.kind, _COLORS[line.edge.kind]
    group = SubElement(parent, "g")
    if line.edge.when is not None:
        SubElement(group, "title").text = _xml_text(line.edge.when)
    dashes = {"stroke-dasharray": _DASHES[kind]} if kind in _DASHES else {}
    about = {"fill": "none", "stroke": color, "marker-end": f"url(#to-{kind})", **dashes}
    SubElement(group, "path", {"d": _curve(line.points), **about})
    if line.edge.label:
        halo = {"paint-order": "stroke", "stroke": "white", "stroke-width": "5"}
        _text(group, line.edge.label, *line.label_at, {"fill": color, **halo})


def _curve(points: tuple[Point, ...]) -> str:
    """The path of a smooth line through the points, upright at both ends (Catmull and Rom's spline)."""
    before, after = (_mirror(points[1], points[0]), _mirror(points[-2], points[-1]))
    around = [before, *points, after]
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x0, y0), (x1, y1), (x2, y2), (x3, y3) in zip(around, around[1:], around[2:], around[3:], strict=False):
        control = f"{x1 + (x2 - x0) / 6:.1f} {y1 + (y2 - y0) / 6:.1f} {x2 - (x3 - x1) / 6:.1f} {y2 - (y3 - y1) / 6:.1f}"
        parts.append(f"C{control} {x2:.1f} {y2:.1f}")
    return " ".join(parts)


def _mirror(point: Point, end: Point) -> Point:
    """Mirrors a point at an end of the line, so that the line is upright there."""
    return (point[0], 2 * end[1] - point[1])


def _draw_box(parent: Element, box: Box) -> None:
    node = box.node
    group = SubElement(parent, "g")
    SubElement(group, "title").text = f"{node.step}, line {node.line}"
    place = {"x": f"{box.x - box.width / 2:.1f}", "y": f"{box.y - box.height / 2:.1f}"}
    size = {"width": f"{box.width:.1f}", "height": f"{box.height:.1f}", "rx": "2" if node.join else "8"}
    ink = "#0f172a" if node.is_reached else "#94a3b8"
    look = {"fill": "#f1f5f9", "stroke": ink, "stroke-width": "2" if node.is_entry else "1"}
    SubElement(group, "rect", {**place, **size, **look, **({} if node.is_reached else {"stroke-dasharray": "4 4"})})
    top = box.y - box.height / 2 + (PADDING + LINE_HEIGHT) / 2
    for index, line in enumerate(node.lines):
        weight = {"font-weight": "bold"} if index == 0 else {}
        _text(group, line, box.x, top + index * LINE_HEIGHT, {"fill": ink if index == 0 else "#64748b", **weight})


def _text(parent: Element, text: str, x: float, y: float, about: Mapping[str, str]) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": "middle", "dominant-baseline": "central"}
    SubElement(parent, "text", {**place, **about}).text = _xml_text(text)


def _xml_text(text: str) -> str:
    """Replaces the characters of a text that XML cannot hold."""
    return _NOT_XML.sub("�", text)
