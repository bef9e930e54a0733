"""``noetl-stream completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "noetl-stream"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands, options and values.

    \b
    bash: eval "$(noetl-stream completion bash)"          in ~/.bashrc
    zsh:  eval "$(noetl-stream completion zsh)"           in ~/.zshrc
    fish: noetl-stream completion fish | source           in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None  # click has these three
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    click.echo(found(ctx.find_root().command, {}, PROGRAM, variable).source())
