"""Where a playbook declares and reads its names."""

from __future__ import annotations

import pytest
from marked_text import at_mark, names_of

from noetl_stream.playbook.editing.names import Symbol
from noetl_stream.playbook.editing.tree import Lines

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: n, path: team/n }
keychain: [{ name: shop, kind: credential }]
workload: { city: Rome, limits: { rows: 10 } }
executor: { spec: { entry_step: load, result: "{{ steps.store.results.keep }}" } }
workflow:
  - step: load
    spec: { policy: { admit: { rules: [{ when: "{{ args.who and ctx.total }}", then: { allow: true } }] } } }
    loop: { in: "{{ workload.cities }}", iterator: place }
    tool:
      - fetch:
          kind: http
          url: "😀 {{ place }}/{{ city }}"
          auth: shop
          spec:
            policy:
              rules:
                - when: "{{ outcome.status == 'error' and ctx['total'] > 1 }}"
                  then: { do: jump, to: fetch }
                - else: { then: { do: continue, set_ctx: { total: "{{ ctx.total + 1 }}" }, set_iter: { seen: 1 } } }
      - name: pick
        choose:
          - when: "{{ fetch.ok }}"
            then:
              - { name: inner, kind: python, args: { x: "{{ results.fetch | length }}" }, code: 'y = ctx["total"]' }
    next:
      arcs:
        - { step: store, when: "{{ event.name == 'loop.done' and total }}", args: { who: "{{ load }}" } }
  - step: store
    tool:
      - { name: keep, kind: noop, args: { a: "{{ who }}", b: "{{ load.results.fetch }}" } }
      - { name: call, kind: playbook, path: team/other }
"""


def places(symbol: Symbol) -> list[tuple[int, bool]]:
    """The lines where a name stands, and whether it is declared there."""
    lines = Lines(PLAYBOOK)
    return [(lines.place(one.start)[0] + 1, one.declares) for one in names_of(PLAYBOOK).occurrences_of(symbol)]


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        (Symbol("step", "load"), [(6, False), (8, True), (29, False), (32, False)]),
        (Symbol("step", "store"), [(6, False), (29, False), (30, True)]),
        (Symbol("task", "fetch", "load"), [(12, True), (20, False), (24, False), (26, False), (32, False)]),
        (Symbol("task", "keep", "store"), [(6, False), (32, True)]),
        (Symbol("task", "inner", "load"), [(26, True)]),
        (Symbol("ctx", "total"), [(9, False), (19, False), (21, True), (21, False), (26, False), (29, False)]),
        (Symbol("iter", "place", "load"), [(10, True), (14, False)]),
        (Symbol("iter", "seen", "load"), [(21, True)]),
        (Symbol("workload", "city"), [(5, True), (14, False)]),
        (Symbol("keychain", "shop"), [(4, True), (15, False)]),
        (Symbol("args", "who", "store"), [(29, True), (32, False)]),
        (Symbol("playbook", "team/other"), [(33, False)]),
    ],
)
def test_each_place_of_a_name_is_known(symbol: Symbol, expected: list[tuple[int, bool]]) -> None:
    assert places(symbol) == expected


def test_a_bare_name_is_what_the_language_says_first() -> None:
    text = """
workload: { x: 1 }
workflow:
  - step: x
    tool:
      - name: a
        kind: noop
        args: { b: "{{ x }}" }
        spec: { policy: { rules: [{ else: { then: { do: continue, set_ctx: { x: 1 } } } }] } }
"""
    found = names_of(text).occurrence_at(text.index("x }}"))
    assert found is not None and found.symbol == Symbol("ctx", "x")


def test_a_name_that_is_not_in_scope_is_not_offered() -> None:
    text = """
workflow:
  - step: first
    tool: [{ name: fetch, kind: noop }]
    next: { arcs: [{ step: second, when: "{{ fetch.ok }}" }] }
