"""A name is renamed wherever it is read, and never when that would change what the playbook means."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_text import KINDS, at_mark, names_of

from effort import in_gate
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.editing.changes import RENAMED, CannotRename, apply_changes, rename
from noetl_stream.playbook.editing.names import Symbol

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "playbooks").glob("*.yaml"), *(ROOT / "tests/playbook/accepted").glob("*.yaml")])

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: n, path: team/n }
workload: { city: Rome }
workflow:
  - step: lo‸1ad
    tool:
      - name: fe‸2tch
        kind: noop
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' }}"
                then: { do: jump, to: fetch }
              - else: { then: { do: continue, set_ctx: { to‸3tal: "{{ ctx.total | default(0) }}" } } }
      - { name: code, kind: python, args: { t: "😀 {{ fetch }} {{ total }}" }, code: 'result = ctx["total"]' }
    next: { arcs: [{ step: end, when: "{{ ctx['total'] == 1 }}" }, { step: load }] }
  - step: end
    tool: { kind: noop, args: { a: "{{ load.results.fetch }}{{ steps.load }}", b: "{{ workload.ci‸4ty }}" } }
"""


def renamed(mark: str, to: str) -> str:
    text, offset = at_mark(PLAYBOOK, mark)
    return apply_changes(text, rename(text, names_of(text), offset, to))


def test_a_step_is_renamed_in_arcs_and_templates() -> None:
    text = renamed("1", "gather")
    assert "load" not in text.replace("workload", "")
    assert "{{ gather.results.fetch }}{{ steps.gather }}" in text and "{ step: gather }" in text


def test_a_task_is_renamed_in_jumps_and_templates_of_all_steps() -> None:
    text = renamed("2", "get")
    assert "fetch" not in text and "to: get }" in text and "gather" not in text and "load.results.get" in text


def test_a_key_of_ctx_is_renamed_in_writes_templates_and_code() -> None:
    text = renamed("3", "sum")
    assert "total" not in text and "ctx['sum']" in text and 'ctx["sum"]' in text and "😀 {{ fetch }} {{ sum }}" in text


@pytest.mark.parametrize("mark", ["1", "2", "3"])
def test_a_rename_does_not_change_the_diagnostics(mark: str) -> None:
    before, after = at_mark(PLAYBOOK, mark)[0], renamed(mark, "another")
    found = [
        [(one.code, one.line) for one in check_document(text, KINDS, proves=True).diagnostics]
        for text in (before, after)
    ]
    assert found[0] == found[1]


TAKEN = [("1", "end"), ("2", "code"), ("3", "fetch"), ("2", "total"), ("1", "city"), ("2", "workload")]
NO_NAMES = [("1", "no name"), ("1", "a__b"), ("3", "1x"), ("1", "")]


@pytest.mark.parametrize(("mark", "to"), [*TAKEN, *NO_NAMES])
def test_a_taken_or_invalid_name_is_refused(mark: str, to: str) -> None:
    with pytest.raises(CannotRename):
        renamed(mark, to)


def test_names_that_callers_use_are_not_renamed() -> None:
    with pytest.raises(CannotRename, match="outside"):
        renamed("4", "town")


@pytest.mark.parametrize("file", in_gate(FILES, one_of=4), ids=lambda file: file.stem)
def test_every_name_of_the_examples_can_be_renamed_and_back(file: Path) -> None:
    text = file.read_text()
    names = names_of(text)
    firsts = {one.symbol: one for one in reversed(names.occurrences) if one.symbol.kind in RENAMED}
    known = [(found.code, found.line) for found in check_document(text, KINDS).diagnostics]
    for symbol, one in firsts.items():
        if Symbol("entry", symbol.name) in {other.symbol for other in names.occurrences}:
            with pytest.raises(CannotRename):
                rename(text, names, one.start, "quite_another")
            continue
        after = apply_changes(text, rename(text, names, one.start, "quite_another"))
        assert [(found.code, found.line) for found in check_document(after, KINDS).diagnostics] == known, symbol
        back = names_of(after)
        assert apply_changes(after, rename(after, back, one.start, symbol.name)) == text
