"""An execution in a notebook: a table and a graph, in self-contained HTML and SVG."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Final, NamedTuple

from noetl_stream_client.documents import Execution, ExecutionGraph, Graph
from noetl_stream_client.errors import ClientError
from noetl_stream_client.gateways import Gateway
from noetl_stream_client.outcomes import ENDED

PAUSE_S: Final = 0.5
"""The minimum time between two updates of a notebook, in seconds."""

MAX_ROWS: Final = 50
MAX_NODES: Final = 60
MAX_CHARS: Final = 18
"""The maximum characters of a step's name in the graph; its title has the whole name."""

COLUMN, ROW, WIDTH, HEIGHT = 170, 44, 140, 28
COLORS: Final[Mapping[str, str]] = {
    "completed": "#2e7d32", "done": "#2e7d32", "reused": "#2e7d32", "failed": "#c62828", "cancelled": "#757575",
    "running": "#1565c0", "waiting": "#b26a00", "paused": "#b26a00", "quarantined": "#c62828",
}  # fmt: skip
OTHER: Final = "#9e9e9e"


def execution_html(gateway: Gateway, execution_id: str) -> str:
    """The execution as it is now, or why it cannot be read."""
    return next(_shown(gateway, execution_id))


def show_live(gateway: Gateway, execution_id: str, text: str) -> None:
    """Shows the execution in a notebook cell, updated by a thread until the execution ends.

    Raises:
        NotImplementedError: the code does not run in a notebook.
    """
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        raise NotImplementedError
    shown = _shown(gateway, execution_id)

    def cell(html: str) -> dict[str, str]:
        return {"text/html": html, "text/plain": text}

    handle = ipython.display.display(cell(next(shown)), raw=True, display_id=True)

    def update() -> None:
        for html in shown:
            handle.update(cell(html), raw=True)

    threading.Thread(target=update, name=f"display of {execution_id}", daemon=True).start()


def _shown(gateway: Gateway, execution_id: str) -> Iterator[str]:
    """Yields the execution as HTML after each change, until it has ended or cannot be read."""
    from noetl_stream_client._sync.client import Client  # it imports this

    with Client(gateway.url, gateway.token, verify=gateway.verify, proxy=gateway.proxy) as client:
        while True:
            try:
                found = client.get_execution(execution_id)
            except ClientError as error:
                yield f"<p>execution {escape(execution_id)}: {escape(str(error))}</p>"
                return
            try:
                graph = client.get_execution_graph(execution_id, so_far=True)
            except ClientError:
                graph = None
            yield html_of(found, graph)
            if found.status in ENDED:
                return
            with suppress(ClientError):
                next(client.execution(execution_id).events(found.position), None)
            time.sleep(PAUSE_S)


def html_of(found: Execution, graph: ExecutionGraph | None) -> str:
    """The table of an execution and its steps, with its graph if that is small."""
    parts = [_head(found), _table(found)]
    if graph is not None and 0 < len(graph.graph.nodes) <= MAX_NODES:
        statuses = {one.step: one.status or "" for one in graph.steps}
        fired = {(one.from_, one.to) for one in graph.arcs if one.fired}
        parts.append(_drawing(graph.graph, statuses, fired))
    return f'<div style="font-family:sans-serif;font-size:13px">{"".join(parts)}</div>'


def _head(found: Execution) -> str:
    took = "" if found.duration_s is None else f", {found.duration_s:g} s"
    error = "" if found.error is None else f'<div style="color:{COLORS["failed"]}">{escape(found.error.message)}</div>'
    status = f'<b style="color:{COLORS.get(found.status, OTHER)}">{escape(found.status)}</b>'
    return f"<div>{escape(found.path)} <code>{escape(found.execution_id)}</code>: {status}{took}</div>{error}"


def _table(found: Execution) -> str:
    steps = found.steps or []
    rows = [
        f'<tr><td>{escape(one.step)}</td><td style="color:{COLORS.get(one.status, OTHER)}">{escape(one.status)}</td>'
        f"<td>{one.runs}</td><td>{one.retries}</td><td>{one.duration_s:g}</td></tr>"
        for one in steps[:MAX_ROWS]
    ]
    if len(steps) > MAX_ROWS:
        rows.append(f'<tr><td colspan="5">and {len(steps) - MAX_ROWS} more</td></tr>')
    heads = "".join(f"<th>{name}</th>" for name in ("step", "status", "runs", "retries", "seconds"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>" if rows else ""


class _Place(NamedTuple):
    x: int
    y: int


def _places(graph: Graph) -> dict[str, _Place]:
    """The place of each step: one column right of the step that leads to it by the fewest arcs."""
    columns: dict[str, int] = {}
    layer = [one.step for one in graph.nodes if one.is_entry] or graph.steps[:1]
    depth = 0
    while layer:
        columns |= dict.fromkeys(layer, depth)
        reached = dict.fromkeys(arc.to for arc in graph.arcs if arc.from_ in layer)
        layer, depth = [step for step in reached if step not in columns], depth + 1
    rows: dict[int, int] = {}
    found = {}
    for step in graph.steps:
        column = columns.get(step, depth)
        found[step] = _Place(10 + column * COLUMN, 10 + rows.get(column, 0) * ROW)
        rows[column] = rows.get(column, 0) + 1
    return found


def _drawing(graph: Graph, statuses: Mapping[str, str], fired: set[tuple[str, str]]) -> str:
    places = _places(graph)
    width = max(place.x for place in places.values()) + WIDTH + 10
    height = max(place.y for place in places.values()) + HEIGHT + 24
    shapes: Sequence[str] = [*_arcs(graph, places, fired), *_nodes(places, statuses)]
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{"".join(shapes)}</svg>'


def _nodes(places: Mapping[str, _Place], statuses: Mapping[str, str]) -> Iterator[str]:
    for step, (x, y) in places.items():
        color = COLORS.get(statuses.get(step, ""), OTHER)
        name = step if len(step) <= MAX_CHARS else f"{step[: MAX_CHARS - 1]}…"
        yield (
            f'<g><title>{escape(step)}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
            f'fill="#fff" stroke="{color}" stroke-width="2"/><text x="{x + WIDTH // 2}" y="{y + 18}" '
            f'text-anchor="middle" font-size="12" fill="{color}">{escape(name)}</text></g>'
        )


def _arcs(graph: Graph, places: Mapping[str, _Place], fired: set[tuple[str, str]]) -> Iterator[str]:
    for arc in graph.arcs:
        if arc.from_ not in places or arc.to not in places:
            continue
        start, end = places[arc.from_], places[arc.to]
        has_fired = (arc.from_, arc.to) in fired
        look = 'fill="none" stroke="#424242"' if has_fired else f'fill="none" stroke="{OTHER}" stroke-dasharray="4"'
        if end.x > start.x:
            x, y, to_x, to_y = start.x + WIDTH, start.y + HEIGHT // 2, end.x, end.y + HEIGHT // 2
            head = f"M{to_x - 6} {to_y - 3}L{to_x} {to_y}L{to_x - 6} {to_y + 3}"
            yield f'<path d="M{x} {y}C{x + 20} {y} {to_x - 20} {to_y} {to_x} {to_y}{head}" {look}/>'
        else:
            x, y, to_x, to_y = start.x + WIDTH // 2, start.y + HEIGHT, end.x + WIDTH // 2, end.y + HEIGHT
            head = f"M{to_x - 3} {to_y + 6}L{to_x} {to_y}L{to_x + 3} {to_y + 6}"
            yield f'<path d="M{x} {y}C{x} {y + 18} {to_x} {to_y + 18} {to_x} {to_y}{head}" {look}/>'
