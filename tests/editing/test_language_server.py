"""``noetl-stream lsp`` as an editor meets it: a process, over stdio."""

from __future__ import annotations

import asyncio
import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
from editor import Editor, editing
from lsprotocol import types
from marked_text import KINDS
from pygls.exceptions import JsonRpcException

import cli_program
from cli_program import NOETL, PATIENCE_S, environment
from effort import first_in_gate
from noetl_stream.playbook.compile.compiler import check_document
from warm_program import noetl

ROOT = Path(__file__).resolve().parents[2]
BROKEN = ROOT / "tests" / "playbook" / "broken"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"

PLAYBOOK = (
    HEAD
    + """\
metadata: { name: n, path: team/n }
workload: { city: Rome }
workflow:
  - step: load
    tool:
      - { name: fetch, kind: noop, args: { a: "😀 {{ workload.city }}" } }
      - { name: call, kind: playbook, path: team/called, args: { a: "😀😀 {{ fetch }}" } }
    next: { arcs: [{ step: end }] }
  - step: end
    tool: { kind: noop, args: { a: "{{ load.results.fetch }}" } }
"""
)


def said(found: types.Diagnostic) -> tuple[object, ...]:
    """What ``playbook check -o json`` says of the same problem."""
    data = found.data
    return (found.code, data["severity"], data["message"], data["hint"], data["line"], data["column"], data["pointer"])


async def test_the_problems_are_those_of_playbook_check(tmp_path: Path) -> None:
    files = ["guards", "indentation_of_a_task_lost", "loop_parts_of_wrong_types", "admission_problems"]
    texts = [(BROKEN / f"{name}.yaml").read_text() for name in files if (BROKEN / f"{name}.yaml").exists()]
    texts += [
        "kind: Playbook\nworkflow: [",
        HEAD + "a: 1\na: 2\n",
        HEAD + "\tx: 1\n",
        HEAD.replace("noetl.io/v2", "noetl.io/v9"),
    ]
    async with editing(tmp_path) as editor:
        for number, text in enumerate(texts):
            file = tmp_path / f"{number}.yaml"
            file.write_text(text)
            shown = await editor.problems(editor.open(text, file.name))
            checked = json.loads(noetl("playbook", "check", "-o", "json", file).stdout)[0]["diagnostics"]
            keys = ("code", "severity", "message", "hint", "line", "column", "pointer")
            assert [said(one) for one in shown] == [tuple(one[key] for key in keys) for one in checked] != []
            for one in shown:
                assert one.message == (
                    f"{one.data['message']}\nhint: {one.data['hint']}" if one.data["hint"] else one.data["message"]
                )


