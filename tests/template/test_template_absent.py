"""Absent is not undefined (LANGUAGE §2)."""

from __future__ import annotations

from typing import Any

import pytest
from template_rendering import FAILED, LOADED, decided, failure, rendered

from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.template.runtime.scope import event_view, outcome_view

ABSENT_PARTS = [
    "outcome.error",
    "outcome.error.kind",
    "outcome.http.status",
    "event.error",
    "event.result",
    "event.loop.failed",
    "steps.later",
    "steps.later.data.rows[3].x",
    "steps.later.outcome.status",
    "_prev",
]


@pytest.fixture
def absent() -> dict[str, Any]:
    return {"event": event_view("step.failed", "load"), "outcome": outcome_view(LOADED, "http")}


@pytest.mark.parametrize("part", ABSENT_PARTS)
def test_an_absent_value_is_false_none_not_defined_and_null(part: str, absent: dict[str, Any]) -> None:
    assert rendered(f"{{{{ {part} }}}}", **absent) is None
    assert rendered(f"{{{{ [{part}] }}}}", **absent) == [None]
    assert rendered(f"{{{{ {part} is none }}}}", **absent) is True
    assert rendered(f"{{{{ {part} is defined }}}}", **absent) is False
    assert rendered(f"{{{{ {part} is undefined }}}}", **absent) is True
    assert rendered(f"{{{{ {part} | default(5) }}}}", **absent) == 5
    assert decided(f"{{{{ {part} }}}}", **absent) is False
    assert decided(f"{{{{ not {part} }}}}", **absent) is True


@pytest.mark.parametrize("part", ABSENT_PARTS)
def test_an_absent_value_equals_only_none(part: str, absent: dict[str, Any]) -> None:
    assert rendered(f"{{{{ {part} == none }}}}", **absent) is True
    assert rendered(f"{{{{ none == {part} }}}}", **absent) is True
    assert rendered(f"{{{{ {part} in [1, none] }}}}", **absent) is True
    for other in ("false", "0", "''", "[]", "{}"):
        assert rendered(f"{{{{ {part} == {other} }}}}", **absent) is False
        assert rendered(f"{{{{ {part} != {other} }}}}", **absent) is True


@pytest.mark.parametrize(
    "use",
    [
        *("{} < 1", "1 < {}", "{} >= {}", "{} + 1", "1 + {}", "{} * 2", "2 ** {}", "-{}", "{} // 2", "{} % 2"),
        *("1 in {}", "{} | list", "{} | length", "{} | int", "{} | upper", "[{}] | sum", "{}[1:]", "'%s' % {}"),
    ],
)
def test_ordering_calculating_with_or_iterating_an_absent_value_is_an_error(use: str, absent: dict[str, Any]) -> None:
    error = failure(f"{{{{ {use.replace('{}', 'outcome.error')} }}}}", **absent)
    message = error.message.partition(" in {{")[0]
    assert message.endswith("an absent value") or message == "cannot slice null"


def test_iterating_an_absent_value_in_a_loop_is_an_error(absent: dict[str, Any]) -> None:
    error = failure("{% for e in outcome.error %}{% endfor %}", **absent)
    assert "null cannot be iterated" in error.message


