"""The operations that commands call, directly or over HTTP, and their actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec
from msgspec.structs import asdict

from noetl_stream.cli.base.activity import activity
from noetl_stream.cli.base.process import principal, run_async, settings_for
from noetl_stream.cli.base.target import GatewayAddress, Target, gateway_of
from noetl_stream.errors import Forbidden, Unauthenticated
from noetl_stream.model.rights import Role
from noetl_stream.ports.operations.verbs import DocumentPage

if TYPE_CHECKING:  # a gateway needs no store: do not wait for its libraries
    from noetl_stream.local.background import Background
    from noetl_stream.operations.executions.prepare import CheckedText
    from noetl_stream.ports.operations import Operations
    from noetl_stream.ports.stores.idempotency import Idempotency
    from noetl_stream.settings.sources.environment import Settings

Item = TypeVar("Item")
Value = TypeVar("Value")

PAGE: Final = 1000


class CallerRights(msgspec.Struct, frozen=True):
    """The rights of a caller. ``paths`` are the paths at or below which they hold; empty for all."""

    role: Role
    paths: tuple[str, ...] = ()


class Session(msgspec.Struct, frozen=True):
    """Attributes:
    by: The actor. Empty for a gateway, which knows it by the token.
    ensure_server: Starts a server in the background if none answers; does nothing for a gateway.
    place: The option with which other commands have the same target; empty if they need none.
    keeps_ids: Whether an execution gets the id that was generated here; a gateway generates its own.
    caller: The rights of the caller: on the stores all.
    idempotency: The store of idempotency keys; ``None`` for a gateway, which keeps them itself.
    """

    operations: Operations
    by: str
    ensure_server: Callable[[], Awaitable[None]]
    place: str
    keeps_ids: bool
    caller: Callable[[], Awaitable[CallerRights]]
    idempotency: Idempotency | None = None


Work = Callable[[Session], Awaitable[Value]]


def with_session(
    target: Target,
    work: Work[Value],
    *,
    publishes: bool = False,
    background: Background | None = None,
    checked: Sequence[CheckedText] = (),
) -> Value:
    """Does ``work`` on the target selected by the options, the environment or the contexts file.

    Args:
        publishes: Whether it sends requests to executions, or follows them, which needs the streams.
        background: Starts the server of a stack if none answers; if it was prepared, together with the stack.
        checked: Playbooks that were already checked here.
    """
    settings = settings_for(target.home)
    gateway = gateway_of(target, settings)
    if gateway is not None:
        activity.show(f"asking {gateway.name}")
        activity.tick()
        place = "".join(f" --{name} {value}" for name, value in asdict(target).items() if value is not None)
        return run_async(_over_http(gateway, place, work))
    return _directly(settings, work, publishes=publishes, background=background, checked=checked)


def _directly(
    settings: Settings,
    work: Work[Value],
    *,
    publishes: bool,
    background: Background | None,
    checked: Sequence[CheckedText],
) -> Value:
    from noetl_stream.local.background import Background
    from noetl_stream.operations.recording import RecordedOperations
    from noetl_stream.wiring.operations import DirectOperations, make_client, record_in
    from noetl_stream.wiring.stack import open_stack, ports_of_command

    async def connected_work() -> Value:
        async with ports_of_command(stack, "noetl-cli", publishes=publishes) as ports:

            async def ensure_server() -> None:
                if ports.is_connected and not await make_client(ports).alive():
                    server.start()

            direct = DirectOperations(ports, stack.endpoint, unanswered=ensure_server, checked=checked)
            operations = cast("Operations", RecordedOperations(direct, record_in(ports)))
            place = f" --home {stack.home}" if stack.home is not None else ""
            keys = ports.store.idempotency
            session = Session(
                operations, principal(), ensure_server, place, keeps_ids=True, caller=_own_rights, idempotency=keys
            )
            return await work(session)

    server = background or Background(settings)
    server.start_prepared()
    activity.show(_arrival(settings))
    activity.tick()
    with open_stack(settings) as stack:
        return run_async(connected_work())


def _arrival(settings: Settings) -> str:
    """The activity until the stack answers, for :mod:`noetl_stream.cli.base.activity`."""
    from noetl_stream.local.stack import is_running

    if settings.nats_url is None and not is_running(settings.home):
        return f"starting NATS and Postgres in {settings.home}"
    return "connecting to NATS and Postgres"


async def _own_rights() -> CallerRights:
    return CallerRights("admin")


async def _over_http(gateway: GatewayAddress, place: str, work: Work[Value]) -> Value:
    from noetl_stream.adapters.clock import SystemClock
    from noetl_stream.adapters.gateway_client.connection import GatewayConnection
    from noetl_stream.adapters.gateway_client.verbs import gateway_operations

    async def ensure_server() -> None:
        """Does nothing: the gateway has servers of its own."""

    async def caller() -> CallerRights:
        return await connection.get(CallerRights, "me")

    connection = GatewayConnection(gateway.url, gateway.token, SystemClock())
    try:
        session = Session(gateway_operations(connection), "", ensure_server, place, keeps_ids=False, caller=caller)
        return await work(session)
    except Unauthenticated as error:
        hint = "set NOETL_TOKEN, add a context with --token-file, or name the home of that gateway with --home"
        raise Unauthenticated(f"{gateway.name}: {error.message}", hint=hint) from None
    except Forbidden as error:
        raise Forbidden(f"{gateway.name}: {error.message}", hint=error.hint) from None
    finally:
        await connection.close()


async def collect(
    read: Callable[[int, str | None], Awaitable[DocumentPage[Item]]], limit: int | None = None
) -> list[Item]:
    """The first ``limit`` items of a list, or all, from as many pages as needed.

    Args:
        read: Reads a page, given its size and cursor.
    """
    found: list[Item] = []
    cursor: str | None = None
    while limit is None or len(found) < limit:
        page = await read(PAGE if limit is None else min(PAGE, limit - len(found)), cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    return found