async def test_only_the_last_text_counts_while_somebody_types(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        uri = editor.open(PLAYBOOK)
        assert await editor.problems(uri) == []
        for length in range(len(PLAYBOOK) - 60, len(PLAYBOOK)):
            editor.write(uri, PLAYBOOK[:length])
        editor.write(uri, PLAYBOOK.replace("{ step: end }", "{ step: 😀 }"))
        [unknown, *_] = await editor.problems(uri)
        assert unknown.code == "unknown_step" and editor.shown(uri, unknown.range) == "😀"
        editor.close(uri)
        assert await editor.problems(uri) == []
        assert editor.said == []


OTHERS = {
    "a compose file": "services:\n  web: { image: x }\n",
    "a test of a playbook": "apiVersion: noetl.io/v2\nkind: PlaybookTest\ngiven: { image: x }\n",
}


@pytest.mark.parametrize("what", first_in_gate(OTHERS))
async def test_another_yaml_file_is_left_alone(tmp_path: Path, what: str) -> None:
    async with editing(tmp_path) as editor:
        uri = editor.open(OTHERS[what], "other.yaml")
        assert await editor.problems(uri) == []
        found = await editor.client.text_document_completion_async(types.CompletionParams(**editor.at(uri, "image")))
        assert [*found.items] == []
        assert await editor.client.text_document_hover_async(types.HoverParams(**editor.at(uri, "image"))) is None


async def test_names_are_completed_explained_and_found(tmp_path: Path) -> None:
    (tmp_path / "called.yaml").write_text(HEAD + "metadata:\n  name: c\n  path: team/called\n")
    async with editing(tmp_path) as editor:
        uri = editor.open(PLAYBOOK)
        ask = editor.client
        behind = types.CompletionParams(**editor.at(uri, "workload.city", len("workload.ci")))
        [item] = (await ask.text_document_completion_async(behind)).items
        assert item.label == "city" and editor.shown(uri, item.text_edit.range) == "ci"
        paths = types.CompletionParams(**editor.at(uri, "team/called", len("team/")))
        assert [one.label for one in (await ask.text_document_completion_async(paths)).items] == ["team/called"]
        about = await ask.text_document_hover_async(types.HoverParams(**editor.at(uri, "fetch }}")))
        assert "Kind: `noop`" in about.contents.value and editor.shown(uri, about.range) == "fetch"
        [place] = await ask.text_document_definition_async(types.DefinitionParams(**editor.at(uri, "fetch }}")))
        assert editor.shown(uri, place.range) == "fetch" and place.range.start.line == 7
        [called] = await ask.text_document_definition_async(types.DefinitionParams(**editor.at(uri, "team/called")))
        assert called.uri == (tmp_path / "called.yaml").as_uri() and called.range.start == types.Position(4, 8)
        context = types.ReferenceContext(include_declaration=False)
        where = types.ReferenceParams(context=context, **editor.at(uri, "fetch"))
        found = await ask.text_document_references_async(where)
        assert [editor.shown(uri, one.range) for one in found] == ["fetch"] * 2
        marked = await ask.text_document_document_highlight_async(
            types.DocumentHighlightParams(**editor.at(uri, "load\n"))
        )
        assert {editor.shown(uri, one.range) for one in marked} == {"load"}


@pytest.mark.verify
async def test_a_task_is_renamed_behind_letters_of_two_units(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        uri = editor.open(PLAYBOOK)
        place = editor.at(uri, "fetch }}")
        may = await editor.client.text_document_prepare_rename_async(types.PrepareRenameParams(**place))
        assert editor.shown(uri, may) == "fetch"
        edit = await editor.client.text_document_rename_async(types.RenameParams(new_name="get", **place))
        assert editor.edited(uri, edit) == PLAYBOOK.replace("fetch", "get")
        with pytest.raises(JsonRpcException, match="would mean something else"):
            await editor.client.text_document_rename_async(types.RenameParams(new_name="call", **place))


@pytest.mark.parametrize("encoding", first_in_gate(types.PositionEncodingKind))
async def test_places_are_counted_as_the_editor_wants(tmp_path: Path, encoding: types.PositionEncodingKind) -> None:
    units = {"utf-8": 8, "utf-16": 4, "utf-32": 2}
    async with editing(tmp_path, partial(Editor.begin, encodings=[encoding])) as editor:
        uri = editor.open(PLAYBOOK)
        line = PLAYBOOK.splitlines()[8]
        place = types.Position(8, line.index("fetch") - 2 + units[encoding.value])
        document = types.TextDocumentIdentifier(uri)
        found = await editor.client.text_document_hover_async(types.HoverParams(document, place))
        assert found.range.start == place and "task of step `load`" in found.contents.value


@pytest.mark.verify
async def test_the_outline_and_folds_are_there_while_the_text_is_broken(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        uri = editor.open(PLAYBOOK.replace("{ step: end }", "{ step: "))
        document = types.TextDocumentIdentifier(uri)
        found = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
        workflow = found[-1]
        assert [one.name for one in workflow.children] == ["load", "end"]
        assert [one.name for one in workflow.children[0].children] == ["fetch", "call"]
        folded = await editor.client.text_document_folding_range_async(types.FoldingRangeParams(document))
        assert (5, 9) in [(one.start_line, one.end_line) for one in folded]


async def test_a_quick_fix_and_a_rewriting_mend_what_they_are_for(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        for text in (
            PLAYBOOK.replace("{ step: end }", "{ step: edn }"),
            PLAYBOOK.replace("{ arcs: [{ step: end }] }", "end"),
        ):
            uri = editor.open(text)
            problems = await editor.problems(uri)
            params = types.CodeActionParams(
                types.TextDocumentIdentifier(uri), problems[0].range, types.CodeActionContext(problems)
            )
            action = (await editor.client.text_document_code_action_async(params))[-1]
            if action.edit is None:
                action = await editor.client.code_action_resolve_async(action)
            after = editor.edited(uri, action.edit)
            assert check_document(after, KINDS).diagnostics == ()


async def test_a_hostile_editor_gets_answers_that_say_why_not_and_the_server_goes_on(tmp_path: Path) -> None:
    async with editing(tmp_path) as editor:
        uri = editor.open(PLAYBOOK)
        nowhere = types.TextDocumentIdentifier("file:///nowhere/x.yaml")
        with pytest.raises(JsonRpcException, match="not open"):
            await editor.client.text_document_hover_async(types.HoverParams(nowhere, types.Position(0, 0)))
        for line, character in ((10**9, 0), (0, 10**9), (2**31 - 1, 2**31 - 1)):
            far = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
            await editor.client.text_document_hover_async(far)
        with pytest.raises(JsonRpcException):
            await editor.wait(asyncio.wrap_future(editor.client.protocol.send_request("team/nothing", {})))
        for text in ("[" * 100_000, "a: &a [*a]\n", "x" * 600_000, "&a [" * 3_000, "\0\ufeff\u2028: \ud7ff"):
            editor.write(uri, HEAD + text)
            assert [one.code for one in await editor.problems(uri)] != []
            document = types.TextDocumentIdentifier(uri)
            await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
        editor.write(uri, PLAYBOOK)
        assert await editor.problems(uri) == []


def test_the_server_ends_with_its_editor() -> None:
    process = subprocess.Popen(
        [*NOETL, "lsp", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )
    out, _ = process.communicate(b'Content-Length: 5\r\n\r\n{"a":', timeout=PATIENCE_S)
    assert process.returncode == 0 and b"Content-Length" in out


def test_without_its_library_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ModuleNotFoundError('no', name='pygls')")
    found = cli_program.noetl("lsp", PYTHONPATH=str(tmp_path))
    assert found.returncode == 2
    assert found.stderr == "noetl-stream: the language server needs pygls\n  install noetl-stream[lsp]\n"
