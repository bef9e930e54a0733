"""Guards: a boolean or exactly one expression (LANGUAGE §2)."""

from __future__ import annotations

import pytest
from template_rendering import BINDINGS, NAMESPACES, decided, scope

from noetl_stream.template import ExpressionError, Guard, TemplateProblem, compile_guard, holds


def guard(text: str | bool) -> Guard:
    return compile_guard(text, namespaces=NAMESPACES, bindings=BINDINGS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (True, True),
        (False, False),
        ("{{ true }}", True),
        (" {{ event.name == 'step.done' }}\n", True),
        ("{{ event.name in ['loop.done', 'step.failed'] }}", False),
        ("{{ event.name not in ['loop.done'] }}", True),
        ("{{ 0 < ctx.total <= 7 }}", True),
        ("{{ ctx.total }}", True),
        ("{{ ctx.empty }}", False),
        ("{{ ctx.none }}", False),
        ("{{ ctx.rows | select('gt', 5) }}", False),
        ("{{ 0 }}", False),
        ("{{ steps.later }}", False),
        ("{{ ctx }}", True),
    ],
)
def test_a_guard_holds_by_the_truth_of_its_value(text: str | bool, value: bool) -> None:
    assert decided(text) is value


@pytest.mark.parametrize("text", ["{{ 'false' }}", "{{ workload.flag }}", "{{ ctx.name and 'x' }}", "{{ '' }}"])
def test_a_guard_that_gives_text_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError, match="the guard is text"):
        decided(text)


def test_a_guard_that_gives_no_json_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="not a valid JSON number"):
        decided("{{ 1e999 }}")


@pytest.mark.parametrize(
    "text", ["true", "", "ctx.total > 1", "{{ true }} and {{ true }}", "x {{ true }}", "{% if true %}{% endif %}"]
)
def test_other_text_is_not_a_guard(text: str) -> None:
    with pytest.raises(TemplateProblem) as caught:
        guard(text)
    (problem,) = caught.value.problems
    assert (problem.code, problem.pointer, problem.line, problem.column) == ("guard_not_expression", (), 1, 1)


def test_problems_inside_a_guard_are_found() -> None:
    with pytest.raises(TemplateProblem) as caught:
        guard("{{ who == 1 and ctx.x | nofilter }}")
    assert [problem.code for problem in caught.value.problems] == ["unbound_name", "unknown_filter"]


def test_a_guard_has_its_text_and_its_reads() -> None:
    compiled = guard("{{ event.error.kind == 'timeout' and total > 1 }}")
    assert compiled.source == "{{ event.error.kind == 'timeout' and total > 1 }}"
    assert compiled.reads == {("event", "error"), ("ctx", "total")}
    assert guard(True).source == "true"
    assert guard(False).reads == frozenset()


def test_a_guard_knows_the_literals_it_compares_with() -> None:
    text = (
        "{{ event.name == 'loop.done' or 'ok' != outcome['status'] or event.status in ['success', 1, 'x']"
        " or not (event.name not in ('a',)) or [ctx[event.name] == 'no'] or event.name == ctx.name == 'b' }}"
    )
    assert guard(text).comparisons == (
        (("event", "name"), "loop.done"),
        (("outcome", "status"), "ok"),
        (("event", "status"), "success"),
        (("event", "status"), "x"),
        (("event", "name"), "a"),
        (("ctx", "name"), "b"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "{{ total }}",
        "{{ not total }}",
        "{{ total | default(false) }}",
        "{{ total and ctx.b > 1 }}",
        "{{ ctx.b > total or total == true }}",
        "{{ true == total | default(none) }}",
    ],
)
def test_a_guard_lists_the_values_tested_for_truth(text: str) -> None:
    assert guard(text).tested == ((("ctx", "total"), True),)


def test_a_guard_knows_the_numbers_and_texts_it_tests() -> None:
    text = "{{ ctx.a == 3 or 'x' != ctx.b | default('y') or ctx.c in [1.5, none] or ctx.d > 4 or ctx.e is defined }}"
    assert guard(text).tested == ((("ctx", "a"), 3), (("ctx", "b"), "x"), (("ctx", "c"), 1.5))
    assert guard(text).comparisons == ()


def test_a_bare_name_is_compared_under_the_path_it_means() -> None:
    assert guard("{{ total == 'seven' }}").comparisons == ((("ctx", "total"), "seven"),)


def test_a_guard_has_no_blocks_and_no_namespace_objects() -> None:
    with pytest.raises(TemplateProblem):
        guard("{{ namespace(a=1) }}")


def test_one_guard_is_evaluated_in_many_scopes() -> None:
    compiled = guard("{{ ctx.total > 5 and ctx.total | int == ctx.total }}")
    assert [holds(compiled, scope(ctx={"total": total})) for total in (7, 4, 9)] == [True, False, True]
