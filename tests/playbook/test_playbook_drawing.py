"""Drawings of playbooks: every step and arc is there, nothing overlaps, and no text of a playbook is read as markup."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from net_playbooks import playbook_of
from playbook_building import plan_of, workflow
from playbook_kinds import KINDS

from noetl_stream.errors import UsageError
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.drawing import Graph, dot, drawable_part, graph_of, mermaid
from noetl_stream.playbook.svg import lay_out, svg
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_testkit.simulation.roles import check_once

SVG = "{http://www.w3.org/2000/svg}"
PLAYBOOKS = sorted(path for path in (Path(__file__).parents[2] / "playbooks").glob("*.yaml") if "." not in path.stem)

APPROVAL = workflow("""
- step: start
  next:
    arcs:
      - { step: pay, when: "{{ ctx.approved == 'yes' }}" }
      - { step: tell, when: "{{ event.status == 'error' }}" }
      - { step: never, when: "{{ 1 == 2 }}" }
  tool: [ { name: ask, kind: http, url: a }, { name: read, kind: http, url: b } ]
- step: pay
  spec: { join: all, policy: { admit: { rules: [ { when: "{{ ctx.open }}", then: { allow: true } } ] } } }
  loop: { in: [1], iterator: bill }
  tool: { kind: noop }
  next: { arcs: [ { step: start } ] }
- step: tell
  tool: { kind: noop }
- step: never
  tool: { kind: noop }
""")


BROKEN = sorted(Path(__file__).with_name("broken").glob("*.yaml"))


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_the_readable_part_of_a_broken_playbook_is_drawn(path: Path) -> None:
    draft = check_once(path.read_text(encoding="utf-8"), KINDS, file=path.name).draft
    plan = None if draft is None else drawable_part(draft)
    if plan is not None:
        graph = graph_of(plan)
        assert {edge.target for edge in graph.edges} <= {node.step for node in graph.nodes}
        assert lay_out(graph)


def drawn(text: str) -> Graph:
    return graph_of(plan_of(text))


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_json_has_the_steps_and_arcs_with_their_properties() -> None:
    shown = drawn(APPROVAL).to_json()
    assert shown["path"] == "tests/test"
    assert shown["steps"][1] == {
        "step": "pay",
        "line": 12,
        "kinds": ("noop",),
        "loop": ("bill, sequential",),
        "join": "all",
        "admission": True,
        "waits": (),
        "routing": "exclusive",
        "is_entry": False,
        "is_reached": True,
        "is_finally": False,
        "undone_by": (),
    }
    assert [(arc["from"], arc["to"], arc["kind"]) for arc in shown["arcs"]] == [
        ("start", "pay", "guarded"),
        ("start", "tell", "failure"),
        ("start", "never", "never"),
        ("pay", "start", "always"),
    ]


def test_mermaid_shows_steps_by_ids_of_its_own_and_escapes_guards() -> None:
    assert mermaid(drawn(APPROVAL)).splitlines() == [
        "flowchart TD",
        '  s0(["start<br/>http ×2"])',
        '  s1{{"pay<br/>noop<br/>for each bill, sequential<br/>joins all · admission"}}',
        '  s2["tell<br/>noop"]',
        '  s3["never<br/>noop"]',
        '  s0 -->|"ctx.approved #61;#61; #39;yes#39;"| s1',
        '  s0 -.->|"event.status #61;#61; #39;error#39;"| s2',
        '  s0 -.-x|"1 #61;#61; 2"| s3',
        "  s1 --> s0",
        "  classDef unreached stroke-dasharray:4 4,color:#777",
        "  class s3 unreached",
    ]


def test_dot_quotes_every_name_and_guard() -> None:
    text = dot(
        drawn(workflow('- step: start\n  next: { arcs: [ { step: start, when: "{{ ctx.a == \'\\\\\\"x\' }}" } ] }'))
    )
    assert '"start" -> "start" [label="ctx.a == \'\\\\\\"x\'"]' in text


def test_svg_shows_the_names_the_kinds_and_the_guards() -> None:
    shown = texts(svg(drawn(APPROVAL)))
    assert {"start", "http ×2", "joins all · admission", "ctx.approved == 'yes'"} <= set(shown)


def test_svg_escapes_what_a_guard_says() -> None:
    guard = "{{ ctx.a == '</text><script>&\\u0001' }}"
    picture = svg(drawn(workflow(f'- step: start\n  next: {{ arcs: [ {{ step: start, when: "{guard}" }} ] }}')))
    assert "ctx.a == '</text><script>" in texts(picture)[0]
    assert "<script" not in picture


@pytest.mark.parametrize("file", PLAYBOOKS, ids=lambda file: file.stem)
def test_every_example_is_drawn_completely(file: Path) -> None:
    plan = compile_playbook(file.read_text(), kinds_of(load_tools()))
    picture = svg(graph_of(plan))
    assert set(plan.steps) <= set(texts(picture))
    assert picture.count("marker-end") == sum(len(step.arcs) for step in plan.steps.values())


@pytest.mark.parametrize("seed", range(20))
def test_no_two_steps_overlap_and_all_are_inside(seed: int) -> None:
    random = Random(seed)
    names = ["start", *(f"step_{index}" for index in range(random.randint(1, 25)))]
    lines = [f"{name} > {' '.join(random.sample(names, random.randint(0, min(3, len(names)))))}" for name in names]
    layout = lay_out(drawn(playbook_of(*lines)))
    for one, other in combinations(layout.boxes, 2):
        assert (
            abs(one.x - other.x) >= (one.width + other.width) / 2
            or abs(one.y - other.y) >= (one.height + other.height) / 2
        )
    for box in layout.boxes:
        assert box.x - box.width / 2 >= 0 and box.x + box.width / 2 <= layout.width
        assert box.y - box.height / 2 >= 0 and box.y + box.height / 2 <= layout.height


def test_a_playbook_that_is_too_large_for_a_picture_is_refused_but_written_as_dot() -> None:
    graph = drawn(playbook_of(*_ladder(80)))
    with pytest.raises(UsageError, match="max_points"):
        svg(graph)
    assert dot(graph).count("->") == len(graph.edges)


def _ladder(count: int) -> list[str]:
    """Steps of which each leads to the next and to the last."""
    return [*(f"s{index} > s{index + 1} s{count}" for index in range(count)), f"s{count} >"]
