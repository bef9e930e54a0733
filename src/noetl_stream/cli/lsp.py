"""``noetl-stream lsp``: the language server for editors."""

from __future__ import annotations

import os
import sys

import click

from noetl_stream.cli.playbook.kinds import accepted, kinds_option
from noetl_stream.errors import UsageError


@click.command()
@kinds_option
@click.option("--stdio", is_flag=True, hidden=True, expose_value=False)  # some editors add it to every command
def lsp(extra: str) -> None:
    """Serve an editor: the language server of playbooks, on standard input and output.

    An editor starts it. It reports the problems of `playbook check` as you write, completes keys and names, shows what
    they mean and where they are, and renames them. It runs nothing and needs no servers.
    """
    try:
        from noetl_stream.language_server.features import serve
    except ModuleNotFoundError as error:
        raise UsageError(f"the language server needs {error.name}", hint="install noetl-stream[lsp]") from None
    taken = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a plugin prints is not part of the protocol
    serve(*accepted(extra), sys.stdin.buffer, taken)
