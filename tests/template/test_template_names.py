"""Names that a template may use, and the errors for others (LANGUAGE §2)."""

from __future__ import annotations

import pytest
from template_rendering import codes, failure, problems, rendered

from noetl_stream.template import TemplateProblem, compile_template
from noetl_stream.template.compile.parsing import MAX_PROBLEMS
from noetl_stream.template.runtime.scope import NAMESPACES


def test_a_bare_name_means_the_path_it_is_bound_to() -> None:
    assert rendered("{{ total }}") == 7
    assert rendered("{{ load.data.rows }}") == [1, 2, 3]


def test_a_name_bound_nowhere_is_a_problem_that_says_what_to_write() -> None:
    (problem,) = problems("{{ who }}")
    assert (problem.code, problem.name, problem.line, problem.column) == ("unbound_name", "who", 1, 4)
    assert problem.hint == "write `workload.who`, `ctx.who` or `args.who` for a value from outside"


@pytest.mark.parametrize(("name", "expected"), [("totl", "total"), ("lod", "load"), ("workloads", "workload")])
def test_a_misspelt_name_gets_a_did_you_mean(name: str, expected: str) -> None:
    (problem,) = problems(f"{{{{ {name}.x }}}}")
    assert problem.hint is not None
    assert problem.hint.startswith(f"did you mean `{expected}`?")


def test_null_of_other_languages_is_named_none() -> None:
    (problem,) = problems("{{ ctx.a == null }}")
    assert problem.hint == "write `none`"


def test_a_namespace_that_does_not_exist_here_is_a_problem() -> None:
    (problem,) = problems("{{ event.name }}", namespaces=frozenset({"ctx"}))
    assert problem.code == "namespace_not_here"
    assert problem.hint == "use `event` in the arcs of `next` only"


@pytest.mark.parametrize("namespace", sorted(NAMESPACES - {"workload", "ctx", "steps", "execution_id"}))
def test_a_namespace_that_is_not_everywhere_is_refused_with_the_places_where_it_is(namespace: str) -> None:
    (problem,) = problems(f"{{{{ {namespace} }}}}", namespaces=frozenset({"ctx"}), expressions_only=True)
    assert problem.code == "namespace_not_here"
    assert problem.hint is not None and problem.hint.startswith(f"use `{namespace}` in")


def test_the_entries_of_the_keychain_that_a_template_reads_are_known_before_it_is_rendered() -> None:
    source = {
        "headers": {"a": "Bearer {{ keychain.api.token }}", "b": "{{ keychain['other'] }}"},
        "sql": "{% for x in [1] %}{{ keychain.db.password if x else keychain.never | default('') }}{% endfor %}",
        "plain": "keychain.not_read",
    }
    template = compile_template(source, namespaces=frozenset({"keychain"}), bindings={})
    assert {path[:2] for path in template.paths} == {("keychain", name) for name in ("api", "other", "db", "never")}
    assert compile_template("{{ 1 }}", namespaces=frozenset(), bindings={}).paths == frozenset()


def test_only_the_first_of_many_unbound_names_are_reported() -> None:
    found = problems("{{ " + " ~ ".join(f"name_{number}" for number in range(5_000)) + " }}")
    assert [problem.message for problem in found[:2]] == [
        "`name_0` is not defined",
        "`name_1` is not defined",
    ]
    assert len(found) == MAX_PROBLEMS


def test_a_bare_name_whose_namespace_does_not_exist_here_is_a_problem() -> None:
    (problem,) = problems("{{ fetch }}", namespaces=frozenset({"ctx"}))
    assert problem.code == "namespace_not_here"
    assert "results.fetch" in problem.message


def test_a_namespace_cannot_be_shadowed_by_a_bare_name() -> None:
    assert rendered("{{ ctx.total }}") == 7
    assert codes("{{ keychain }}", bindings={"keychain": ("workload", "keychain")}) == ["namespace_not_here"]


def test_token_is_a_namespace_in_admission_and_an_ordinary_name_elsewhere() -> None:
    assert codes("{{ token.cause }}") == ["namespace_not_here"]
    assert codes("{{ token.cause }}", namespaces=frozenset({"token"})) == []
    assert codes("{{ token }}", bindings={"token": ("workload", "token")}) == []


