"""The examples of the older dialects, upgraded: each passes ``check``, and those that need no database run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from upgrade_api import PagesApi, pages_api
from upgrade_engine import LocalEngine, local_engine, local_tools
from upgrade_pairs import upgraded

FOLDER = Path(__file__).with_name("legacy")
EXAMPLES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.yaml"))}

PAGES = {"pages": [["a0", "a1"], ["a2", "a3"], ["a4"], ["b0", "b1", "b2"], ["b3", "b4"]]}
ALL_PAGES = [("/a", 1), ("/a", 2), ("/a", 3), ("/b", 1), ("/b", 2)]

RESULTS: dict[str, Any] = {
    "case_1_1_step_shape": PAGES,
    "case_1_3_paginated_step": PAGES,
    "case_1_4_transitions": {"city": "Oslo"},
    "case_1_5_sink": {"value": 42},
    "case_2_3_conditional_start": {"looped": True},
    "case_2_3_loop_with_args": {"url": "http://127.0.0.1", "threshold": 25},
    "case_canonical_shape": {},
    "case_next_forms": {"from": "bar"},
    "case_older_weather": {},
    "case_set": {"pages": [1, 2]},
    "case_step_level_case": {"count": 2},
    "eval_1_2_root_layout": {"url": "https://example.com"},
    "eval_4_1_step_shape": {"count": 2},
    "eval_5_1_task_form": {"rows": ["items0", "items1", "items2", "items3", "items4"]},
    "eval_6_2_directives": {"previous": 31, "done": 30},
    "eval_7_1_loop": {"doubled": [2, 4, 6]},
    "formal_2_3_loop": [{"item": 1}, {"item": 2}, {"item": 3}],
    "formal_2_4_task": {"x": 1},
    "formal_4_2_admission": {"passed": True},
    "formal_6_2_policy": {"failed": True, "kind": "exception"},
    "formal_8_1_router": {},
    "iterator": {"names": ["A", "B"], "n": 2},
    "iterator_v1": {},
    "newer_accumulate": {"items": ["a0", "a1", "a2", "a3", "a4"]},
    "newer_arc_set": {"greeting": "hello ada"},
    "newer_batches": {"ok": 2, "items": [1, 4], "child": "done"},
    "newer_input": {"doubled": 42},
    "newer_loop_stats": {"total": 3, "failed": 0, "sum": 12},
    "newer_output_select": {"rows": ["a0", "a1"], "more": True},
    "newer_pipeline": {"n": 2, "d": [0, 1], "again": [0, 1]},
    "newer_reports": {"total": 6, "names": ["b", "c"], "status": "ok"},
    "newer_retries": {"found": True, "tries": 2, "status": 503},
    "newer_sql_in_python": {"n": 2, "first": "a", "names": ["a", "b"], "last": "b"},
    "newer_status_code": {"code": 200, "n": 2},
    "workbook_assert": {"message": "hot"},
}
"""What the older dialect says that each of these ends with."""

PAGES_ASKED = {
    "case_1_1_step_shape": ALL_PAGES,
    "case_1_3_paginated_step": ALL_PAGES,
    "case_canonical_shape": ALL_PAGES,
    "case_loop_at_the_step": ALL_PAGES,
    "case_mixed_layers": [("/a", 1)],
    "case_step_level_case": [("/a", 1), ("/b", 1)],
    "eval_5_1_task_form": [("/items", 1)],
    "newer_accumulate": ALL_PAGES[:3],
    "newer_output_select": [("/a", 1)],
    "newer_retries": [("/a", 1)],
    "newer_status_code": [("/a", 1)],
}
"""The pages that each of these asks for, the first once more where it retries."""

NEED_A_DATABASE = {"case_vars", "eval_13_minimal_step"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> AsyncIterator[PagesApi]:
    async with pages_api() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where duckdb may keep its files."""
    return tmp_path_factory.mktemp("duckdb")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(folder: Path) -> AsyncIterator[LocalEngine]:
    async with local_engine(local_tools(folder)) as running:
        yield running


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_older_example_is_upgraded_without_a_decision(name: str) -> None:
    """The result passes `check`, and upgrading it again changes nothing."""
    found = upgraded(EXAMPLES[name])

    assert [one.render() for one in found.diagnostics if one.severity == "error"] == []
    assert found.is_done
    assert found.text == upgraded(found.text).text


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_older_example_keeps_its_comments(name: str) -> None:
    """No comment is lost, wherever its entry has gone."""
    after = upgraded(EXAMPLES[name]).text

    said = [line.partition("# ")[2].strip() for line in EXAMPLES[name].splitlines() if "# " in line]
    assert [comment for comment in said if comment not in after] == []


def test_every_example_runs_or_needs_a_database() -> None:
    """None is left out."""
    assert EXAMPLES.keys() == RESULTS.keys() | PAGES_ASKED.keys() | NEED_A_DATABASE


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - NEED_A_DATABASE))
@pytest.mark.asyncio(loop_scope="module")
async def test_an_older_example_does_what_it_did(name: str, engine: LocalEngine, api: PagesApi, folder: Path) -> None:
    """Upgraded, it ends with what the older dialect says, by the tools of a real worker."""
    text, pages = EXAMPLES[name], PAGES_ASKED.get(name, [])
    retries = ("retry:" in text or "do: retry, attempts: 3, backoff: fixed" in text) and bool(pages)
    api.fails_first, api.asked[:] = "/a" if retries else "", []
    workload = {"api_url": api.url} if pages else {}
    if "database:" in text:
        workload["database"] = str(folder / "events.duckdb")

    ended = await engine.run(upgraded(text).text, workload)

    assert ended.status == "completed"
    assert name not in RESULTS or ended.result == RESULTS[name]
    assert api.asked == [*(pages[:1] if retries else []), *pages]
