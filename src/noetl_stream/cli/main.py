"""``noetl-stream``: the entry point. Commands load when they are called, so that each starts fast."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any, Final, NamedTuple

import click

from noetl_stream.cli.base.exit_codes import ExitCode, code_for
from noetl_stream.errors import NoetlError


class Listed(NamedTuple):
    """A command as the list of all shows it: its module below ``noetl_stream.cli``, and its line.

    The line stands here so that the list imports no command.
    """

    module: str
    line: str


COMMANDS: Final = {
    "init": Listed("examples.init", "Make a project from an example playbook."),
    "example": Listed("examples.example", "List the example playbooks, or show one."),
    "run": Listed("run", "Run a playbook, a file or a registered one, to its end."),
    "execution": Listed("execution.group", "Start executions, watch them, ask why, intervene, run again."),
    "playbook": Listed("playbook.group", "Check, register, find and compare playbooks."),
    "credential": Listed("access.credential", "Keep credentials for playbooks; no value ever comes out."),
    "dev": Listed("processes.dev", "Keep a whole stack up until Ctrl-C."),
    "server": Listed("processes.server", "Run a server: what follows from what happened."),
    "worker": Listed("processes.worker", "Run a worker: the steps themselves; or list those that run."),
    "gateway": Listed("processes.gateway", "Run a gateway: everything over HTTP."),
    "pool": Listed("cluster.pool", "List worker pools, with what waits and runs in each."),
    "partition": Listed("cluster.partition", "List partitions: who folds each, and how far behind."),
    "dead-letter": Listed("cluster.dead_letter", "Look at what could not be delivered: requeue or discard it."),
    "token": Listed("access.token", "Make, list and revoke API tokens of the gateway."),
    "audit": Listed("access.audit", "Look at who did what through a gateway."),
    "context": Listed("access.context", "Give gateways names, and say which one commands ask."),
    "database": Listed("cluster.database", "Prepare the Postgres."),
    "stream": Listed("cluster.stream", "Prepare the JetStream streams."),
    "bench": Listed("processes.bench", "Measure the real stack on this machine."),
    "completion": Listed("completion", "Make a shell complete commands: bash, zsh, fish."),
    "version": Listed("version", "Print the version, and those of the parts."),
}
HIDDEN_COMMANDS: Final = {"background": Listed("processes.background", "")}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        listed = COMMANDS.get(cmd_name) or HIDDEN_COMMANDS.get(cmd_name)
        if listed is None:
            return None
        module = importlib.import_module(f"noetl_stream.cli.{listed.module}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.line) for name, listed in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def noetl_stream() -> None:
    """Run NoETL playbooks durably on NATS JetStream and Postgres.

    \b
    The shortest way:
      noetl-stream init
      noetl-stream run playbooks/hello.yaml
    It uses the NATS and Postgres named by NOETL_NATS_URL and NOETL_POSTGRES_DSN, or its own
    embedded ones under NOETL_HOME, which it starts when they are not running. With --url,
    NOETL_URL or a context it asks a gateway, and touches neither.

    \b
    Exit codes of all commands:
      0 completed    1 failed or cancelled         2 invalid playbook or usage
      3 NATS, Postgres, gateway unreachable       124 timeout    130 interrupted
    """


def _open_standard_streams() -> None:
    """Whoever closed one of the three must not get a socket or a file in its place: the libraries do not bear it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123  open as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits. A person's mistake never shows a traceback."""
    _open_standard_streams()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was begun is put away
    try:
        code: Any = noetl_stream.main(arguments, prog_name="noetl-stream", standalone_mode=False)
        sys.stdout.flush()
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
        code = ExitCode.FAILED
    sys.exit(int(code) if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
