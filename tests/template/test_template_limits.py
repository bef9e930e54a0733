"""Attacks by cost: the cost of a template is counted, and the error names the limit (LANGUAGE §14)."""

from __future__ import annotations

import pytest
from template_rendering import codes, failure, problems, rendered

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template import Scope
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.meter import Meter

BIG = {"text": "x" * 1_000_000, "list": [0] * 100_000}


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("{{ 'a' * 10 ** 9 }}", "max_template_output_chars"),
        ("{{ 10 ** 9 * 'a' }}", "max_template_output_chars"),
        ("{{ [0] * 10 ** 9 }}", "max_template_repeat_items"),
        ("{{ 10 ** 9 * [0] }}", "max_template_repeat_items"),
        ("{{ 9 ** (9 ** 9) }}", "max_template_number_bits"),
        ("{{ (2 ** 4000) * (2 ** 4000) }}", "max_template_number_bits"),
        ("{{ range(10 ** 9) }}", "max_template_range_items"),
        ("{{ range(0, 10 ** 9, 2) | length }}", "max_template_range_items"),
        ("{{ '%999999999d' % 1 }}", "max_template_output_chars"),
        ("{{ '%.999999999f' | format(1) }}", "max_template_output_chars"),
        ("{{ ('%(a)s' * 1000) % {'a': ctx.text} }}", "max_template_output_chars"),
        ("{{ 'a'.ljust(10 ** 9) }}", "max_template_output_chars"),
        ("{{ 'a'.zfill(10 ** 9) }}", "max_template_output_chars"),
        ("{{ 'a' | center(10 ** 9) }}", "max_template_output_chars"),
        ("{{ 'a' | indent(10 ** 9, true) }}", "max_template_output_chars"),
        ("{{ ctx.text.replace('x', ctx.text) }}", "max_template_output_chars"),
        ("{{ ctx.text | replace('x', ctx.text) }}", "max_template_output_chars"),
        ("{{ ctx.list | join(ctx.text) }}", "max_template_output_chars"),
        ("{{ ctx.text.join(['a'] * 1000) }}", "max_template_output_chars"),
        ("{{ [1] | batch(10 ** 9, 0) }}", "max_template_repeat_items"),
        ("{{ [1] | slice(10 ** 9) }}", "max_template_repeat_items"),
        ("{{ ctx.list * 20 }}", "max_template_repeat_items"),
        ("{{ ([ctx.list] * 20) | sum(start=[]) }}", "max_template_repeat_items"),
        ("{{ [ctx.list * 9] * 1000 }}", "max_template_result_items"),
        ("{{ [ctx.text] * 1000 }}", "max_template_result_chars"),
        ("{{ ([ctx.text] * 1000) | tojson }}", "max_template_result_chars"),
        ("{{ ([range(100000)] * 1000) | map('sum') | sum }}", "max_template_operations"),
        ("{{ ([[ctx.list]] * 1000) | select('eq', [ctx.list]) }}", "max_template_operations"),
        (
            "{{ ctx.text ~ ctx.text ~ ctx.text ~ ctx.text ~ ctx.text ~ ctx.text ~ ctx.text ~ ctx.text ~ ctx.text }}",
            "max_template_output_chars",
        ),
        ("{{ ctx.text }}" * 9, "max_template_output_chars"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "max_template_operations"),
        ("{% for a in range(100000) %}" + "x" * 1000 + "{% endfor %}", "max_template_output_chars"),
        ("{% for a in range(100000) %}{{ ctx.text }}{% endfor %}", "max_template_output_chars"),
        (
            "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
            "max_template_output_chars",
        ),
        (
            "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
            "max_template_output_chars",
        ),
        (
            "{% set n = namespace(t=[1]) %}{% for a in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
            "max_template_repeat_items",
        ),
        (
            "{% set n = namespace(t=2) %}{% for a in range(99) %}{% set n.t = n.t * n.t %}{% endfor %}",
            "max_template_number_bits",
        ),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "max_template_call_depth"),
        (
            "{% macro m() %}" + "x" * 9999 + "{% endmacro %}{% for a in range(99999) %}{% set x = m() %}{% endfor %}",
            "max_template_output_chars",
        ),
        ("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "max_template_call_depth"),
    ],
)
def test_an_expensive_template_ends_at_a_named_limit(text: str, limit: str) -> None:
    message = failure(text, ctx=BIG).message
    assert f"limits.{limit} ({getattr(DEFAULT_LIMITS, limit):,})" in message


def test_a_template_that_is_too_long_is_refused() -> None:
    longest = "{{ 1 }}" + "x" * (DEFAULT_LIMITS.max_template_chars - 7)
    assert codes(longest) == []
    (problem,) = problems({"sql": longest + "x"})
    assert (problem.code, problem.pointer) == ("template_too_long", ("sql",))
    assert "max_template_chars" in problem.message


