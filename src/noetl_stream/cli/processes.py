"""``noetl-stream dev|server|worker|gateway|bench``: the processes of a stack."""

from __future__ import annotations

import logging
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Final, Literal

import click
from msgspec.structs import replace

from noetl_stream.cli.base.files import INSTALL, is_whole
from noetl_stream.cli.base.options import home_option, output_option
from noetl_stream.cli.base.output import columns_of, print_json, print_table, say
from noetl_stream.cli.base.process import run_role, settings_for
from noetl_stream.cli.base.session import lists
from noetl_stream.errors import UsageError
from noetl_stream.local.background import DEBUGGER
from noetl_stream.ports.operations.cluster import WorkerDocument
from noetl_stream.settings.children import ISOLATIONS, Isolation
from noetl_stream.settings.monitoring import StatusAddress, read_status_address
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.sources.process_environment import drop_bucket_variables, drop_engine_variables
from noetl_stream.telemetry.structured_logs import configure

log = logging.getLogger(__name__)

SHOW: Final = "show"


def _end_with_parent(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        from noetl_stream.hosting.processes import end_with_parent
        from noetl_stream.hosting.role_processes import load

        load(str(context.command.name))  # while the parent waits for its stack
        end_with_parent()


end_with_parent_option = click.option(
    "--end-with-parent", is_flag=True, hidden=True, expose_value=False, callback=_end_with_parent
)


debugger_option = click.option(DEBUGGER, type=click.IntRange(3), default=None, hidden=True)


slots_option = click.option(
    "--slots",
    type=click.IntRange(1, 10_000),
    default=None,
    help="Step runs and iterations that a worker runs at once. [default: NOETL_SLOTS, else 64]",
)


isolation_option = click.option(
    "--isolation",
    type=click.Choice([*ISOLATIONS, SHOW]),
    is_flag=False,
    flag_value=SHOW,
    default=None,
    help="Which runs of python tasks share a process. Without a value, or with show: print what isolates tasks on this "
    "machine, and exit. [default: NOETL_ISOLATION, else shared]",
)


def _read_status_address(context: click.Context, option: click.Parameter, given: str | None) -> StatusAddress | None:
    return None if given is None else read_status_address("--status-address", {"--status-address": given})


status_option = click.option(
    "--status-address",
    callback=_read_status_address,
    metavar="HOST:PORT",
    help="Address for probes and Prometheus: /livez, /readyz, /metrics. [default: NOETL_STATUS_ADDRESS, else none]",
)


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Number of workers.")
@click.option("--servers", type=click.IntRange(0, 16), default=1, show_default=True, help="Number of servers.")
@slots_option
@click.option(
    "--gateway-port",
    type=click.IntRange(1, 65535),
    default=None,
    help="Port of the gateway. [default: 8080, or a free port if 8080 is taken]",
)
@click.option("--no-gateway", is_flag=True, help="Run no gateway.")
@end_with_parent_option
@home_option
def dev(
    workers: int, servers: int, slots: int | None, gateway_port: int | None, no_gateway: bool, home: Path | None
) -> None:
    """Run a whole stack in the foreground: NATS, Postgres, servers, workers and a local gateway.

    Processes that die are restarted. Other commands with the same home use this stack. Press Ctrl-C to stop it.
    """
    from noetl_stream.hosting.dev_stack import develop

    settings = _logged(home)
    work = develop(
        settings,
        servers=servers,
        workers=workers,
        slots=slots or settings.slots,
        gateway_port=None if no_gateway else gateway_port or 0,
        echo=say,
    )
    run_role(work)


@click.command()
@status_option
@end_with_parent_option
@home_option
def server(status_address: StatusAddress | None, home: Path | None) -> None:
    """Run a server: it folds events, evaluates admission and routing, and publishes commands.

    Any number of servers can run on one NATS and Postgres. They share the partitions; when a server dies, the others
    take over its partitions as soon as its lease expires: after 6 s, or 20 round trips to NATS or Postgres. SIGTERM or
    Ctrl-C stops a server gracefully.
    """
    from noetl_stream.hosting.role_processes import host_server
    from noetl_stream.wiring.stack import open_stack

    with open_stack(_logged(home, status_address=status_address)) as stack:
        run_role(host_server(stack))


@click.group(invoke_without_command=True)
@click.option("--pool", default=None, help="Pool to take commands from. [default: NOETL_POOL, else default]")
@slots_option
@isolation_option
@status_option
@debugger_option
@end_with_parent_option
@home_option
@click.pass_context
def worker(
    ctx: click.Context,
    pool: str | None,
    slots: int | None,
    isolation: Isolation | Literal["show"] | None,
    status_address: StatusAddress | None,
    debugger: int | None,
    home: Path | None,
) -> None:
    """Run a worker, or list the running workers.

    A worker pulls commands from a pool, runs their pipelines and reports the results. SIGTERM or Ctrl-C drains it: it
    takes no new commands, finishes the running ones, and returns those that do not finish in time to the queue. When a
    worker is killed, its commands go to another one as soon as their lease expires (30 s).
    """
    if ctx.invoked_subcommand is not None:
        if any((pool, slots, isolation, status_address, home)):
            hint = f"put it behind: noetl-stream worker {ctx.invoked_subcommand} …"
            raise UsageError("options before the subcommand are for running a worker", hint=hint)
        return
    from noetl_stream.hosting.role_processes import host_worker
    from noetl_stream.tools.children.measures import confinement_of, require_confinement
    from noetl_stream.wiring.stack import open_stack

    if isolation == SHOW:
        held = [
            (one.name, "yes" if one.holds else "no", one.note)
            for one in confinement_of(settings_for(home).children).measures
        ]
        print_table(("isolation", "holds", "note"), held)
        return
    settings = _logged(home, "worker", status_address)
    if isolation is not None:
        settings = replace(settings, isolation=isolation)
    require_confinement(settings.children)
    pool, slots = pool or settings.pool, slots or settings.slots
    with open_stack(settings, pool) as stack:
        run_role(host_worker(stack, pool, slots, debugger))


def _children(one: WorkerDocument) -> str:
    uses = one.children.items()
    return "; ".join(f"{kind} {use.busy}/{use.most}, {use.waiting} waiting" for kind, use in uses)


WORKER_COLUMNS: Final = columns_of(
    *("name", "pool", "slots", "busy", "since", "version", "draining", "confinement", "network", "unfit"),
    children=_children,
    kinds=lambda one: " ".join(one.kinds),
    labels=lambda one: " ".join(f"{name}={value}" for name, value in one.labels.items()),
)


@worker.command("list")
@lists("cluster.workers", WORKER_COLUMNS, "name")
def list_workers() -> None:
    """List the running workers and their load.

    CONFINEMENT says how far tasks are confined: full, landlock or none. On the machine of a worker,
    `noetl-stream worker --isolation` says what is missing. NETWORK says what their programs have of it: the host's, a
    proxy, or none.

    CHILDREN says how many child processes of a tool kind are busy, of how many, and how many tasks wait for one: a
    worker can have more slots than Python processes (NOETL_PYTHON_CHILDREN).

    UNFIT says why a worker could not begin a task, as without memory, descriptors or disk space: it takes no commands
    until a self-test passes. LABELS are those that the operator has given its pool, by which steps are placed.
    """


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 picks a free port.")
@click.option("--socket", "descriptor", type=click.IntRange(3), default=None, hidden=True)
@status_option
@end_with_parent_option
@home_option
def gateway(
    host: str, port: int, descriptor: int | None, status_address: StatusAddress | None, home: Path | None
) -> None:
    """Run a gateway: all operations over HTTP, described by /openapi.json.

    Callers need a token. With the servers of a home one is made, in its gateway.token, and commands with --url use it;
    with those of the environment create the first with `noetl-stream token create`. Any number of gateways can run.
    SIGTERM or Ctrl-C stops a gateway after it has answered the requests in progress.
    """
    from noetl_stream.hosting.role_processes import host_gateway
    from noetl_stream.wiring.stack import open_stack

    settings = _logged(home, status_address=status_address)
    accepting = None if descriptor is None else socket.socket(fileno=descriptor)
    with open_stack(settings) as stack:
        run_role(host_gateway(stack, settings, (host, port), accepting, say))


@click.command(hidden=True)
@debugger_option
@home_option
def background(debugger: int | None, home: Path | None) -> None:
    """Run a server and a worker until no command and no execution needs them."""
    from noetl_stream.cli.main import main
    from noetl_stream.hosting.background import background_lock, host_in_background
    from noetl_stream.hosting.processes import fork
    from noetl_stream.hosting.role_processes import load

    load("worker")
    # Before this process has more than a worker may have. One with a debugger has words of its own.
    worker = fork(main, "worker") if debugger is None else None
    settings = _logged(home)
    with background_lock(settings) as alone:
        if not alone:
            return
        run_role(host_in_background(settings, worker, debugger))


@click.command()
@click.option("--executions", type=click.IntRange(1), default=1000, show_default=True, help="Executions in a burst.")
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="No-op steps per execution.")
@click.option(
    "--latency-runs", type=click.IntRange(0), default=200, show_default=True, help="Single runs on an idle stack."
)
@click.option("--fan-out", type=click.IntRange(1), default=1000, show_default=True, help="Iterations of the loop.")
@click.option("--in-flight", type=click.IntRange(1), default=1000, show_default=True, help="Iterations at once.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Bursts and loops to measure.")
@click.option("--servers", type=click.IntRange(1), default=1, show_default=True, help="Number of servers.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of workers.")
@click.option("--slots", type=click.IntRange(1), default=256, show_default=True, help="Slots per worker.")
@output_option("text", "json")
@home_option
def bench(output: str, home: Path | None, **load: int) -> None:
    """Measure throughput, latency, fan-out, and the CPU and memory of each process on this machine.

    Starts its own servers and workers on the NATS and Postgres of the settings: give it its own --home. Nothing is
    simulated: every step is a command, a report and a commit.
    """
    from noetl_stream.hosting.bench import Bench, Figures, Load
    from noetl_stream.wiring.stack import connected_to, open_stack, prepare_embedded

    async def measure() -> Figures:
        await prepare_embedded(stack)
        async with connected_to(stack, "noetl-bench") as connected:
            return await Bench(stack, connected, Load(**load)).run()

    with open_stack(settings_for(home)) as stack:
        figures = run_role(measure())
    if output == "json":
        print_json(asdict(figures))
        return
    rows: list[tuple[str, object]] = list(figures.conditions.items())
    rows += [("steps/s", _spread(figures.steps_per_s)), ("executions/s", _spread(figures.executions_per_s))]
    rows += [(f"latency {name}, ms", value) for name, value in figures.latency_ms.items()]
    rows.append(("fan-out, s", _spread(figures.fan_out_s)))
    rows += [(f"CPU µs/step, {name}", value) for name, value in figures.cpu_us_per_step.items()]
    rows += [(f"memory MiB, {name}", value) for name, value in figures.memory_mib.items()]
    print_table(("measure", "value"), rows)


def _logged(home: Path | None, role: str = "", status_address: StatusAddress | None = None) -> Settings:
    """The settings of a process, whose logging they configure.

    Its environment keeps no secrets of the engine, and other processes can no longer look into it.

    Raises:
        UsageError: this program has none.
    """
    if not is_whole():
        raise UsageError("noetl-stream-cli has no servers and workers", hint=INSTALL)
    from noetl_stream.tools.children.linux import hide_process

    hide_process()
    settings = settings_for(home, worker=role == "worker")
    if status_address is not None:
        settings = replace(settings, status_address=status_address)
    configure(settings.log_level, settings.log_format)
    superfluous = drop_engine_variables()
    if role == "worker":
        drop_bucket_variables()
    if superfluous and role == "worker":
        log.warning("a worker must not have %s: not used, and removed from its environment", ", ".join(superfluous))
    return settings


def _spread(values: list[float]) -> str:
    """Median and range."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:g} ({ordered[0]:g} to {ordered[-1]:g})"
