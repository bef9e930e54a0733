"""``noetl-stream playbook test``: which documents it runs, what it prints and writes, how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from playbook_test_stage import FETCH, written

from warm_program import noetl

ROOT = Path(__file__).resolve().parents[2]
OK = "- { name: good, given: { stubs: { fetch: { result: { data: 1 } } } }, then: { result: { got: 1 } } }"
BAD = "- { name: bad, given: { stubs: { fetch: { result: { data: 1 } } } }, then: { result: { got: 2 } } }"


def test_documents_are_found_by_name_beside_playbooks_and_in_folders(tmp_path: Path) -> None:
    written(tmp_path, FETCH, OK)
    for hidden in (".git", "node_modules"):
        (tmp_path / hidden).mkdir()
        shutil.copy(tmp_path / "p.test.yaml", tmp_path / hidden)
    expected = "p.test.yaml\n  ok   good\n1 passed\n"
    for words in ([], ["p.yaml"], ["p.test.yaml"], ["p.yaml", "p.test.yaml"]):
        found = noetl("playbook", "test", *words, cwd=tmp_path)
        assert (found.returncode, found.stdout, found.stderr) == (0, expected, "")
    assert noetl("playbook", "test", tmp_path).stdout == expected.replace("p.test", f"{tmp_path}/p.test")


def test_a_failure_is_shown_with_its_steps_and_why(tmp_path: Path) -> None:
    written(tmp_path, FETCH, f"{OK}\n{BAD}")
    found = noetl("playbook", "test", cwd=tmp_path)
    assert found.returncode == 1
    assert found.stdout == (
        "p.test.yaml\n"
        "  ok   good\n"
        "  FAIL bad\n"
        "       p.test.yaml:5:95: result.got: expected 2, was 1\n"
        "       steps:\n"
        "         1. fetch (start): step.done\n"
        "         2. use (arc from fetch): step.done\n"
        "       why:\n"
        "         The execution completed.\n"
        "1 passed, 1 failed\n"
    )
    assert noetl("playbook", "test", "-k", "GOO", cwd=tmp_path).returncode == 0


def test_a_document_with_problems_is_invalid(tmp_path: Path) -> None:
    written(tmp_path, FETCH, "- { name: a, thn: {} }")
    written(tmp_path, FETCH, OK, name="q")
    found = noetl("playbook", "test", cwd=tmp_path)
    assert found.returncode == 2
    assert "  p.test.yaml:4:16: error[unknown_key]: unknown key `thn` in a test" in found.stdout
    assert found.stdout.endswith("q.test.yaml\n  ok   good\n1 passed, 1 invalid document\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone.test.yaml"], "gone.test.yaml: cannot be read: No such file or directory"),
        (["p.yaml"], "p.yaml: no tests beside it"),
        ([], "no *.test.yaml in ."),
    ],
)
def test_no_tests_are_a_clear_error(tmp_path: Path, words: list[str], said: str) -> None:
    found = noetl("playbook", "test", *words, cwd=tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr


def test_a_filter_that_matches_no_test_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, FETCH, OK)
    found = noetl("playbook", "test", "-k", "nothing", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (2, "noetl-stream: no test has 'nothing' in its name\n")


def test_the_report_for_ci_servers_has_a_case_for_each_test(tmp_path: Path) -> None:
    written(tmp_path, FETCH, f"{OK}\n{BAD}".replace("name: bad", r'name: "\a & <bell>"'))
    written(tmp_path, FETCH, "- { name: a, thn: {} }", name="q")
    assert noetl("playbook", "test", "--junit", "out.xml", cwd=tmp_path).returncode == 2
    root = Xml.parse(tmp_path / "out.xml").getroot()
    suites = [(one.get("name"), one.get("tests"), one.get("failures"), one.get("errors")) for one in root]
    assert suites == [("p.test.yaml", "2", "1", "0"), ("q.test.yaml", "1", "0", "1")]
    assert [one.get("name") for one in root[0]] == ["good", r"\x07 & <bell>"]
    failure = root.find("./testsuite/testcase/failure")
    assert failure is not None and failure.get("message") == "result.got: expected 2, was 1"
    assert "1. fetch (start): step.done" in (failure.text or "")


def test_the_report_is_xml_whatever_a_result_holds(tmp_path: Path) -> None:
    written(tmp_path, FETCH, r'- { name: "a\uFFFF\u0001", then: { result: "\uFFFE\x1b\u2028" } }')
    assert noetl("playbook", "test", "--junit", "out.xml", cwd=tmp_path).returncode == 1
    case = Xml.parse(tmp_path / "out.xml").getroot().find("./testsuite/testcase")
    assert case is not None and case.get("name") == r"a\uffff\x01"


def test_kinds_that_are_installed_elsewhere_have_stubs(tmp_path: Path) -> None:
    playbook = "workflow: [ { step: one, tool: { kind: snowflake, query: SELECT 1 } } ]"
    written(tmp_path, playbook, "- { name: a, given: { stubs: { one: { result: 1 } } }, then: { result: 1 } }")
    assert noetl("playbook", "test", cwd=tmp_path).returncode == 2
    assert noetl("playbook", "test", "--kinds", "snowflake", cwd=tmp_path).returncode == 0


def test_check_recognises_a_test_document_as_no_playbook(tmp_path: Path) -> None:
    written(tmp_path, FETCH, OK)
    found = noetl("playbook", "check", "p.test.yaml", cwd=tmp_path)
    assert found.returncode == 2
    assert "`kind` must be `Playbook`, not `PlaybookTest`\n  hint: `noetl-stream playbook test` runs it" in found.stdout
    assert found.stdout.count("error[") == 1


def test_a_kind_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("apiVersion: noetl.io/v2\nkind: {}\n")
    found = noetl("playbook", "check", "p.yaml", cwd=tmp_path)
    assert found.returncode == 2 and "p.yaml:2:7: error" in found.stdout, found.stdout


def test_a_playbook_may_end_in_yml(tmp_path: Path) -> None:
    written(tmp_path, FETCH, OK)
    (tmp_path / "p.yaml").rename(tmp_path / "p.yml")
    assert noetl("playbook", "test", "p.yml", cwd=tmp_path).returncode == 0


def test_coverage_is_shown_written_and_required(tmp_path: Path) -> None:
    written(tmp_path, FETCH, OK)
    words = ["--coverage", "--coverage-json", "out.json", "--fail-under"]
    found = noetl("playbook", "test", *words, "33", cwd=tmp_path)
    assert found.returncode == 0
    assert "p.yaml: 4 of 12 covered, 33.3 %" in found.stdout
    assert "never fired" in found.stdout
    assert json.loads((tmp_path / "out.json").read_text())["percent"] == 33.3
    found = noetl("playbook", "test", *words, "34", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (1, "33.3 % covered, less than 34 %\n")


def test_programs_get_the_full_report_as_json(tmp_path: Path) -> None:
    written(tmp_path, FETCH, f"{OK}\n{BAD}")
    found = json.loads(noetl("playbook", "test", "-o", "json", cwd=tmp_path).stdout)
    [document] = found["tests"]
    assert (document["file"], document["ok"]) == ("p.test.yaml", False)
    assert [(test["name"], test["ok"]) for test in document["tests"]] == [("good", True), ("bad", False)]
    assert document["tests"][1]["problems"] == [{"line": 5, "column": 95, "message": "result.got: expected 2, was 1"}]
    assert found["coverage"]["percent"] == 33.3


def test_a_test_reaches_no_other_machine_and_leaves_nothing(tmp_path: Path) -> None:
    """With a stack of its own named that is not there."""
    written(tmp_path, FETCH, OK)
    away = {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_POSTGRES_DSN": "postgresql://127.0.0.1:1/x"}
    assert noetl("playbook", "test", cwd=tmp_path, **away).returncode == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["p.test.yaml", "p.yaml"]


def test_the_schema_of_test_documents_is_printed() -> None:
    schema = json.loads(noetl("playbook", "schema", "--form", "test").stdout)
    assert schema["title"] == "Tests of a NoETL playbook"


def test_functions_of_the_project_are_checked_and_called_as_they_are(tmp_path: Path) -> None:
    """Of the nearest project above a file, though not in the folder where the command runs."""
    step = '- { step: start, tool: { kind: python, function: "prices:total", args: { prices: [3, 4] } } }'
    (tmp_path / "flows").mkdir()
    written(
        tmp_path / "flows", f"workflow:\n  {step}\n", "- { name: sum, given: { real: [python] }, then: { result: 7 } }"
    )
    (tmp_path / "noetl-stream.toml").write_text('name = "team/prices"\npackages = ["src"]\n')
    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "prices.py"
    module.write_text("def total(prices: list[int]) -> int:\n    return sum(prices)\n")
    tested = noetl("playbook", "test", tmp_path / "flows")
    assert tested.returncode == 0, tested.stdout
    module.write_text("def total(amounts: list[int]) -> int:\n    return sum(amounts) + 1\n")
    checked = noetl("playbook", "check", tmp_path / "flows" / "p.yaml")
    assert "prices:total(amounts: list[int]) needs `amounts`, takes no `prices`" in checked.stdout
    assert "total(amounts: list[int]) -> int; without a policy" in noetl("playbook", "test", tmp_path / "flows").stdout
    module.rename(module.with_name("costs.py"))
    checked = noetl("playbook", "check", tmp_path / "flows" / "p.yaml")
    assert "warning[invalid_value]: the packages of the project have no module `prices`" in checked.stdout