"""
    assert names_of(text).occurrence_at(text.index("fetch.ok")) is None


@pytest.mark.parametrize(
    ("template", "read"),
    [
        ("{{ a.b + c }}", ["workload"]),
        ("{{ x.workload }}", []),
        ("{{ 1 | city }} {{ 1 is city }} {{ 1 is not city }} {{ f(city=1) }}", []),
        ("{% for city in limits %}{{ city }}{% endfor %}", ["limits"]),
        ("{% set city = limits %}{{ city }}", ["limits"]),
        ("{# {{ city }} #}{% raw %}{{ city }}{% endraw %}", []),
        ("{{ {'city': {'a': city}}['city'] }}", ["city"]),
        ("{{ 'city' ~ city }}", ["city"]),
        ("{{ workload['city'] }}{{ workload.limits", ["city", "limits"]),
        ("{{ city if city == limits else 1 }}", ["city", "city", "limits"]),
        ("{{ [city, limits[0]] }}", ["city", "limits"]),
        ("{{ workload[city] }}", ["city"]),
    ],
)
def test_a_template_offers_only_names_that_it_can_read(template: str, read: list[str]) -> None:
    text = f"""
workload: {{ city: 1, limits: 2 }}
workflow:
  - step: s
    tool:
      kind: noop
      args:
        - |
          {template}
"""
    found = [one.symbol.name for one in names_of(text).occurrences if not one.declares]
    assert found == [name for name in read if name != "workload"]


@pytest.mark.parametrize(
    "spelled", ['"{{ ctx[\\"a\\"] ~ \'b\' }}"', "'{{ ctx[''a''] ~ \"b\" }}'", ">-\n        {{ ctx['a']\n        }}"]
)
def test_a_key_in_brackets_is_read_however_the_text_is_quoted(spelled: str) -> None:
    text = f"workflow:\n  - step: s\n    tool:\n      kind: noop\n      args: {spelled}\n"
    found = [one for one in names_of(text).occurrences if one.symbol == Symbol("ctx", "a")]
    assert [text[one.start : one.end] for one in found] == ["a"]


def test_the_name_under_the_cursor_is_found_at_its_end_too() -> None:
    text, offset = at_mark("workload: { city‸: 1 }")
    found = names_of(text).occurrence_at(offset)
    assert found is not None and found.symbol.name == "city"


def test_the_keys_of_limits_are_templates_of_their_place() -> None:
    text = """
executor: { spec: { policy: { concurrency: { key: "{{ whole }}", limit: 1 } } } }
workload: { whole: 1, step: 2 }
workflow:
  - step: s
    spec: { policy: { limit: { key: "{{ step }}", concurrency: 1 } } }
    tool:
      - { name: find, kind: noop }
      - { name: send, kind: noop, spec: { policy: { limit: { key: "{{ find.customer }}", concurrency: 1 } } } }
"""
    found = [(one.symbol.kind, one.symbol.name) for one in names_of(text).occurrences if not one.declares]
    assert found == [("workload", "whole"), ("workload", "step"), ("task", "find")]


def test_the_step_of_finally_and_the_tasks_of_a_compensation_are_known() -> None:
    text = """
executor: { spec: { policy: { finally: last } } }
workflow:
  - step: charge
    tool: { kind: noop }
    spec: { policy: { compensation: { tool: [ { name: refund, kind: noop, args: { sum: "{{ charge.sum }}" } } ] } } }
  - { step: last, tool: { kind: noop } }
"""
    found = [(one.symbol.kind, one.symbol.name, one.declares) for one in names_of(text).occurrences]
    expected = [("step", "last", False), ("task", "refund", True), ("step", "charge", False)]
    assert [one for one in found if one in expected] == expected


def test_names_in_the_events_of_a_step_are_known() -> None:
    event = '{ name: shipped, when: "{{ ctx.total }}", data: { order: "{{ workload.order }}" } }'
    text = f"""
workload: {{ order: 7 }}
workflow:
  - step: ship
    tool: {{ kind: noop }}
    spec: {{ policy: {{ emit: {{ events: [ {event} ] }} }} }}
"""
    found = [(one.symbol.kind, one.symbol.name) for one in names_of(text).occurrences if not one.declares]
    assert found == [("ctx", "total"), ("workload", "order")]


def test_names_in_attributes_of_spans_are_known() -> None:
    policy = "policy: { tracing: { attributes: { shop.order: '{{ workload.order }}' } } }"
    text = f"""
workload: {{ order: 7 }}
executor: {{ spec: {{ {policy} }} }}
workflow:
  - step: ship
    spec: {{ {policy} }}
    tool: {{ kind: noop, spec: {{ {policy} }} }}
"""
    found = [(one.symbol.kind, one.symbol.name) for one in names_of(text).occurrences if not one.declares]
    assert found == [("workload", "order")] * 3
