"""What is offered while a playbook is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from marked_text import KINDS, at_mark, language, names_of, offered

from effort import in_gate
from noetl_stream.playbook.editing.completion import complete
from noetl_stream.playbook.editing.tree import Step, TextPart, TextScalar, items_of, pairs_of
from noetl_stream.playbook.vocabulary.names import NAMESPACE_WORDS
from noetl_stream.template.filters.values import FILTERS
from noetl_stream.template.runtime.scope import NAMESPACES, SHADOWABLE

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
workload:
  city: Rome
  limits: {rows: 10}
keychain:
  - {name: shop, kind: credential}
workbook:
  tasks:
    tell: {kind: noop}
workflow:
  - step: start
    loop: {in: "{{ ‸9 }}", iterator: item}
    tool:
      - fetch:
          kind: http
          auth: ‸1
          spec:
            result: {schema: {type: object, properties: {rows: {}, page: {}}}}
            policy:
              rules:
                - {when: "{{ outcome.‸a }}", then: {do: fail}}
                - {else: {then: {do: continue, set_ctx: {total: 1}}}}
      - name: keep
        kind: noop
        args: {a: "{{ ‸2 }}", b: "{{ workload.‸3 }}", c: "{{ ctx.‸4 }}", d: "{{ fetch.‸5 }}", e: "{{ iter.‸6 }}"}
        spec:
          policy:
            rules:
              - else:
                  then: {do: jump, to: ‸7}
      - {name: call, kind: playbook, path: ‸b}
      - {name: tells, kind: workbook, task: ‸c}
    next:
      arcs:
        - step: ‸8
        - step: end
          when: "{{ event.na‸d"
          args: {who: 1}
  - step: end
    spec: {join: all}
    tool: {kind: noop, args: {a: "{{ args.‸e }}", b: "{{ steps.start.results.‸f }}"}}
"""


def at(mark: str) -> list[str]:
    return offered(PLAYBOOK, mark)


@pytest.mark.parametrize(
    ("mark", "names"),
    [
        ("1", ["shop"]),
        ("3", ["city", "limits"]),
        ("4", ["total"]),
        ("5", ["rows", "page", "data", "outcome"]),
        ("6", ["item", "count", "index", "parent"]),
        ("7", ["fetch", "keep", "call", "tells"]),
        ("8", ["start", "end"]),
        ("a", ["error", "meta", "result", "status", "http"]),
        ("b", ["team/called"]),
        ("c", ["tell"]),
        ("d", ["error", "loop", "name", "result", "status", "step"]),
        ("e", ["who", "by_step", "arrivals"]),
        ("f", ["fetch", "keep", "call", "tells"]),
    ],
)
def test_names_of_the_playbook_stand_where_it_refers_to_them(mark: str, names: list[str]) -> None:
    assert at(mark) == names


def test_a_bare_name_is_offered_where_it_is_in_scope_and_nowhere_else() -> None:
    in_task, in_loop = at("2"), at("9")
    assert in_task[:9] == ["total", "item", "city", "limits", "fetch", "keep", "call", "tells", "start"]
    assert {"_prev", "keychain", "results"} <= set(in_task) and "event" not in in_task
    assert "item" not in in_loop and "fetch" not in in_loop and "_prev" not in in_loop
    assert {"city", "total", "start", "workload"} <= set(in_loop)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "kind: Playbook\nwork‸",
            ["apiVersion", "metadata", "keychain", "executor", "workload", "workflow", "workbook"],
        ),
        ("workflow:\n  - ‸", ["step", "desc", "spec", "loop", "tool", "next"]),
        ("workflow:\n  - step: a\n    ‸\n    next: {}\n", ["desc", "spec", "loop", "tool"]),
        ("workflow:\n  - step: a\n    next: { ‸ }\n", ["spec", "arcs"]),
        ("workflow:\n  - step: a\n    next: { arcs: [{ step: a, ‸", ["when", "args"]),
        ("workflow:\n  - step: a\n    spec:\n      join: ‸", ["all", "any"]),
        ("workflow:\n  - step: a\n    next:\n      spec: { mode: in‸ }\n", ["exclusive", "inclusive"]),
        ("workflow:\n  - step: a\n    tool: {‸}", ["kind"]),
        ("kind: ‸", ["Playbook"]),
        (
            "metadata:\n  name: x\n  ‸\nkind: Playbook\n",
            ["path", "version", "description", "tags", "labels"],
        ),
    ],
)
def test_keys_and_words_are_those_that_the_schema_has_there(text: str, names: list[str]) -> None:
    found = offered(text)
    assert [name for name in found if name in names] == names
    assert len(found) <= len(names) + 3


def test_the_kind_of_a_task_decides_its_keys_also_under_a_label() -> None:
    for text in ("tool:\n      kind: http\n      ‸", "tool:\n      - get:\n          kind: http\n          ‸"):
        found = offered(f"workflow:\n  - step: a\n    {text}")
        assert {"url", "method", "params", "spec"} <= set(found) and "code" not in found and "kind" not in found


def test_the_installed_kinds_are_offered() -> None:
    found = offered("workflow:\n  - step: a\n    tool:\n      kind: h‸\n")
    assert set(KINDS) | {"wait", "playbook", "workbook"} == set(found)


