"""Coverage counts the arcs that fired, the rules that decided, and guards by both of their values."""

from __future__ import annotations

import json
from pathlib import Path

from playbook_test_stage import FETCH, runner, written

from noetl_stream.playbook_tests.journal import Coverage, coverage_json
from noetl_stream.playbook_tests.suite import run_document

OK = "given: { stubs: { fetch: { result: { data: 1 } } } }"
GONE = "given: { stubs: { fetch: { result: { status: 404 } } } }, then: { result: { mended: 404 } }"
AGAIN = "given: { stubs: { fetch: [ { attempt: 1, error: timeout }, { result: {} } ] } }"
DOWN = "given: { stubs: { fetch: { error: sql } } }, then: { error: sql }"


def covered(folder: Path, playbook: str, *tests: str) -> Coverage:
    listed = "\n".join(f"- {{ name: test {number}, {test} }}" for number, test in enumerate(tests))
    coverage = Coverage()
    ran = run_document(written(folder, playbook, listed), runner(), coverage)
    assert ran.passed, ran
    return coverage


def missed(coverage: Coverage) -> set[tuple[str, str, str]]:
    [playbook] = coverage.playbooks()
    return {(item.kind, item.where, one) for item in playbook.items for one in item.missed}


def test_coverage_of_one_test_counts_what_it_reaches(tmp_path: Path) -> None:
    coverage = covered(tmp_path, FETCH, OK)
    assert missed(coverage) == {
        ("rule", "fetch.get rule 1", "never decided"),
        ("guard", "fetch.get rule 1", "never true"),
        ("rule", "fetch.get rule 2", "never decided"),
        ("guard", "fetch.get rule 2", "never true"),
        ("guard", "fetch → use", "never false"),
        ("arc", "fetch → mend", "never fired"),
        ("guard", "fetch → mend", "never true"),
        ("guard", "fetch → mend", "never false"),
    }
    assert coverage.percent() == 100 * 4 / 12


def test_several_tests_reach_more_together(tmp_path: Path) -> None:
    assert missed(covered(tmp_path, FETCH, OK, GONE, AGAIN)) == {("guard", "fetch → mend", "never false")}
    coverage = covered(tmp_path, FETCH, OK, GONE, AGAIN, DOWN)
    assert missed(coverage) == set()
    assert coverage.percent() == 100


def test_admissions_and_resting_branches_count(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: gate
            spec:
              policy:
                admit:
                  wait: { timeout_s: 60 }
                  rules: [ { when: "{{ ctx.open }}", then: { allow: true } }, { else: { then: { allow: false } } } ]
            next:
              spec: { wait: { timeout_s: 60 } }
              arcs: [ { step: end, when: "{{ ctx.go }}" } ]
          - { step: end, tool: { kind: noop } }
    """
    at_once = "given: { ctx: { open: true, go: true } }"
    later = "when: [ { patch: { open: true } }, { patch: { go: true } } ]"
    assert missed(covered(tmp_path, playbook, at_once)) == {
        ("guard", "gate admission rule 1", "never false"),
        ("rule", "gate admission rule 2", "never decided"),
        ("guard", "gate → end", "never false"),
    }
    assert missed(covered(tmp_path, playbook, later)) == set()


def test_a_playbook_without_choices_is_covered(tmp_path: Path) -> None:
    coverage = covered(tmp_path, "workflow: [ { step: one, tool: { kind: noop } } ]", "given: {}")
    assert coverage.percent() == 100


def test_programs_get_each_item_with_its_line(tmp_path: Path) -> None:
    found = json.loads(json.dumps(coverage_json(covered(tmp_path, FETCH, OK))))
    assert (found["percent"], found["playbooks"][0]["path"]) == (33.3, "tests/p")
    lines = (tmp_path / "p.yaml").read_text().splitlines()
    arcs = [item for item in found["playbooks"][0]["items"] if item["kind"] == "arc"]
    assert [lines[arc["line"] - 1].split()[3].rstrip(",") for arc in arcs] == ["use", "mend"]
