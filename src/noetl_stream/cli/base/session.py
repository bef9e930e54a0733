"""The target of a command, NATS and Postgres directly or a gateway; the operations there that it calls, and their
actor; and commands that call one verb, such as ``cluster.pools``, and print its answer.

Options take precedence over the environment, and the environment over ``contexts.yaml``, which names gateways. Options
and arguments of a command of one verb are the arguments of the verb. All pages are read, or as many as ``--limit``
needs. A verb that records its caller is given one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import update_wrapper
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
import msgspec
from msgspec.structs import asdict

from noetl_stream.cli.base.activity import activity
from noetl_stream.cli.base.files import INSTALL, file_text, is_whole
from noetl_stream.cli.base.options import bundled, form_option, home_option, reason_option
from noetl_stream.cli.base.output import Cell, Columns, print_document, print_documents, print_members, say
from noetl_stream.cli.base.process import principal, run_async, settings_for
from noetl_stream.errors import Forbidden, Unauthenticated, UsageError, usable_file
from noetl_stream.model.rights import Role
from noetl_stream.model.secrets.urls import split_url
from noetl_stream.ports.operations import port_of
from noetl_stream.ports.operations.verbs import DocumentPage, verb_of
from noetl_stream.settings.sources.environment import GATEWAY_SCHEMES, Settings
from noetl_stream.settings.sources.process_environment import environment_variable

if TYPE_CHECKING:  # a gateway needs no store: do not wait for its libraries
    from noetl_stream.local.background import Background
    from noetl_stream.operations.executions.prepare import CheckedText
    from noetl_stream.ports.operations import Operations
    from noetl_stream.ports.stores.idempotency import Idempotency

DIRECT: Final = "direct"
"""The context without a gateway."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
KEYS: Final = ("url", "token", "token_file", "token_variable")


class Target(msgspec.Struct, frozen=True, gc=False):
    """The options ``--home``, ``--url`` and ``--context``. With a ``url``, ``home`` is the home with its token."""

    home: Path | None = None
    url: str | None = None
    context: str | None = None


target_options = bundled(
    "target",
    Target,
    [
        home_option,
        click.option("--url", metavar="URL", help="Gateway to use. [default: NOETL_URL]"),
        click.option("--context", metavar="NAME", help="Context to use. [default: NOETL_CONTEXT]"),
    ],
)


class GatewayAddress(msgspec.Struct, frozen=True, gc=False):
    """A gateway to call. ``name`` is its name in errors."""

    url: str
    token: str | None
    name: str


def gateway_of(target: Target, settings: Settings) -> GatewayAddress | None:
    """The gateway to call; ``None``: work on NATS and Postgres.

    Args:
        settings: The settings of ``target.home``, if it is given.

    Raises:
        UsageError: the options contradict each other, the context does not exist, or this program needs a gateway.
    """
    found = _chosen_gateway(target, settings)
    if found is None and not is_whole():
        hint = f"name one with --url or a context, or {INSTALL}"
        raise UsageError("noetl-stream-cli works through a gateway, and none is named", hint=hint)
    return found


def _chosen_gateway(target: Target, settings: Settings) -> GatewayAddress | None:
    if target.context is not None and (target.home is not None or target.url is not None):
        other = "--home" if target.home is not None else "--url"
        raise UsageError(f"{other} and --context cannot be combined", hint="use one of them")
    if target.home is not None and target.url is None:
        return None
    url = target.url if target.context is None else None
    if url is None and target.context is None:
        url = settings.url
    if url is not None:
        named = "--url" if target.url is not None else "NOETL_URL"
        check_url(url, named)
        return _with_token(url, settings.token, settings, f"{named} {url}")
    name = target.context or settings.context
    if name == DIRECT or (name is None and settings.selects_stack):
        return None
    contexts = read_contexts(settings.contexts_file)
    name = name or contexts.current or DIRECT
    if name == DIRECT:
        return None
    context = contexts.find(name)
    return _with_token(context.url, settings.token or context.read_token(), settings, f"context {name}")


def _with_token(url: str, token: str | None, settings: Settings, name: str) -> GatewayAddress:
    """The gateway, with the token of the embedded stack if it is one of its own and no other token is given."""
    if token is None and settings.home_folder is not None:
        from noetl_stream.local.gateway_address import gateway_at  # most commands start faster without it

        local = gateway_at(settings.home_folder, url)
        if local is not None:
            return GatewayAddress(local.url, local.token, name)
    return GatewayAddress(url, token, name)


class Context(msgspec.Struct, frozen=True, gc=False):
    """A gateway. Its token is stored here, in a file or in an environment variable."""

    url: str
    token: str | None = None
    token_file: str | None = None
    token_variable: str | None = None

    def read_token(self) -> str | None:
        """The token, wherever it is stored.

        Raises:
            UsageError: it cannot be read.
        """
        if self.token_file is not None:
            try:
                return file_text(Path(self.token_file).expanduser()).strip()
            except (OSError, RuntimeError) as error:
                raise UsageError(f"cannot read the token from {self.token_file}: {error}") from None
        if self.token_variable is not None:
            found = environment_variable(self.token_variable)
            if not found:
                raise UsageError(f"the context takes its token from {self.token_variable}, which is not set")
            return found
        return self.token

    @property
    def token_source(self) -> str:
        """Where the token is stored, for people; never the token."""
        if self.token is not None:
            return "in the file"
        return self.token_file or (f"${self.token_variable}" if self.token_variable else "none")


