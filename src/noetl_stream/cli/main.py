"""``noetl-stream``: the entry point. Modules of commands load when a command is called, so that each starts fast."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import Any, Final

import click

from noetl_stream.cli.base.exit_codes import ExitCode, code_for
from noetl_stream.cli.base.lazy import LazyGroup
from noetl_stream.errors import NoetlError, fault_text

COMMANDS: Final = {
    "init": ("examples", "Create a project from an example playbook."),
    "example": ("examples", "List and show example playbooks."),
    "run": ("execution.start", "Run a playbook and wait for its end."),
    "execution": ("execution.group", "Start, watch, explain, control and rerun executions."),
    "playbook": ("playbook.group", "Check, test, register, find and compare playbooks."),
    "deploy": ("project.deployment", "Register the documents of a project folder."),
    "pull": ("project.pull", "Write what is registered into a project folder."),
    "lsp": ("stdio", "Serve an editor: the language server of playbooks."),
    "schedule": ("schedule", "Start executions on time, by schedules."),
    "trigger": ("trigger", "Start executions on events."),
    "tool": ("tool", "List the installed tool kinds, and make new ones."),
    "credential": ("credential", "Store encrypted credentials for playbooks."),
    "setup": ("setup", "Set up a NATS and a Postgres of your own."),
    "dev": ("processes", "Run a whole stack in the foreground."),
    "server": ("processes", "Run a server."),
    "worker": ("processes", "Run a worker, or list the running workers."),
    "gateway": ("processes", "Run a gateway: all operations over HTTP."),
    "mcp": ("stdio", "Serve tools to an agent: to look, and if allowed to act."),
    "storage": ("cluster", "Show what streams and tables take on disk."),
    "doctor": ("cluster", "Find what is wrong with a running system."),
    "pool": ("cluster", "List worker pools with their queued and running commands."),
    "limit": ("cluster", "List limits by key with who holds them and who waits."),
    "partition": ("cluster", "List partitions with their servers and backlog."),
    "dead-letter": ("cluster", "List, show, requeue and discard undeliverable messages."),
    "token": ("access", "Create, list and revoke API tokens of the gateway."),
    "grant": ("access", "Say what playbooks may use, or show it."),
    "sign-in": ("access", "Print a link that signs a browser in."),
    "audit": ("access", "List changes and refused calls."),
    "context": ("context", "Name gateways, and choose which one commands use."),
    "database": ("cluster", "Prepare the Postgres database."),
    "stream": ("cluster", "Prepare the JetStream streams."),
    "backup": ("upkeep", "Back up, check and restore the database and its objects."),
    "objects": ("upkeep", "Move stored objects between NATS, buckets and folders."),
    "retention": ("upkeep", "Show and delete what nobody wants kept any longer."),
    "nats": ("setup", "Prepare the accounts of your own NATS."),
    "bench": ("processes", "Measure performance on this machine."),
    "docs": ("docs", "List the pages of the documentation, with their addresses."),
    "explain": ("docs", "Explain an error kind, a finding, a warning or an exit code."),
    "completion": ("docs", "Print a script for completion in bash, zsh or fish."),
    "version": ("docs", "Print the versions of noetl-stream and its dependencies."),
}
"""Each command by name: its module below ``noetl_stream.cli``, and its line in the list, which imports no command."""

HIDDEN_COMMANDS: Final = {"background": ("processes", "")}


class TopLevel(LazyGroup):
    """All commands, in the order of :data:`COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _print_version(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        from noetl_stream import __version__
        from noetl_stream.cli.base.output import say

        say(f"noetl-stream {__version__}")
        context.exit()


@click.group(
    cls=TopLevel,
    modules={name: module for name, (module, _) in {**COMMANDS, **HIDDEN_COMMANDS}.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("-V", "--version", is_flag=True, callback=_print_version, expose_value=False, help="Print the version.")
def noetl_stream() -> None:
    """Run NoETL playbooks durably on NATS JetStream and Postgres.

    \b
    To get started:
      noetl-stream init
      noetl-stream run playbooks/hello.yaml

    Commands use embedded NATS and Postgres under NOETL_HOME, which they start if needed, or your own after
    noetl-stream setup. With --url, NOETL_URL or a context they go through a gateway instead.

    \b
    Exit codes:
        0  completed
        1  failed or cancelled
        2  invalid playbook or usage
        3  NATS, Postgres or gateway unreachable
      124  timeout
      130  interrupted

    `noetl-stream docs` lists the pages of the documentation; `noetl-stream explain CODE` says what a code means.
    """


def _open_standard_streams() -> None:
    """Opens standard streams that the caller has closed, or a socket or file would take their place and get output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123  open until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8", errors=stream.errors)  # whatever the locale is


def _complain(text: str) -> None:
    from noetl_stream.cli.base.output import say  # the list of commands starts faster

    say(text, err=True)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits. Usage errors never show a traceback."""
    _open_standard_streams()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that commands clean up
    try:
        code: Any = noetl_stream.main(arguments, prog_name="noetl-stream", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        _complain(text.getvalue().removesuffix("\n"))
        code = ExitCode.INVALID
    except ModuleNotFoundError as error:
        from noetl_stream.cli.base.files import INSTALL, is_whole

        if is_whole():
            raise
        _complain(f"noetl-stream: this needs more than noetl-stream-cli has: {error.name}")
        _complain(f"  {INSTALL}")
        code = ExitCode.INVALID
    except NoetlError as error:
        _complain(f"noetl-stream: {error.message}")
        if error.hint:
            _complain(f"  {error.hint}")
        code = code_for(error)
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted")
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        code = ExitCode.FAILED
    except (RecursionError, MemoryError) as error:
        _complain(f"noetl-stream: what it reads cannot be walked: {fault_text(error)}")
        code = ExitCode.FAILED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _complain(f"noetl-stream: {error.strerror}")
        code = ExitCode.FAILED
    sys.exit(int(code) if isinstance(code, int) else 0)
