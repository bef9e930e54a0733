"""``loop.rows``: a task in place of ``in``, whose rows are the items (LANGUAGE §6 *Rows*)."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from playbook_building import workflow

from noetl_stream.playbook.compile.compiler import CheckResult, check
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.drawing import graph_of
from noetl_stream.playbook.plan import StepPlan
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())
SCHEMA = Draft202012Validator(playbook_schema(KINDS))
QUERY = "kind: postgres, auth: warehouse, command: select 1"
READING = "kind: postgres, auth: warehouse, command: select $since::int"


def loop(rows: str, more: str = "iterator: part", tool: str = '{ kind: noop, args: { part: "{{ part }}" } }') -> str:
    return workflow(f"- step: start\n  loop: {{ rows: {rows}, {more} }}\n  tool: {tool}")


def checked(text: str) -> CheckResult:
    """The result of a check; the JSON Schema accepts what the check does."""
    result = check(text, KINDS)
    source = read_source(text, Problems("t"))
    assert source is not None
    if result.ok:
        SCHEMA.validate(source.root.plain())
    return result


def start_of(text: str) -> StepPlan:
    return checked(text).require_plan().steps["start"]


def errors(text: str) -> list[tuple[str, str, str]]:
    return [(one.code, one.message, one.hint or "") for one in checked(text).diagnostics if one.severity == "error"]


@pytest.mark.parametrize(
    "rows",
    [
        f"{{ {QUERY} }}",
        f"{{ {QUERY}, into: table }}",
        "{ kind: duckdb, command: from range(9) }",
        '{ kind: http, url: "https://example.org/lines", stream: { format: ndjson } }',
    ],
)
def test_any_kind_that_makes_tables_makes_the_rows(rows: str) -> None:
    step = start_of(loop(rows))
    query, work = step.tasks
    assert (query.name, query.inputs.source["into"], work.name) == ("rows", "table", "start_task")
    assert step.loop is not None and step.loop.batch == 1_000
    assert step.loop.items.source == "{{ results.rows.table | batch(1000) }}"


def test_what_a_command_runs_is_either_the_query_or_an_iteration() -> None:
    step = start_of(loop(f"{{ {QUERY}, batch: 7, name: unpaid }}"))
    assert [task.name for task in step.run_by(paging=True).tasks] == ["unpaid"]
    assert [task.name for task in step.run_by(paging=False).tasks] == ["start_task"]
    assert step.loop is not None and step.loop.items.source == "{{ results.unpaid.table | batch(7) }}"


def test_the_query_has_a_policy_and_takes_the_knobs_and_timeouts_of_its_step() -> None:
    policy = "{ when: \"{{ outcome.status == 'error' }}\", then: { do: retry, attempts: 3, delay: 1 } }"
    rows = f"{{ {QUERY}, spec: {{ policy: {{ rules: [{policy}] }} }} }}"
    spec = "{ timeout: 9, isolation: serializable }"
    query = start_of(loop(rows, more=f"iterator: part, spec: {spec}")).tasks[0]
    assert query.policy is not None and query.policy.rules[0].do == "retry"
    assert query.timeouts.total == 9 and query.knobs == {"isolation": "serializable"}


def test_the_commands_carry_what_the_query_reads() -> None:
    rows = f'{{ {READING}, params: {{ since: "{{{{ ctx.since }}}}" }} }}'
    step = start_of(loop(rows, more='iterator: part, spec: { mode: parallel, max_in_flight: "{{ workload.most }}" }'))
    assert step.reads.ctx == {"since"} and step.reads.workload == {"most"}


@pytest.mark.parametrize("read", ["{{ part }}", "{{ outcome.status }}"])
def test_the_query_sees_nothing_of_the_iterations(read: str) -> None:
    assert len(errors(loop(f'{{ {READING}, params: {{ since: "{read}" }} }}'))) == 1


def test_iterations_do_not_see_the_result_of_the_query() -> None:
    assert errors(loop(f"{{ {QUERY} }}", tool='{ kind: noop, args: { all: "{{ results.rows }}" } }'))


def test_a_graph_names_the_kind_of_the_query() -> None:
    (node,) = graph_of(checked(loop(f"{{ {QUERY} }}")).require_plan()).nodes
    assert node.kinds == ("postgres", "noop") and node.loop == ("part, sequential",)


PYTHON = "{ kind: python, code: result = 1 }"
KINDS_THAT_DO = "kinds that do: `duckdb`, `http`, `postgres`"


@pytest.mark.parametrize(
    ("rows", "more", "expected"),
    [
        (
            f"{{ {QUERY} }}",
            "in: [1], iterator: part",
            ("conflicting_keys", "`loop` has both `in` and `rows`", "remove"),
        ),
        (PYTHON, "iterator: part", ("invalid_value", "a task of kind `python` makes no table of rows", KINDS_THAT_DO)),
        ("{ auth: warehouse }", "iterator: part", ("missing_key", "a task needs `kind`", "")),
        ("{ kind: postgres, auth: a }", "iterator: part", ("invalid_value", "`postgres` needs `command`", "")),
        ("select 1", "iterator: part", ("wrong_type", "`rows` must be a task", "write rows: { kind: postgres")),
        (f"{{ {QUERY}, into: file }}", "iterator: part", ("invalid_value", "`into` is `table` where a loop", "remove")),
        (f"{{ {QUERY}, bach: 3 }}", "iterator: part", ("unknown_key", "unknown key `bach`", "")),
        *(
            (f"{{ {QUERY}, batch: {batch} }}", "iterator: part", ("invalid_value", "`batch` must be a whole", "write"))
            for batch in ("0", "1.5", "true", "'9'", "1000001", '"{{ workload.n }}"')
        ),
        (
            f"{{ {QUERY}, name: start_task }}",
            "iterator: part",
            ("duplicate_name", "task `start_task`", "task names must be unique in a step"),
        ),
    ],
)
def test_what_cannot_be_is_said(rows: str, more: str, expected: tuple[str, str, str]) -> None:
    code, message, hint = expected
    found = errors(loop(rows, more))
    assert len(found) == 1, found
    assert found[0][0] == code and message in found[0][1] and hint in f"{found[0][1]} {found[0][2]}", found


def test_rows_belong_in_the_outermost_level() -> None:
    text = workflow(
        f"- step: start\n  loop: {{ in: [1], iterator: n, loop: {{ rows: {{ {QUERY} }}, iterator: part }} }}\n"
        "  tool: { kind: noop }"
    )
    (found,) = errors(text)
    assert found[0] == "misplaced_key" and "{{ <step>.table | batch(1000) }}" in found[2]


def test_a_loop_without_rows_or_in_is_refused_by_the_schema_too() -> None:
    document: Any = {"step": "start", "tool": {"kind": "noop"}, "loop": {"iterator": "part"}}
    text = workflow("- " + str(document))
    assert errors(text)[0][:2] == ("missing_key", "`loop` needs `in`")
    source = read_source(text, Problems("t"))
    assert source is not None and not SCHEMA.is_valid(source.root.plain())
