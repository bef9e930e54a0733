"""What a notebook shows of an execution."""

from __future__ import annotations

import asyncio
import itertools
import re
from xml.etree import ElementTree

import msgspec
import pytest
from gateway_stage import TOKEN, GatewayStage

from noetl_stream_client import AsyncClient, documents
from noetl_stream_client.display import MAX_NODES, MAX_ROWS, html_of

HOSTILE = "<script>alert('&\"')</script>"


def execution(steps: list[str]) -> documents.Execution:
    """An execution whose names and error are hostile texts."""
    summaries = [{"step": one, "runs": 1, "status": HOSTILE, "duration_s": 1.5, "retries": 0} for one in steps]
    told = dict.fromkeys(("execution_id", "path", "digest", "status", "trace_id", "principal"), HOSTILE)
    told |= dict.fromkeys(("started", "updated", "finished"), "2026-01-01T00:00:00Z")
    told |= dict.fromkeys(("version", "result", "discarded", "warnings", "rerun_of", "parent", "waits"))
    numbers = {"duration_s": 2.0, "ctx_version": 0, "position": 1, "discarded_tokens": 0}
    more = {"labels": {}, "ctx": {}, "error": {"kind": "x", "message": HOSTILE}, "steps": summaries}
    return msgspec.convert(told | numbers | more, documents.Execution)


def graph(steps: list[str]) -> documents.ExecutionGraph:
    """A graph of steps in a row, and an arc back from the last to the first."""
    node = {"line": 1, "kinds": [], "loop": [], "join": None, "admission": False, "waits": [], "routing": "all"}
    nodes = [{**node, "step": one, "is_entry": one == steps[0], "is_reached": True} for one in steps]
    rows = [*itertools.pairwise(steps), (steps[-1], steps[0])]
    arcs = [{"from": one, "to": two, "index": 0} for one, two in rows]
    counts = dict.fromkeys(("waiting", "running", "done", "failed", "cancelled", "reused"), 0)
    told = {
        "execution_id": "x",
        "position": 1,
        "at": "2026-01-01T00:00:00Z",
        "graph": {
            "steps": steps,
            "nodes": nodes,
            "arcs": [{**one, "when": None, "kind": "always", "is_else": False, "line": 1} for one in arcs],
            "path": "p",
            "digest": "d",
        },
        "steps": [{"step": one, "runs": counts, "iterations": None, "places": {}, "status": "done"} for one in steps],
        "arcs": [{**one, "fired": place, "skipped": 0, "last": None} for place, one in enumerate(arcs)],
    }
    return msgspec.convert(told, documents.ExecutionGraph)


def test_hostile_texts_are_shown_as_they_are_and_nothing_is_fetched() -> None:
    steps = [HOSTILE, "b"]
    html = html_of(execution(steps), graph(steps))
    shown = ElementTree.fromstring(html)  # well-formed
    assert {one.tag.rpartition("}")[2] for one in shown.iter()} <= {
        *("div", "b", "code", "table", "thead", "tbody", "tr", "th", "td"),
        *("svg", "path", "g", "title", "rect", "text"),
    }
    assert next(one.text for one in shown.iter("td")) == HOSTILE
    assert re.findall(r"(?:src|href|url|@import)\W", html) == []
    assert re.findall(r"https?:", html) == ["http:"], "the name of the language of drawings"


def test_each_step_and_arc_of_a_small_graph_is_drawn() -> None:
    steps = ["a", "b", "c"]
    shown = ElementTree.fromstring(html_of(execution(steps), graph(steps)))
    tags = [one.tag.rpartition("}")[2] for one in shown.iter()]
    assert (tags.count("rect"), tags.count("path")) == (3, 3)


def test_a_large_execution_is_shown_in_part() -> None:
    steps = [f"step_{number}" for number in range(MAX_NODES + 1)]
    html = html_of(execution(steps), graph(steps))
    assert "<svg" not in html
    assert html.count("<td>step_") == MAX_ROWS and f"and {len(steps) - MAX_ROWS} more" in html


def test_an_execution_without_a_graph_is_shown() -> None:
    assert "<table>" in html_of(execution(["a"]), None)
    assert "<table>" not in html_of(execution([]), None)


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_handle_shows_the_execution_as_it_is_now_or_why_it_cannot(stage: GatewayStage, is_there: bool) -> None:
    async with AsyncClient(stage.url, TOKEN) as client:
        handle = await client.start("tests/echo") if is_there else client.execution("none")
        if is_there:
            await handle.result()
        html = await asyncio.to_thread(handle._repr_html_)  # as notebooks call it
    assert ("completed" in html and "<svg" in html) if is_there else "execution none not found" in html


async def test_outside_of_a_notebook_a_handle_shows_its_text(stage: GatewayStage) -> None:
    async with AsyncClient(stage.url, TOKEN) as client:
        with pytest.raises(NotImplementedError):  # by which IPython goes on to the text
            client.execution("none")._ipython_display_()