OWN = "workload: { execution: { id: 7 } }\n"
PLACES = """
metadata: { labels: { day: "{{ execution.‸1 }}" } }
workflow:
  - step: start
    spec: { policy: { lifecycle: { timeout_s: "{{ execution.‸2 }}" } } }
    tool: { kind: http, spec: { timeout: "{{ execution.origin.‸3 }}" } }
    next: { arcs: [ { step: start, when: "{{ execution.‸4 }}" } ] }
"""


@pytest.mark.parametrize("mark", "124")
def test_attributes_known_at_the_start_of_an_execution_are_offered(mark: str) -> None:
    assert offered(PLACES, mark) == ["due", "origin", "started"]
    assert offered(OWN + PLACES, mark) == ["id"]


def test_and_what_is_known_of_its_origin() -> None:
    assert offered(PLACES, "3") == ["kind", "path", "number", "execution_id"]


def test_a_partly_written_word_is_replaced_from_its_last_dot_on() -> None:
    text, offset = at_mark(
        'workload: {city: 1}\nworkflow:\n  - step: a\n    tool: {kind: noop, args: {x: "{{ workload.ci‸'
    )
    found = complete(text, offset, language())
    assert text[found.start : offset] == "ci" and [one.text for one in found.offers] == ["city"]


def test_a_key_comes_with_its_colon_unless_it_has_one() -> None:
    assert complete(*at_mark("ki‸"), language()).offers[1].text == "kind: "
    assert complete(*at_mark("ki‸: Playbook"), language()).offers[1].text == "kind"


def test_behind_a_bar_there_are_filters_and_behind_is_tests() -> None:
    text = 'workflow:\n  - step: a\n    tool: {kind: noop, args: {x: "{{ 1 | le‸'
    assert set(offered(text)) == set(FILTERS)
    assert "none" in offered(text.replace("| le", "is not "))


def test_a_text_that_is_not_rendered_has_no_names() -> None:
    assert offered('workflow:\n  - step: a\n    tool: {kind: python, code: "{{ ‸"}') == []
    assert offered('workload: {a: "{{ ‸"}') == []


def test_names_in_a_block_of_text_are_offered() -> None:
    task = "kind: noop\n      args:\n        b: |\n          x {{ workload.‸\n          y\n"
    text = f"workload: {{a: 1}}\nworkflow:\n  - step: s\n    tool:\n      {task}"
    assert offered(text) == ["a"]


def test_every_namespace_is_described() -> None:
    assert NAMESPACE_WORDS.keys() == NAMESPACES | SHADOWABLE


EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "playbooks").glob("*.yaml"))
FREE = {
    *("params", "args", "workload", "set_ctx", "set_iter", "set_vars", "set_shared"),
    *("tables", "tasks", "libs", "parameters", "headers", "env"),
}
"""Mappings whose keys are the author's own."""


def keys_in(part: TextPart | None, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], TextScalar]]:
    for pair in pairs_of(part):
        yield (*path, pair.key.value), pair.key
        yield from keys_in(pair.value, (*path, pair.key.value))
    for index, item in enumerate(items_of(part)):
        yield from keys_in(item, (*path, index))


@pytest.mark.parametrize("file", in_gate(EXAMPLES, one_of=4), ids=lambda file: file.stem)
def test_every_key_of_the_examples_is_offered_where_it_stands(file: Path) -> None:
    text = file.read_text()
    missing = []
    for path, key in keys_in(names_of(text).root):
        known = language().words.about(names_of(text).root, path)
        if known and not FREE & {str(step) for step in path[:-1]}:
            without = text[: key.start] + text[key.end :]
            if key.value not in [one.label for one in complete(without, key.start, language()).offers]:
                missing.append(path)
    assert missing == []


@pytest.mark.parametrize("file", in_gate(EXAMPLES, one_of=4), ids=lambda file: file.stem)
def test_every_name_that_the_examples_read_is_offered_where_it_stands(file: Path) -> None:
    text = file.read_text()
    names = names_of(text)
    missing = []
    for one in names.occurrences:
        is_known = one.symbol.name in names.declared_names(one.symbol.kind, one.symbol.step)
        if is_known and not one.declares and text[one.start - 2 : one.start] not in ("['", '["', "('", '("'):
            without = text[: one.start] + text[one.end :]
            offers = complete(without, one.start, language()).offers
            if one.symbol.name not in [offer.label for offer in offers]:
                missing.append(one)
    assert [one for one in missing if one.symbol.kind != "entry"] == []


def test_at_no_place_of_a_text_that_grows_is_there_a_fault() -> None:
    text = EXAMPLES[2].read_text()
    for end in range(0, len(text), 11):
        assert complete(text[:end], end, language()).start <= end


ROWS = """\
apiVersion: noetl.io/v2
kind: Playbook
workload: {since: 1}
keychain: [{name: shop, kind: credential}]
workflow:
  - step: start
    loop:
      rows: {kind: ‸1, auth: ‸2, params: {since: "{{ workload.‸3 }}"}, ‸4}
      iterator: part
    tool: {kind: noop}
"""


def test_the_task_that_makes_the_rows_of_a_loop_is_completed_as_any_other() -> None:
    assert offered(ROWS, "1") == ["duckdb", "http", "postgres"]
    assert "shop" in offered(ROWS, "2") and offered(ROWS, "3") == ["since"]
    assert {"batch", "command", "spec"} <= {*offered(ROWS.replace("kind: ‸1", "kind: postgres"), "4")}
