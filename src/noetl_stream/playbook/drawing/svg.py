"""Drawings as SVG, made without other programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from noetl_stream.playbook.drawing.drawn_graph import ArcKind, Graph
from noetl_stream.playbook.drawing.layout import LINE_HEIGHT, PADDING, Box, DrawnArc, Point, lay_out

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
