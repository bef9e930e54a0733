"""The forms of the output, for people and for programs."""

from __future__ import annotations

import os
import pty
import sys
from io import StringIO
from typing import Any

import click
import pytest
from click.testing import CliRunner

from noetl_stream.cli.base.activity import ERASE, FRAMES, activity
from noetl_stream.cli.base.options import form_option, output_option
from noetl_stream.cli.base.output import print_result, print_table, say
from noetl_stream.durations import duration_text

ID = "01a1fde8-fc8e-7625-a68b-12ae12502405"


def test_a_row_of_a_table_on_a_pipe_is_a_line_without_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "said"), [["first", "word " * 100 + "\nend"], ["日本", None]])
    assert capsys.readouterr().out == f"name   said\nfirst  {'word ' * 100} end\n日本\n"


def test_a_result_that_is_a_file_or_a_list_of_files_is_words_without_a_seal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = {"key": "1/2/3/0/parts-1", "size": 12, "checksum": "sha256:0", "seal": "opens-it", "name": "a.csv"}
    print_result(file)
    print_result([file, file])
    assert capsys.readouterr().out == '"a.csv (12 bytes)"\n[\n  "a.csv (12 bytes)",\n  "a.csv (12 bytes)"\n]\n'


def test_no_cell_of_a_result_is_blank(capsys: pytest.CaptureFixture[str]) -> None:
    print_result([{"state": "all", "mean": None}, {"state": ""}])
    print_result({"nothing": None, "text": ""})
    rows = ["state  mean", "all    null", '""     –', "key      value", "nothing  null", 'text     ""']
    assert capsys.readouterr().out.splitlines() == rows


def test_ids_stay_whole_and_long_cells_fold_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "dumb")
    print_table(("execution", "started", "said"), [[ID, "2026-01-01T00:00:00.000+00:00", "word " * 20]])
    shown = terminal.getvalue()
    assert ID in shown and "…" not in shown and shown.count("word") == 20 and len(shown.splitlines()) > 3


@pytest.mark.parametrize("form", [form_option(), form_option("text"), output_option("text", "json")])
@pytest.mark.parametrize("word", ["table", "text"])
def test_table_and_text_are_two_words_for_what_people_read(form: Any, word: str) -> None:
    @click.command()
    @form
    def show(output: str) -> None:
        say(output in ("table", "text"))

    assert CliRunner().invoke(show, ["-o", word]).output == "True\n"
    assert CliRunner().invoke(show, ["-o", "bogus"]).exit_code == 2


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((None, ""), (0, "0 s"), (0.004, "0 s"), (0.1, "0.1 s"), (1.239, "1.23 s"), (59.97, "59.9 s"), (60, "1 min")),
        *((1372.74, "22 min 52 s"), (3600, "1 h"), (7861, "2 h 11 min"), (86_400, "1 d"), (97_000.5, "1 d 2 h")),
    ],
)
def test_a_duration_is_shown_in_units_that_people_use(seconds: float | None, words: str) -> None:
    assert duration_text(seconds) == words


def test_a_progress_line_counts_seconds_and_makes_room_for_output() -> None:
    terminal, there = pty.openpty()
    with os.fdopen(there, "w", encoding="utf-8") as stderr, pytest.MonkeyPatch.context() as patched:
        patched.setenv("TERM", "xterm")
        patched.setattr(sys, "stderr", stderr)
        activity.show("starting NATS and Postgres")
        say("started", err=True)
        stderr.flush()
        written = ""
        while not written.endswith("\n"):  # a terminal may pass on in pieces what was written at once
            written += os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert written == f"{ERASE}{FRAMES[0]} starting NATS and Postgres …{ERASE}started\r\n"


def test_a_file_has_no_line_of_what_a_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    activity.show("starting NATS and Postgres")
    say("started", err=True)
    assert capsys.readouterr().err == "started\n"
