"""The forms of the output, for people and for programs."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from noetl_stream.cli.options import form_option, output_option
from noetl_stream.cli.output import print_table


def test_on_a_pipe_a_row_of_a_table_is_a_line_without_blanks_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "said"), [["first", "word " * 100 + "\nend"], ["日本", None]])
    assert capsys.readouterr().out == f"name   said\nfirst  {'word ' * 100} end\n日本\n"


@pytest.mark.parametrize("form", [form_option(), form_option("text"), output_option("text", "json")])
@pytest.mark.parametrize("word", ["table", "text"])
def test_table_and_text_are_two_words_for_what_people_read(form: object, word: str) -> None:
    @click.command()
    @form  # type: ignore[operator]
    def show(output: str) -> None:
        click.echo(output in ("table", "text"))

    assert CliRunner().invoke(show, ["-o", word]).output == "True\n"
    assert CliRunner().invoke(show, ["-o", "bogus"]).exit_code == 2
