"""``noetl-stream``: the entry point. Commands load when they are called, so that each starts fast."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import click

from noetl_stream.cli.exit_codes import ExitCode, code_for
from noetl_stream.errors import NoetlError

COMMANDS: Final = {
    "run": "noetl_stream.cli.run:run",
    "dev": "noetl_stream.cli.dev:dev",
    "server": "noetl_stream.cli.server:server",
    "worker": "noetl_stream.cli.worker:worker",
    "playbook": "noetl_stream.cli.playbook:playbook",
    "execution": "noetl_stream.cli.execution:execution",
    "database": "noetl_stream.cli.database:database",
    "stream": "noetl_stream.cli.stream:stream",
    "bench": "noetl_stream.cli.bench:bench",
    "version": "noetl_stream.cli.version:version",
    "background": "noetl_stream.cli.background:background",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name != "background"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def noetl_stream() -> None:
    """Run NoETL playbooks durably on NATS JetStream and Postgres.

    \b
    The shortest way:
      noetl-stream run playbook.yaml
    It uses the NATS and Postgres named by NOETL_NATS_URL and NOETL_POSTGRES_DSN, or its own
    embedded ones under NOETL_HOME, which it starts when they are not running.

    \b
    Exit codes of all commands:
      0 completed    1 failed or cancelled         2 invalid playbook or usage
      3 NATS or Postgres cannot be reached         124 timeout    130 interrupted
    """


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits. A person's mistake never shows a traceback."""
    try:
        code: Any = noetl_stream.main(arguments, prog_name="noetl-stream", standalone_mode=False)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except click.ClickException as error:
        error.show()
        code = ExitCode.INVALID
    except NoetlError as error:
        click.echo(f"noetl-stream: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        code = code_for(error)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = ExitCode.FAILED
    sys.exit(int(code) if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
