"""What commands work with: the verbs, directly or over HTTP, and who they act for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from noetl_stream.cli.base.process import principal, run_async, settings_for
from noetl_stream.cli.base.target import GatewayAddress, Target, gateway_of
from noetl_stream.errors import Forbidden, Unauthenticated

if TYPE_CHECKING:  # what needs no store should not wait for its libraries
    from noetl_stream.client.executions.submit import Client
    from noetl_stream.playbook.plan import Plan
    from noetl_stream.ports.operations import Operations
    from noetl_stream.processes import Background
    from noetl_stream.settings.environment import Settings
    from noetl_stream.wiring import Connected

Value = TypeVar("Value")


class Session(NamedTuple):
    """Attributes:
    by: Who acts. A gateway knows it by the token, and is not told.
    there_is_a_server: Sees to it that one folds; behind a gateway that is not ours to do.
    place: The option by which other commands work at the same place; empty where none is needed.
    keeps_ids: Whether an execution has the id that was drawn for it here; a gateway draws its own.
    """

    operations: Operations
    by: str
    there_is_a_server: Callable[[], Awaitable[None]]
    place: str
    keeps_ids: bool


Work = Callable[[Session], Awaitable[Value]]


def with_session(target: Target, work: Work[Value], *, publishes: bool = False, plans: Sequence[Plan] = ()) -> Value:
    """Does ``work`` target the options, the environment or the contexts file say.

    Args:
        publishes: It asks something of an execution: the streams have to be there, too.
        plans: Of texts that were checked here already.

    Raises:
        NoetlError: one clear line.
    """
    settings = settings_for(target.home)
    gateway = gateway_of(target, settings)
    if gateway is not None:
        return run_async(_over_http(gateway, _option(target), work))
    return _directly(settings, work, publishes, plans)


def _directly(settings: Settings, work: Work[Value], publishes: bool, plans: Sequence[Plan]) -> Value:
    from noetl_stream.hosting import connected_to, open_stack, prepare_embedded
    from noetl_stream.processes import Background
    from noetl_stream.wiring import make_client, make_operations

    async def connected_work() -> Value:
        await prepare_embedded(stack)
        async with connected_to(stack, "noetl-cli") as connected:
            await connected.store.verify()
            if publishes:
                await connected.log.verify()
            client, background = make_client(connected), Background(settings, stack)

            async def there_is_a_server() -> None:
                await ensure_server(connected, client, background)

            operations = make_operations(
                connected, stack.endpoint, unanswered=there_is_a_server, plans=plans, audited=True
            )
            place = f" --home {stack.embedded.address.home}" if stack.embedded is not None else ""
            return await work(Session(operations, principal(), there_is_a_server, place, keeps_ids=True))

    with open_stack(settings) as stack:
        return run_async(connected_work())


async def _over_http(gateway: GatewayAddress, place: str, work: Work[Value]) -> Value:
    from noetl_stream.adapters.clock import SystemClock
    from noetl_stream.adapters.gateway.connection import GatewayConnection
    from noetl_stream.adapters.gateway.operations import gateway_operations

    connection = GatewayConnection(gateway.url, gateway.token, SystemClock())
    try:
        return await work(Session(gateway_operations(connection), "", _nothing_to_do, place, keeps_ids=False))
    except Unauthenticated as error:
        hint = "set NOETL_TOKEN, which comes first, or `noetl-stream context add NAME --url URL --token-file FILE`"
        raise Unauthenticated(f"{gateway.name}: {error.message}", hint=hint) from None
    except Forbidden as error:
        raise Forbidden(f"{gateway.name}: {error.message}", hint=error.hint) from None
    finally:
        await connection.close()


def _option(target: Target) -> str:
    given = (f" --{name} {value}" for name, value in target._asdict().items() if value is not None)
    return next(given, "")


async def ensure_server(connected: Connected, client: Client, background: Background) -> None:
    """Starts a server and a worker in the background where no server answers."""
    if connected.nats.is_connected and not await client.alive():
        background.start()


async def _nothing_to_do() -> None:
    """A gateway's servers are somebody else's."""
