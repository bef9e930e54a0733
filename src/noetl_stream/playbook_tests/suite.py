"""Finds test documents, runs them, and reports their outcomes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as Xml

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.playbook_tests import ENDING, is_test_document
from noetl_stream.playbook_tests.journal import Coverage
from noetl_stream.playbook_tests.loading import LoadedDocument, load
from noetl_stream.playbook_tests.run import TestOutcome, TestRunner
from noetl_stream.telemetry.terminal import shown

LEFT_OUT: Final = frozenset({"node_modules", "__pycache__", "build", "dist", "site-packages"})
"""Folders that are not searched for test documents, like hidden ones."""

MOST_FOLDERS: Final = 10_000


class RanDocument(msgspec.Struct, frozen=True):
    """A test document and the outcomes of its tests; none if it has diagnostics."""

    document: LoadedDocument
    outcomes: tuple[TestOutcome, ...]

    @property
    def passed(self) -> bool:
        return not self.document.diagnostics and all(one.passed for one in self.outcomes)


def find_documents(given: Sequence[Path]) -> list[Path]:
    """The test documents that files and folders name: themselves, those beside playbooks, and those in folders.

    Raises:
        UsageError: there is no test document.
    """
    found: dict[Path, None] = {}
    for one in given:
        if one.is_dir():
            found |= dict.fromkeys(_files_in(one))
        elif one.name.endswith(ENDING):
            found[one] = None
        else:
            beside = one.with_name(f"{one.name.removesuffix('.yaml').removesuffix('.yml')}{ENDING}")
            if not beside.exists():
                hint = f"write its tests into {beside.name}; `noetl-stream playbook schema --form test` describes them"
                raise UsageError(f"{one}: no tests beside it", hint=hint)
            found[beside] = None
    if not found:
        folders = ", ".join(map(str, given))
        raise UsageError(f"no *{ENDING} in {folders}", hint=f"write tests beside a playbook: NAME{ENDING}")
    return list(found)


def _files_in(folder: Path) -> Iterator[Path]:
    for number, (path, folders, files) in enumerate(os.walk(folder), start=1):
        if number > MOST_FOLDERS:
            raise UsageError(f"{folder} has more than {MOST_FOLDERS:,} folders", hint="name files or smaller folders")
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in LEFT_OUT)
        found = (Path(path) / name for name in sorted(files) if name.endswith(ENDING))
        yield from (file for file in found if is_test_document(file))


def run_document(file: Path, runner: TestRunner, coverage: Coverage | None = None, only: str = "") -> RanDocument:
    """Runs the tests of a file whose names contain ``only``.

    Raises:
        UsageError: it cannot be read.
    """
    document = load(file, runner.compiled.kinds, runner.compiled.limits)
    outcomes = []
    for test in document.tests:
        if coverage is not None:
            for tested in (test.playbook, *test.catalog):
                if tested.checked.plan is not None:
                    coverage.add_playbook(tested.file, tested.checked.plan)
        if only.lower() in test.test.name.lower():
            outcomes.append(runner.run(test))
            if coverage is not None:
                coverage.add(outcomes[-1].journals)
    return RanDocument(document, tuple(outcomes))


def text_lines(ran: RanDocument) -> Iterator[str]:
    """The outcomes of a document as text. The same tests with the same seed give the same lines."""
    yield ran.document.file
    for diagnostic in ran.document.diagnostics:
        yield from indent_lines(diagnostic.render(), "  ")
    for outcome in ran.outcomes:
        yield f"  {'ok  ' if outcome.passed else 'FAIL'} {outcome.name}"
        yield from (
            line for text in problem_texts(ran.document.file, outcome) for line in indent_lines(text, "       ")
        )
        yield from (f"       note: {note}" for note in outcome.notes)


def problem_texts(file: str, outcome: TestOutcome) -> Iterator[str]:
    """The problems that a test found, the steps that led there, and the reasons."""
    if outcome.passed:
        return
    for problem in outcome.problems:
        yield f"{file}:{problem.line}:{problem.column}: {problem.message}"
    if outcome.steps:
        yield "steps:\n" + "\n".join(f"  {line}" for line in outcome.steps)
    if outcome.why:
        yield "why:\n" + "\n".join(f"  {line}" for line in outcome.why)


def indent_lines(text: str, indent: str) -> Iterator[str]:
    yield from (f"{indent}{line}" for line in text.splitlines())


def suite_json(ran: Iterable[RanDocument]) -> list[dict[str, Any]]:
    """The outcomes of documents as JSON, for programs."""
    return [
        {
            "file": one.document.file,
            "ok": one.passed,
            "diagnostics": [diagnostic.to_json() for diagnostic in one.document.diagnostics],
            "tests": [
                {
                    "name": outcome.name,
                    "line": outcome.line,
                    "ok": outcome.passed,
                    "problems": [msgspec.structs.asdict(problem) for problem in outcome.problems],
                    "steps": list(outcome.steps),
                    "why": list(outcome.why),
                    "notes": list(outcome.notes),
                }
                for outcome in one.outcomes
            ],
        }
        for one in ran
    ]


def junit(ran: Sequence[RanDocument]) -> bytes:
    """The outcomes as JUnit XML: a suite for each document, a case for each test, times in real seconds."""
    root = Xml.Element("testsuites", name="noetl-stream playbook test")
    for one in ran:
        failed = sum(not outcome.passed for outcome in one.outcomes)
        errors = 1 if one.document.diagnostics else 0
        suite = Xml.SubElement(
            root,
            "testsuite",
            name=_xml_text(one.document.file),
            tests=str(len(one.outcomes) + errors),
            failures=str(failed),
            errors=str(errors),
            time=f"{sum(outcome.took_s for outcome in one.outcomes):.3f}",
        )
        if errors:
            case = Xml.SubElement(
                suite, "testcase", name="the document is valid", classname=_xml_text(one.document.file)
            )
            text = "\n".join(diagnostic.render() for diagnostic in one.document.diagnostics)
            Xml.SubElement(case, "error", message=_xml_text(one.document.diagnostics[0].message)).text = _xml_text(text)
        for outcome in one.outcomes:
            case = Xml.SubElement(
                suite,
                "testcase",
                name=_xml_text(outcome.name),
                classname=_xml_text(one.document.file),
                file=_xml_text(one.document.file),
                line=str(outcome.line),
                time=f"{outcome.took_s:.3f}",
            )
            if not outcome.passed:
                message = outcome.problems[0].message.splitlines()[0]
                text = "\n".join(problem_texts(one.document.file, outcome))
                Xml.SubElement(case, "failure", message=_xml_text(message)).text = _xml_text(text)
    Xml.indent(root)
    found: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return found


def _xml_text(text: str) -> str:
    """Replaces the characters of a text that XML cannot hold."""
    return shown(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
