"""docs/reference/templates.md is correct: its examples are run, and its lists are compared with the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict
from ruamel.yaml import YAML
from template_rendering import NAMESPACES

from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.outcome import Outcome
from noetl_stream.template import (
    ABSENT,
    ExpressionError,
    ResultView,
    Scope,
    compile_guard,
    compile_template,
    holds,
    render,
)
from noetl_stream.template.filters.values import FILTERS, TESTS
from noetl_stream.template.runtime.environment import FUNCTIONS
from noetl_stream.template.runtime.operators import LOOP_METHODS, MAPPING_METHODS, TEXT_METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "templates.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def examples(kind: str) -> list[tuple[str, str]]:
    lines = "".join(blocks(kind)).splitlines()
    return [(text.rstrip(), expected.strip()) for text, _, expected in (line.partition(" => ") for line in lines)]


def view(value: Any) -> Any:
    return ABSENT if value == "absent" else ResultView(Outcome("ok", payload_of(value)))


@pytest.fixture(scope="module")
def page_scope() -> Scope:
    values = YAML(typ="safe", pure=True).load(blocks("yaml values")[0])
    for namespace in ("steps", "results"):
        values[namespace] = {name: view(value) for name, value in values[namespace].items()}
    return Scope(values)


@pytest.mark.parametrize(("text", "expected"), examples("text"))
def test_an_example_of_the_page_gives_its_result(text: str, expected: str, page_scope: Scope) -> None:
    template = compile_template(text, namespaces=NAMESPACES, bindings={})
    if expected.startswith("error: "):
        with pytest.raises(ExpressionError) as caught:
            render(template, page_scope)
        assert expected.removeprefix("error: ") in str(caught.value)
    else:
        assert render(template, page_scope) == json.loads(expected)


@pytest.mark.parametrize(("text", "expected"), examples("text guards"))
def test_a_guard_of_the_page_decides_what_it_says(text: str, expected: str, page_scope: Scope) -> None:
    guard = compile_guard(text, namespaces=NAMESPACES, bindings={})
    if expected.startswith("error: "):
        with pytest.raises(ExpressionError, match=expected.removeprefix("error: ")):
            holds(guard, page_scope)
    else:
        assert holds(guard, page_scope) is json.loads(expected)


def test_the_page_has_examples() -> None:
    assert len(examples("text")) > 30
    assert len(examples("text guards")) == 4


def listed(heading: str) -> set[str]:
    paragraph = PAGE[PAGE.index(f"\n{heading}: ") :].split("\n\n")[0]
    return set(re.findall(r"`(\w+)`", paragraph))


def test_the_page_lists_every_method() -> None:
    assert listed("Methods of a mapping that has no such key") == MAPPING_METHODS
    assert listed("Methods of a text") == TEXT_METHODS
    assert listed("Methods of `loop` in a block") - {"loop"} == LOOP_METHODS


def test_the_page_lists_every_filter_test_and_function() -> None:
    assert listed("Filters") == set(FILTERS)
    assert listed("Tests") == {name for name in TESTS if name.isidentifier()}
    assert listed("Functions") == set(FUNCTIONS)


def test_the_page_lists_every_limit_with_its_default() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
    limits = page.read_text(encoding="utf-8").split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", limits, re.MULTILINE)
    assert {name: float(default.replace(",", "")) for name, default in rows} == asdict(DEFAULT_LIMITS)
    assert "(limits.md)" in PAGE