def test_every_problem_of_every_text_is_found_with_its_place() -> None:
    source = {"a": ["ok", "line\n  {{ one }} {{ two | nofilter }}"], "b": "{{ ctx.x is notest }}", "c": "{{ 1 + }}"}
    found = [(p.code, p.pointer, p.line, p.column) for p in problems(source)]
    assert found == [
        ("unbound_name", ("a", 1), 2, 6),
        ("unbound_name", ("a", 1), 2, 16),
        ("unknown_filter", ("a", 1), 2, 22),
        ("unknown_test", ("b",), 1, 10),
        ("template_syntax", ("c",), 1, 8),
    ]


def test_the_error_carries_all_problems_and_counts_them() -> None:
    with pytest.raises(TemplateProblem) as caught:
        compile_template("{{ a }} {{ b }}", namespaces=frozenset(), bindings={})
    assert len(caught.value.problems) == 2
    assert "and 1 more" in caught.value.message


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("{{ a", 4, "unexpected end of template, expected `}}`"),
        ("{{ 1 2 }}", 6, "expected token `}}`, got 'integer'"),
        ("{{ }}", 4, "Expected an expression"),
        ("{{ 1 ? 2 }}", 6, "`?` is not an operator: write `value if condition else other`"),
        ("{{ 1 && 2 }}", 6, "`&&` is not an operator: write `and`"),
        ("{{ 1 || 2 }}", 7, "`||` is not an operator: write `or`"),
        ("{{ !1 }}", 4, "`!` is not an operator: write `not`"),
        ("{{ 1 === 2 }}", 8, "`=` is not an operator here: compare with `==`"),
        ("{{ $.url }}", 4, "`$` is not part of a name: write the path"),
        ("{{ {{ 1 }} }}", 9, "braces open a mapping"),
        ("{{ [x for x in [1]] }}", 7, "a list is not made with `for`"),
        ("ab {% if true %}", 15, "Unexpected end of template"),
        ("{{ (1 }}", 7, "ends with two braces"),
        ("{% do x %}", 4, "Encountered unknown tag 'do'"),
        ("{{ ctx.foo() }}", 7, "unknown method `foo`"),
        ("{{ total(1) }}", 4, "`total` is not a function"),
        ("{{ (1)(2) }}", 7, "only functions, macros and methods can be called"),
    ],
)
def test_syntax_problems_have_a_message_and_a_position(text: str, column: int, part: str) -> None:
    (problem,) = problems(text)
    assert problem.code == "template_syntax"
    assert part in problem.message
    assert (problem.line, problem.column) == (1, column)


def test_columns_are_right_after_stripped_white_space_and_line_ends() -> None:
    assert [(p.line, p.column) for p in problems("a \r\n {{- who }}\r\n{{ whom }}")] == [(2, 6), (3, 4)]


@pytest.mark.parametrize("filter_", ["random", "xmlattr", "pprint", "urlize", "attr", "safe", "@read"])
def test_filters_of_chance_clocks_and_objects_do_not_exist(filter_: str) -> None:
    assert codes(f"{{{{ ctx.rows | {filter_} }}}}") in (["unknown_filter"], ["template_syntax"])
    assert codes(f"{{{{ ctx.rows | map('{filter_}') }}}}") == ["unknown_filter"]


def test_a_filter_or_test_named_inside_another_is_checked_too() -> None:
    assert codes("{{ ctx.rows | map('uper') | select('od') | rejectattr('a', 'evn') }}") == [
        "unknown_filter",
        "unknown_test",
        "unknown_test",
    ]
    assert "unknown filter `@read`" in failure("{{ ctx.rows | map(ctx.f) }}", ctx={"rows": [0], "f": "@read"}).message


@pytest.mark.parametrize("name", ["lipsum", "cycler", "joiner", "self", "open"])
def test_functions_that_are_not_listed_do_not_exist(name: str) -> None:
    (problem,) = problems(f"{{{{ {name}() }}}}")
    assert problem.code == "unbound_name"
    assert problem.hint is not None
    assert "`range()`" in problem.hint


def test_an_unknown_method_gets_a_did_you_mean() -> None:
    (problem,) = problems("{{ ctx.name.uper() }}")
    assert problem.hint == "did you mean `upper`?"
