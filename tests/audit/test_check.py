"""What ``check`` says of playbooks that were written from the sources alone (LANGUAGE §3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.tools.registry import kinds_of, load_tools

HERE = Path(__file__).parent
KINDS = kinds_of({kind: tool for kind, tool in load_tools().items() if kind != "quantum"})


def problems_of(name: str) -> list[Diagnostic]:
    return list(check((HERE / f"{name}.yaml").read_bytes(), KINDS, file=name).diagnostics)


def found(name: str) -> list[tuple[str, int]]:
    """The code and line of each problem."""
    return [(problem.code, problem.line) for problem in problems_of(name)]


def test_a_task_under_its_label_hides_none_of_its_problems() -> None:
    assert found("m02_formal_label_task") == [
        ("impossible_comparison", 13),
        ("else_without_then", 15),
        ("next_shape", 18),
    ]


def test_the_same_task_with_its_name_beside_its_kind_has_the_same_problems() -> None:
    assert found("m02b_after_first_fix") == [
        ("impossible_comparison", 13),
        ("else_without_then", 15),
        ("next_shape", 18),
    ]


def test_lost_indentation_is_one_problem_with_its_name() -> None:
    assert found("m03_lost_indentation") == [("lost_indentation", 6)]


def test_a_misspelt_kind_is_a_misspelt_key_and_hides_nothing() -> None:
    assert found("m13_knd") == [("unknown_key", 7)]
    assert found("m08_typo_and_jump") == [
        ("unknown_key", 7),
        ("unmatched_error", 10),
        ("unknown_task", 10),
        ("invalid_value", 11),
        ("unknown_step", 11),
    ]


def test_params_that_no_statement_uses_are_reported_with_their_placeholder() -> None:
    (problem,) = problems_of("m11_sql_params")
    text = "params.n: no statement uses $n; statement 1 writes %(n)s, and parameters are written $n"
    assert (problem.severity, problem.line, problem.message) == ("error", 6, text)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("m13_knd", "did you mean `kind`?"),
        ("m08_typo_and_jump", "did you mean `kind`?"),
        ("c13_kind_quantum", "install the plugin `noetl-stream-quantum`"),
        ("c26_max_payload_bytes", "write `max_inline_bytes`, the limit that it became"),
        ("c32_task_name_in_arc", "write `start.results.fetch`: it is a task of step `start`"),
        ("c35_token_event_in_admit", "write `args.n`"),
    ],
)
def test_the_hint_says_what_to_write(name: str, hint: str) -> None:
    assert problems_of(name)[0].hint == hint


def test_a_mistake_in_every_section_is_shown_in_one_run() -> None:
    lines = (HERE / "every_section.yaml").read_text().splitlines()
    planted = {number for number, line in enumerate(lines, 1) if line.endswith((" # wrong", "-- wrong"))}
    shown = {problem.line for problem in problems_of("every_section")}
    assert (sorted(planted - shown), sorted(shown - planted)) == ([], [])
    assert len(planted) > 40
