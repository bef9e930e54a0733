"""``noetl-stream playbook schema``: the JSON Schema that editors and other programs check playbooks with."""

from __future__ import annotations

import json
from pathlib import Path

import click

from noetl_stream.errors import UsageError
from noetl_stream.model.limits import operator_limits
from noetl_stream.playbook.kinds.spec import unchecked_kind
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.settings.environment import limit_settings
from noetl_stream.tools.registry import kinds_of, load_tools


@click.command("schema")
@click.option("-o", "--output", "file", type=click.Path(path_type=Path), help="File to write. [default: stdout]")
@click.option("--kinds", "extra", default="", help="Comma-separated tool kinds to allow though not installed here.")
def schema(file: Path | None, extra: str) -> None:
    """Print the JSON Schema (draft 2020-12) of playbooks, with the tool kinds installed here.

    \b
    An editor with the YAML language server uses it when a playbook begins with
      # yaml-language-server: $schema=playbook.schema.json
    """
    foreign = {kind: unchecked_kind(kind) for kind in map(str.strip, extra.split(",")) if kind}
    made = playbook_schema({**foreign, **kinds_of(load_tools())}, operator_limits(limit_settings()))
    text = json.dumps(made, ensure_ascii=False, indent=2) + "\n"
    if file is None:
        click.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