def test_the_length_limit_does_not_apply_to_plain_text() -> None:
    assert rendered("x" * 1_000_000) == "x" * 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
        "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
        "{{ " + "not " * 5_000 + "1 }}",
        "{{ " + "-" * 5_000 + "1 }}",
        "{{ " + "1 + " * 5_000 + "1 }}",
        "{{ 1" + " | abs" * 5_000 + " }}",
        "{{ ctx" + ".a" * 5_000 + " + " + "1 + " * 200 + "1 }}",
        "{% if 1 %}" * 500 + "{% endif %}" * 500,
        "{% for i in [1] %}" * 25 + "{% endfor %}" * 25,
    ],
)
def test_a_template_that_nests_too_deeply_is_refused(text: str) -> None:
    assert set(codes(text)) == {"template_syntax"}


def test_a_long_path_is_not_deep() -> None:
    assert rendered("{{ ctx" + ".a" * 5_000 + " | default(1) }}") == 1


def test_a_value_that_nests_too_deeply_is_an_error() -> None:
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    assert "is nested more than 200 levels deep" in failure("{{ ctx.deep }}", ctx={"deep": deep}).message


@pytest.mark.parametrize(
    ("text", "limit"),
    [("{{ 'a' * 10 ** 9 }}", "max_template_output_chars"), ("{{ 9 ** (9 ** 9) }}", "max_template_number_bits")],
)
def test_nothing_is_computed_while_compiling(text: str, limit: str) -> None:
    assert codes(text) == []
    assert limit in failure(text).message


def test_each_rendering_has_its_own_count_for_all_its_texts_together() -> None:
    text = "{{ ctx.text ~ ctx.text ~ ctx.text }}"
    assert len(rendered(text, Scope({"ctx": BIG}))) == 3_000_000
    assert len(rendered(text, Scope({"ctx": BIG}))) == 3_000_000
    assert "max_template_output_chars" in failure([text, text, text], Scope({"ctx": BIG})).message


LONG_SEARCHES = {"text": "a" * 7_000, "part": "a" * 5_000 + "ba", "word": "error"}
"""Python compares the part at each of 2,000 places, which is ten million characters."""


@pytest.mark.parametrize(
    "search",
    [
        "ctx.part in ctx.text",
        "ctx.part not in ctx.text",
        "ctx.part is in ctx.text",
        "'x' == ctx.part in ctx.text",
        "[ctx.part] | select('in', ctx.text) | list",
        "ctx.text.find(ctx.part)",
        "ctx.text.count(ctx.part)",
        "ctx.text.split(maxsplit=1, sep=ctx.part)",
        "ctx.text.partition(ctx.part)",
        "ctx.text.replace(ctx.part, '')",
        "ctx.text | replace(ctx.part, '')",
    ],
)
def test_a_search_costs_all_the_characters_that_it_may_compare(search: str) -> None:
    few = Limits(max_template_operations=2_000)
    if "==" not in search:  # a chain stops at what is false
        message = failure(f"{{{{ {search} }}}}", Scope({"ctx": LONG_SEARCHES}, limits=few)).message
        assert "limits.max_template_operations (2,000)" in message
    word = search.replace("ctx.part", "ctx.word")
    assert rendered(f"{{{{ {word} }}}}", Scope({"ctx": LONG_SEARCHES}, limits=few)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "{{ (['a'] * 1000) | map('tojson', indent=1) | list }}",
        "{{ ctx.list[:60000] }}",
        "{{ ctx.text[:99000] | urlencode }}",
        "{{ ctx.text * 5 }}",
        "{% for a in range(900) %}{% set x = 2 ** 4000 // 3 %}{% endfor %}",
        "{% macro m() %}{% endmacro %}{% for a in range(1800) %}{{ m() }}{% endfor %}",
        "{% for a in range(1800) %}{% set x = [] | groupby('a') %}{% endfor %}",
        "{% for a in range(900) %}{% set x = 1.5e300 | round(100) %}{% endfor %}",
        "{% set p = 'a,' * 2000 %}{% for a in range(5) %}{% set x = [] | sort(attribute=p) %}{% endfor %}",
    ],
)
def test_all_that_a_rendering_costs_counts_not_its_items_alone(text: str) -> None:
    assert rendered(text, Scope({"ctx": BIG})) is not None
    few = Limits(max_template_operations=9_000)
    message = failure(text, Scope({"ctx": BIG}, limits=few)).message
    assert "limits.max_template_operations (9,000)" in message


def test_the_largest_values_and_texts_cost_less_than_a_rendering_may() -> None:
    scope = Scope({"ctx": BIG})
    assert len(rendered("{{ ctx.text * 8 }}", scope)) == 8_000_000
    assert sum(map(len, rendered("{{ [ctx.list * 9] * 2 }}", scope))) == 1_800_000


def test_a_meter_enforces_its_limits() -> None:
    meter = Meter(Limits(max_template_operations=2))
    meter.work(2)
    with pytest.raises(EvaluationFailure, match="max_template_operations"):
        meter.work(1)
    meter = Meter(Limits(max_template_call_depth=1))
    meter.enter()
    meter.leave()
    meter.enter()
    with pytest.raises(EvaluationFailure, match="max_template_call_depth"):
        meter.enter()