class Contexts(msgspec.Struct, frozen=True, gc=False):
    """The content of ``contexts.yaml``. ``current`` is used if neither options nor environment select one."""

    current: str | None
    named: dict[str, Context]

    def find(self, name: str) -> Context:
        """
        Raises:
            UsageError: it does not exist.
        """
        found = self.named.get(name)
        if found is None:
            known = ", ".join(sorted(self.named))
            hint = f"contexts: {known}" if known else "add one: `noetl-stream context add NAME --url URL`"
            raise UsageError(f"context {name!r} not found", hint=hint)
        return found


def read_contexts(file: Path | None) -> Contexts:
    """The contexts of the file; empty without a file.

    Raises:
        UsageError: it cannot be read, or is invalid.
    """
    if file is None or not os.access(file, os.F_OK):
        return Contexts(None, {})
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    with usable_file(file):
        text = file_text(file)
    try:
        found = YAML(typ="safe", pure=True).load(text) or {}
        named = {str(name): Context(**given) for name, given in (found.get("contexts") or {}).items()}
    except (YAMLError, AttributeError, TypeError):
        hint = f"expected `current: NAME`, and under `contexts` for each name any of {', '.join(KEYS)}"
        raise UsageError(f"{file}: not a valid list of contexts", hint=hint) from None
    for name, context in named.items():
        check_url(context.url, f"{file}: url of {name}")
    return Contexts(found.get("current"), named)


def write_contexts(file: Path | None, contexts: Contexts) -> None:
    """Replaces the file atomically, readable by its owner only.

    Raises:
        UsageError: it cannot be written.
    """
    if file is None:
        raise UsageError("neither XDG_CONFIG_HOME nor HOME is set", hint="contexts are stored there: set one")
    import tempfile

    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    named = {name: {k: v for k, v in asdict(one).items() if v is not None} for name, one in contexts.named.items()}
    with usable_file(file, "written"):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as written:
            yaml.dump({"current": contexts.current, "contexts": named}, written)
        Path(written.name).replace(file)  # created with mode 600


def check_name(name: str) -> None:
    """Raises UsageError for an invalid name of a context."""
    if NAME.fullmatch(name) is None or name == DIRECT:
        hint = f"use letters, digits, `_`, `.` and `-`; {DIRECT!r} is reserved for work without a gateway"
        raise UsageError(f"{name!r} is not a valid context name", hint=hint)


def check_url(url: object, what: str) -> None:
    """Raises UsageError for an invalid URL of a gateway."""
    parts = split_url(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in GATEWAY_SCHEMES or not parts.netloc:
        raise UsageError(f"{what} is not the URL of a gateway", hint="it must begin with http:// or https://")
    if "@" in parts.geturl():
        raise UsageError(f"{what} contains a password", hint="gateways take tokens: set NOETL_TOKEN")


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


Command = Callable[..., None]


def lists(verb: str, columns: Columns, name: Cell, *, publishes: bool = False) -> Callable[[Command], Command]:
    """Makes a command that lists the answer of a verb: see :func:`~noetl_stream.cli.base.output.print_documents`."""
    return _asks(verb, lambda found, output: print_documents(found, output, columns, name), "table", publishes)


def shows(
    verb: str,
    name: Cell,
    show: Callable[[Any], object] = print_members,
    form: str = "text",
    *,
    publishes: bool = False,
) -> Callable[[Command], Command]:
    """Makes a command that shows the answer of a verb: see :func:`~noetl_stream.cli.base.output.print_document`."""
    return _asks(verb, lambda found, output: print_document(found, output, name, show), form, publishes)


def does(verb: str, done: str, *, publishes: bool = False) -> Callable[[Command], Command]:
    """Makes a command that calls a verb for each value of its only argument, until one fails, and prints the result."""

    def made(described: Command) -> Command:
        def run(reason: str, target: Target, **named: Any) -> None:
            (value,) = named.values()

            async def work(session: Session) -> None:
                for one in value if isinstance(value, tuple) else (value,):
                    await attrgetter(verb)(session.operations)(one, session.by, reason)
                    say(f"{done} {one}")

            with_session(target, work, publishes=publishes)

        return reason_option(target_options(update_wrapper(run, described)))

    return made


def _asks(verb: str, shown: Callable[[Any, str], None], form: str, publishes: bool) -> Callable[[Command], Command]:
    async def read(session: Session, given: dict[str, Any]) -> Any:
        noun, _, name = verb.partition(".")
        if "by" in verb_of(getattr(port_of(noun), name)).parameters:
            given["by"] = session.by
        ask = attrgetter(verb)(session.operations)
        if "limit" not in given:
            return await ask(**given)
        limit = given.pop("limit")
        return await collect(lambda size, cursor: ask(**given, limit=size, cursor=cursor), limit)

    def made(described: Command) -> Command:
        def run(output: str, target: Target, **given: Any) -> None:
            shown(with_session(target, lambda session: read(session, given), publishes=publishes), output)

        return form_option(form)(target_options(update_wrapper(run, described)))

    return made
