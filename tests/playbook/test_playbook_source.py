"""Reading YAML: the 1.2 core schema, invalid text and limits (LANGUAGE §1, §14)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playbook_building import HEAD, codes, workflow
from playbook_kinds import KINDS

from effort import times
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.source import MAX_PLAYBOOK_BYTES, MAX_YAML_ALIASES, read_source


def value_of(yaml: str) -> Any:
    problems = Problems("<yaml>")
    source = read_source(f"value: {yaml}\n", problems)
    assert source is not None and not problems.has_errors, problems.sorted()
    return source.root.plain()["value"]


def problems_of(text: str | bytes) -> list[tuple[str, int, int]]:
    problems = Problems("<yaml>")
    read_source(text, problems)
    return [(item.code, item.line, item.column) for item in problems.sorted()]


@pytest.mark.parametrize(
    ("yaml", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'007'", "007"),
        ('"7"', "7"),
        ("yes", "yes"),
        ("off", "off"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:00", "12:30:00"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("1.2.3", "1.2.3"),
        ("!!str 7", "7"),
        ("! 7", "7"),
        ("!!float 7", 7),
        ("|\n  a\n  b", "a\nb\n"),
        (">-\n  a\n  b", "a b"),
        ("{ a: [1, { b: 2 }] }", {"a": [1, {"b": 2}]}),
    ],
)
def test_plain_words_follow_the_core_schema(yaml: str, value: Any) -> None:
    found = value_of(yaml)
    assert found == value and type(found) is type(value)


def test_an_alias_is_a_copy_of_its_anchor() -> None:
    assert value_of("{ a: &x { n: [1] }, b: *x }") == {"a": {"n": [1]}, "b": {"n": [1]}}


def test_a_problem_in_an_aliased_part_is_reported_once() -> None:
    text = workflow(
        """
        - step: start
          tool: &both { kind: noop, agrs: {} }
        - step: more
          tool: *both
        """
    )
    assert codes(text).count("unknown_key") == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a: \xff", ("yaml_encoding", 1, 4)),
        (b"a: b\nc: \xc3", ("yaml_encoding", 2, 4)),
        ("a: \x07", ("yaml_encoding", 1, 4)),
        ("a: b\n\tc: d", ("yaml_tab", 2, 1)),
        ("", ("yaml_empty", 1, 1)),
        ("# nothing\n", ("yaml_empty", 1, 1)),
        ("a: " + "9" * 5000, ("yaml_number", 1, 4)),
        ("a: !!int x", ("yaml_tag", 1, 4)),
        ("a: !!binary eA==", ("yaml_tag", 1, 4)),
        ("a: !!set {}", ("yaml_tag", 1, 4)),
        ("? [a]\n: b", ("yaml_key", 1, 3)),
        ("a: [", ("yaml_syntax", 1, 4)),
        ('a: "{{ "x" }}"', ("yaml_syntax", 1, 9)),
        ("a: { b: '{{ c['x'] }}' }", ("yaml_syntax", 1, 16)),
        ("@a", ("yaml_syntax", 1, 1)),
        ('a: "\\uD800"', ("yaml_encoding", 1, 4)),
        ('a: "\\UFFFFFFFF"', ("yaml_syntax", 1, 1)),
    ],
)
def test_invalid_yaml_has_a_position(text: str | bytes, problem: tuple[str, int, int]) -> None:
    assert problems_of(text) == [problem]


def test_an_open_quote_is_reported_where_it_starts() -> None:
    [problem] = check('a: 1\nb: "open\n', KINDS).diagnostics
    assert (problem.line, problem.column, problem.hint) == (2, 4, 'write b: "open"')


def test_a_byte_order_mark_is_ignored() -> None:
    text = "\ufeff" + workflow("- step: start\n  tool: { kind: noop }")
    assert check(text, KINDS).ok
    assert check(text.encode(), KINDS).ok


def test_a_playbook_that_json_wrote_may_escape_a_character_as_two_surrogates() -> None:
    """YAML 1.2 is a superset of JSON, and this is how ``json.dumps`` writes what is outside of the basic plane."""
    text = {"\U0001f600": "a\U0001f600b\U00010000\U0010ffff", "plain": "ü"}
    assert "\\ud83d\\ude00" in json.dumps(text)
    assert value_of(json.dumps(text)) == text
    for lone in ("\\ud83d", "\\ude00\\ud83d"):
        assert problems_of(f'value: "{lone}"') == [("yaml_encoding", 1, 8)]


def test_windows_line_ends_are_read_like_others() -> None:
    text = workflow("- step: start\n  toool: 1\n  tool: { kind: noop }")
    [one], [other] = check(text, KINDS).diagnostics, check(text.replace("\n", "\r\n"), KINDS).diagnostics
    assert (one.line, one.column) == (other.line, other.column)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_yaml_nodes", BOMB),
        ("max_yaml_nodes", "a: [" + "1, " * 60_000 + "]"),
        ("max_yaml_aliases", "a: &x 1\nb: [" + "*x , " * (MAX_YAML_ALIASES + 1) + "]"),
        ("max_yaml_depth", "a: " + "[" * 100_000),
        ("max_yaml_depth", "a: " + "{ a: " * 50_000),
        ("max_yaml_depth", "- " * 50_000),
        ("max_yaml_depth", "a:\n" + "".join(" " * depth + "a:\n" for depth in range(1, 300))),
        ("max_playbook_bytes", "#" * (MAX_PLAYBOOK_BYTES + 1)),
    ],
)
def test_text_that_would_cost_too_much_is_refused_by_the_name_of_the_limit(name: str, text: str) -> None:
    [problem] = check(text, KINDS).diagnostics
    assert problem.code == "yaml_limit"
    assert name in problem.message


def test_aliases_cannot_nest_deeper_than_the_limit() -> None:
    chain = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 100))
    assert [code for code, _, _ in problems_of(chain)] == ["yaml_limit"]


MESS = st.lists(
    st.sampled_from(
        [*"{}[]:-?,#&*!|>'\"%@`\\\t\n 7~", "- ", ": ", "{{", "}}", "{% ", "&a ", "*a", "!!", "---", "\0", "\ud800", "é"]
    ),
    max_size=8,
)
GOOD = workflow(
    """
    - step: start
      spec: { join: any, policy: { lifecycle: { timeout_s: 5 } } }
      loop: { in: "{{ workload.items }}", iterator: item, loop: { in: "{{ item.parts }}", iterator: part } }
      tool:
        - name: fetch
          kind: http
          url: "{{ item.url }}"
          spec:
            policy:
              rules:
                - when: "{{ outcome.status == 'error' }}"
                  then: { do: retry, attempts: 3 }
                - else: { then: { do: continue, set_ctx: { last: "{{ _prev }}" } } }
        - { kind: noop, args: { a: "{{ keychain.pg }}{{ iter.parent.item }}" } }
      next: { arcs: [ { step: start, when: "{{ event.name == 'loop.done' }}" } ] }
    """,
    root="keychain: [ { name: pg, kind: credential } ]\n",
)


@settings(max_examples=times(100), deadline=None, derandomize=True)
@given(mess=MESS, at=st.integers(0, len(GOOD)), cut=st.integers(0, 20))
def test_no_text_makes_the_checker_raise(mess: list[str], at: int, cut: int) -> None:
    text = GOOD[:at] + "".join(mess) + GOOD[at + cut :]
    checked = check(text, KINDS)
    assert checked.ok or any(item.severity == "error" for item in checked.diagnostics)
    assert all(item.line >= 1 and item.column >= 1 for item in checked.diagnostics)


@settings(max_examples=times(80), deadline=None, derandomize=True)
@given(data=st.binary(max_size=60))
def test_no_bytes_make_the_checker_raise(data: bytes) -> None:
    assert not check(HEAD.encode() + data, KINDS).ok
