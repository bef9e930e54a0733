"""The setup of the user's own NATS and Postgres, for ``noetl-stream setup``.

Everything is checked before anything is changed. Keys and passwords are in ``settings.env.new`` before they are used,
and ``settings.env``, which commands read, is written last. The next setup therefore continues an interrupted one with
the same keys, and until then commands work as before.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from noetl_stream.adapters.nats.streams import partitions_of, require_payload, require_version
from noetl_stream.adapters.postgres.connections.database import shown_address
from noetl_stream.adapters.postgres.schema.migrate import known_migrations, migrate
from noetl_stream.adapters.postgres.schema.roles import GATEWAY as GATEWAY_ROLE
from noetl_stream.adapters.postgres.schema.roles import SERVER as SERVER_ROLE
from noetl_stream.adapters.postgres.schema.roles import (
    SetupRights,
    drop_user,
    dsn_of_user,
    make_user,
    may_log_in,
    setup_rights,
)
from noetl_stream.concurrency import closing
from noetl_stream.errors import Conflict, LoginRefused, NoetlError, NotReady, UsageError
from noetl_stream.local.home import exclusive_lock, prepare_home, read_settings_file, write_private
from noetl_stream.local.secrets import PASSWORD_BYTES, scram_verifier
from noetl_stream.local.startup_errors import system_errors_explained
from noetl_stream.model.ids import use_partitions
from noetl_stream.model.secrets.urls import redact_urls
from noetl_stream.protocol.nats_permissions import ADMIN
from noetl_stream.sealing.keys import new_key
from noetl_stream.settings.key_variables import (
    ACCESS_KEY_VARIABLE,
    ARCHIVE_SIGNING_VARIABLE,
    BACKUP_SIGNING_VARIABLE,
    KEY_VARIABLE,
    SERVER_KEY_VARIABLE,
)
from noetl_stream.settings.servers import GATEWAY_POSTGRES_VARIABLE, POSTGRES_VARIABLE, SERVER_POSTGRES_VARIABLE
from noetl_stream.settings.sources.environment import NATS_URL_VARIABLE, Settings
from noetl_stream.settings.sources.variables import SETTINGS_FILE, settings_text
from noetl_stream.wiring.stack import own_endpoint
from noetl_stream.wiring.stores import COMMAND_WAIT_S, ensure_all_streams, open_nats

Say = Callable[[str], object]

GRANTS_DEFAULT_VARIABLE: Final = "NOETL_GRANTS_DEFAULT"
NEEDED_KEYS: Final = (SERVER_KEY_VARIABLE, ACCESS_KEY_VARIABLE)
USERS: Final[Mapping[str, str]] = {SERVER_POSTGRES_VARIABLE: SERVER_ROLE, GATEWAY_POSTGRES_VARIABLE: GATEWAY_ROLE}
"""The role of the Postgres user in each address."""

OUR_USER: Final = re.compile(r"noetl_(?:server|gateway)_[0-9a-f]{8}")
BEGUN: Final = f"{SETTINGS_FILE}.new"
BUSY: Final = "another command sets up this home, or starts its servers, and does not finish"
HEADER: Final = """\
# Servers of your own, for every command of noetl-stream with this home: `noetl-stream setup` wrote it.
# It holds passwords and keys. Other settings may stand here too, as NAME=VALUE.
"""


class _Servers(NamedTuple):
    """The servers found: the release of NATS, and the rights in Postgres."""

    nats_version: str
    rights: SetupRights


def set_up(home: Path, given: Mapping[str, str], *, new_keys: bool, say: Say) -> None:
    """Creates missing streams, schema, users and keys, and the settings file of the home.

    Args:
        given: Settings of the options and the environment, which replace those of the home.
        new_keys: Whether to make keys for a database whose keys are lost.
        say: Called with each change, line by line.

    Raises:
        UsageError: an address is missing or invalid.
        Unreachable, NotReady: a server does not answer, is too old, or does not permit this to the user. Nothing was
            changed.
        Conflict: the database was set up with keys that this home does not have.
        LocalStackError: the home cannot be written, or is open to others.
    """
    servers = asyncio.run(_check_servers(_settings({**_kept_settings(home), **given})))
    with ExitStack() as locked:
        with system_errors_explained(home):
            locked.enter_context(exclusive_lock(prepare_home(home).start_lock, BUSY))
        wanted = {**_kept_settings(home), **given}
        made = _missing_keys(wanted, servers.rights, new_keys=new_keys)
        wanted |= made
        if not servers.rights.has_schema:  # servers on an older database stay unchanged
            wanted.setdefault(GRANTS_DEFAULT_VARIABLE, "own")
        say(f"NATS      {redact_urls(wanted[NATS_URL_VARIABLE])}, nats-server {servers.nats_version}")
        say(f"Postgres  {shown_address(wanted[POSTGRES_VARIABLE])}")
        changed = asyncio.run(ensure_all_streams(own_endpoint(_settings(wanted), ADMIN)))
        say(f"streams   {'; '.join(changed) or 'up to date'}")
        wanted |= _users(wanted, servers.rights)
        _write(home, BEGUN, wanted)
        try:
            asyncio.run(_prepare_postgres(wanted, servers.rights, has_new_keys=bool(made), say=say))
        except Conflict:
            (home / BEGUN).unlink()
            raise
        _write(home, SETTINGS_FILE, wanted)
        (home / BEGUN).unlink()
    say(f"keys      {'made ' + ', '.join(made) if made else 'kept'}")
    say(f"settings  {home / SETTINGS_FILE}, for you alone")


def _kept_settings(home: Path) -> dict[str, str]:
    """Returns the settings of an interrupted setup, or those of the last complete one."""
    for name in (BEGUN, SETTINGS_FILE):
        with suppress(FileNotFoundError, NotADirectoryError):
            return read_settings_file(home / name)
    return {}


def _write(home: Path, name: str, wanted: Mapping[str, str]) -> None:
    """Writes a file like the settings file, with these values."""
    file = home / SETTINGS_FILE
    with system_errors_explained(home):
        text = file.read_text(encoding="utf-8") if file.exists() else HEADER
        write_private(home / name, settings_text(text, wanted))


def _settings(wanted: Mapping[str, str]) -> Settings:
    settings = Settings.from_environment(wanted)
    if settings.nats_url is None or settings.postgres_dsn is None:
        hint = "noetl-stream setup --nats nats://HOST:4222 --postgres postgresql://USER:PASSWORD@HOST:5432/DATABASE"
        raise UsageError("name the NATS and the Postgres to set up", hint=hint)
    use_partitions(settings.partitions)
    return settings


async def _check_servers(settings: Settings) -> _Servers:
    """Checks both servers; raises all faults in one error."""
    nats = asyncio.ensure_future(_nats_version(settings))
    postgres = asyncio.ensure_future(setup_rights(settings.postgres_dsn or ""))
    await asyncio.wait([nats, postgres])
    faults = [error for one in (nats, postgres) if isinstance(error := one.exception(), NoetlError)]
    if len(faults) > 1:
        hints = "; ".join(fault.hint for fault in faults if fault.hint)
        raise NotReady("; and ".join(fault.message for fault in faults), hint=hints or None)
    return _Servers(nats.result(), postgres.result())


async def _nats_version(settings: Settings) -> str:
    """Returns the version of a NATS that has what this program needs."""
    try:
        nats = await open_nats(own_endpoint(settings, ADMIN), "noetl-setup", COMMAND_WAIT_S)
    except LoginRefused as error:
        hint = "write nats://USER:PASSWORD@HOST:4222, or with --seeds the folder of `noetl-stream nats accounts`"
        raise LoginRefused(error.message, hint=hint) from None
    async with closing(nats):
        require_version(nats)
        require_payload(nats)
        await partitions_of(nats)  # JetStream answers
        return nats.server_version


def _missing_keys(wanted: Mapping[str, str], rights: SetupRights, *, new_keys: bool) -> dict[str, str]:
    made_here = (KEY_VARIABLE, BACKUP_SIGNING_VARIABLE, ARCHIVE_SIGNING_VARIABLE)
    missing = [name for name in (*NEEDED_KEYS, *made_here) if not wanted.get(name)]
    if rights.has_schema and not new_keys and any(name in NEEDED_KEYS for name in missing):
        raise _set_up_elsewhere(wanted)
    return {name: new_key() for name in missing}


def _set_up_elsewhere(wanted: Mapping[str, str]) -> Conflict:
    return Conflict(
        f"the database at {shown_address(wanted[POSTGRES_VARIABLE])} was set up before, with keys that are not here",
        hint=f"copy {SETTINGS_FILE} from the home that did it, or set {' and '.join(NEEDED_KEYS)}; if they are lost, "
        "--new-keys makes others: results that they sealed stay closed, and running executions fail",
    )


def _users(wanted: Mapping[str, str], rights: SetupRights) -> dict[str, str]:
    """Returns the addresses of servers and gateways: with users of their own, if this user may create some."""
    found = {}
    for variable, role in USERS.items():
        if _is_ours(wanted.get(variable)):
            login = urlsplit(wanted[variable])
            user, password = str(login.username), str(login.password)
        elif wanted.get(variable) or not rights.may_create_roles:
            continue
        else:
            user, password = f"{role}_{secrets.token_hex(4)}", secrets.token_hex(PASSWORD_BYTES)
        found[variable] = dsn_of_user(wanted[POSTGRES_VARIABLE], user, password)
    return found


def _is_ours(dsn: str | None) -> bool:
    return dsn is not None and OUR_USER.fullmatch(urlsplit(dsn).username or "") is not None


async def _prepare_postgres(wanted: dict[str, str], rights: SetupRights, *, has_new_keys: bool, say: Say) -> None:
    """Creates the schema, the roles and the users. Empties addresses in ``wanted`` whose users cannot be created."""
    applied = await migrate(wanted[POSTGRES_VARIABLE], roles=rights.may_create_roles)
    if has_new_keys and not rights.has_schema and known_migrations()[0].name not in applied:
        raise _set_up_elsewhere(wanted)  # at the same time, by another home
    say(f"schema    {f'applied {len(applied)} migrations' if applied else 'up to date'}")
    users = [await _user(wanted, variable, rights) for variable in USERS]
    say(f"users     {'; '.join(dict.fromkeys(users))}")


async def _user(wanted: dict[str, str], variable: str, rights: SetupRights) -> str:
    """Creates the Postgres user of an address, and reports who connects."""
    who = "servers" if variable == SERVER_POSTGRES_VARIABLE else "gateways and commands"
    if not wanted.get(variable):
        return f"servers, gateways and commands connect as {rights.name}, who may not create others"
    dsn = wanted[variable]
    user = urlsplit(dsn).username or ""
    if await may_log_in(dsn):
        return f"{user} for {who}"
    if not _is_ours(dsn):
        hint = "remove the setting, or let it log in"
        raise LoginRefused(f"Postgres refuses the user {user} of {variable}", hint=hint)
    owner, verifier = wanted[POSTGRES_VARIABLE], scram_verifier(str(urlsplit(dsn).password))
    if await make_user(owner, user, verifier, USERS[variable]):
        if await may_log_in(dsn):
            return f"{user} for {who}"
        await drop_user(owner, user)
    wanted[variable] = ""
    return f"{who} connect as {rights.name}: Postgres lets no user of their own log in"