def test_an_absent_value_stays_absent_in_a_name_of_the_template(absent: dict[str, Any]) -> None:
    assert rendered("{% set e = outcome.error %}{{ e is defined }} {{ e.kind is none }}", **absent) == "False True"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("{{ ctx.approved }}", "ctx.approved"),
        ("{{ ctx.approved.by.name }}", "ctx.approved"),
        ("{{ not ctx.approved }}", "ctx.approved"),
        ("{{ ctx.approved == true }}", "ctx.approved"),
        ("{{ true and ctx.approved }}", "ctx.approved"),
        ("{{ [ctx.approved] }}", "ctx.approved"),
        ("{{ ctx.approved | upper }}", "ctx.approved"),
        ("{{ ctx.approved is none }}", "ctx.approved"),
        ("{{ 'a' ~ ctx.approved }}", "ctx.approved"),
        ("text {{ ctx.approved }}", "ctx.approved"),
        ("{{ {'a': ctx.approved} | length }}", "ctx.approved"),
        ("{{ ctx.rows[9] }}", "ctx.rows[9]"),
        ("{{ ctx['odd name'] }}", "ctx['odd name']"),
        ("{{ ctx[args.who].x }}", "ctx.me"),
        ("{{ ctx.total.x }}", "ctx.total.x"),
        ("{{ ctx.none.x }}", "ctx.none.x"),
        ("{{ steps.unknown.x }}", "steps.unknown"),
        ("{{ fetch.nothing }}", "results.fetch.nothing"),
        ("{{ outcome.http.stat }}", "outcome.http.stat"),
        ("{{ outcome.results }}", "outcome.results"),
        ("{{ outcome.pg }}", "outcome.pg"),
        ("{{ vars.x }}", "vars.x"),
        ("{% set x = ctx.approved %}", "ctx.approved"),
        ("{% if ctx.approved %}{% endif %}", "ctx.approved"),
        ("{% for x in ctx.approved %}{% endfor %}", "ctx.approved"),
        ("{{ range(ctx.approved) }}", "ctx.approved"),
        ("{{ ctx.name.replace('a', ctx.approved) }}", "ctx.approved"),
        ("{{ ctx.a | default(ctx.b) }}", "ctx.b"),
        ("{{ ctx.approved.items() | default(1) }}", "ctx.approved"),
    ],
)
def test_every_use_of_an_undefined_part_is_an_error_that_names_the_first_missing_one(text: str, missing: str) -> None:
    assert f"`{missing}` is undefined" in failure(text).message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ ctx.a.b.c | default(1) }}", 1),
        ("{{ ctx.a['b'][0].c | d(1) }}", 1),
        ("{{ ctx.a | default(ctx.b) | default(3) }}", 3),
        ("{{ ctx.total | default(ctx.b) }}", 7),
        ("{{ ctx.a | default(default_value=2) }}", 2),
        ("{{ ctx.a is defined }}", False),
        ("{{ ctx.a.b is defined }}", False),
        ("{{ ctx.total is defined }}", True),
        ("{{ ctx.none is defined }}", True),
        ("{{ ctx.none | default(1) }}", None),
        ("{{ ctx.none | default(1, true) }}", 1),
        ("{{ ctx.a is defined and ctx.a.b }}", False),
        ("{{ (ctx.a if true else 1) | default(4) }}", 4),
        ("{{ ('x' if false) | default(4) }}", 4),
        ("{{ ctx.empty | first | default('none') }}", "none"),
        ("{% for r in workload['items'] %}{{ r.m.k | default(r.n) }}{% endfor %}", "12"),
    ],
)
def test_an_undefined_part_may_be_chained_under_default_and_is_defined(text: str, value: Any) -> None:
    assert rendered(text) == value


def test_an_undefined_part_of_a_local_value_is_an_error_too() -> None:
    assert "`m` is undefined" in failure("{% for r in workload['items'] %}{{ r.m.k }}{% endfor %}").message
    assert "`m` is undefined" in failure("{{ workload['items'] | map(attribute='m') }}").message
    assert "`m` is undefined" in failure("{{ workload['items'] | selectattr('m') }}").message
    assert "`x` is undefined" in failure("{% if false %}{% set x = 1 %}{% endif %}{{ x }}").message


def test_a_condition_without_else_that_is_false_is_an_error() -> None:
    assert "`else` is missing" in failure("{{ 'x' if false }}").message


def test_an_empty_list_has_no_first_element() -> None:
    assert "empty" in failure("{{ ctx.empty | first }}").message


def test_a_misspelt_key_gets_a_did_you_mean() -> None:
    assert failure("{{ workload.ulr }}").hint == "did you mean `workload.url`?"


def test_fields_an_error_may_lack_are_absent() -> None:
    outcome = outcome_view(Outcome("error", error=ErrorInfo("timeout", "late")), None)
    assert rendered("{{ outcome.error.retry_after_s | default(2) }}", outcome=outcome) == 2
    assert rendered("{{ outcome.error.kind }}", outcome=outcome) == "timeout"
    assert "`outcome.error.status` is undefined" in failure("{{ outcome.error.status }}", outcome=outcome).message


def test_fields_of_the_kinds_own_block_are_there_or_absent() -> None:
    assert rendered("{{ outcome.http.status in [429, 503] }}", outcome=outcome_view(FAILED, "http")) is True
    assert rendered("{{ outcome.pg.code in ['40001'] }}", outcome=outcome_view(LOADED, "pg")) is False
    assert rendered("{{ outcome.quantum.depth is defined }}", outcome=outcome_view(LOADED, "quantum")) is False


def test_a_failed_outcome_without_a_result_has_none() -> None:
    assert decided("{{ outcome.result is defined }}", outcome=outcome_view(FAILED, "http")) is False
    kept = Outcome("error", LOADED.result, ErrorInfo("http_status", "404"))
    assert rendered("{{ outcome.result.status }}", outcome=outcome_view(kept, "http")) == 200


def test_a_null_result_of_a_good_outcome_is_null_and_not_absent() -> None:
    assert decided("{{ outcome.result is defined }}", outcome=outcome_view(Outcome("ok"), None)) is True
    assert rendered("{{ outcome.result }}", outcome=outcome_view(Outcome("ok"), None)) is None
