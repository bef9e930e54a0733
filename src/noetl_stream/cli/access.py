"""``noetl-stream token|sign-in|audit|grant``: API tokens of the gateway, the audit, and grants of playbooks. (For
tokens of executions: ``noetl-stream execution token``.)
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option, home_option, limit_option, reason_option, seconds
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_source, say
from noetl_stream.cli.base.process import run_async, run_on_stack, settings_for
from noetl_stream.cli.base.session import (
    Session,
    Target,
    collect,
    does,
    gateway_of,
    lists,
    shows,
    target_options,
    with_session,
)
from noetl_stream.cli.playbook.playbook_source import read_playbook
from noetl_stream.errors import UsageError
from noetl_stream.local.gateway_address import gateways_of
from noetl_stream.model.rights import ROLES, Role
from noetl_stream.ports.operations import access as documents
from noetl_stream.protocol.nats_permissions import ADMIN


def seconds_or_never(context: click.Context, option: click.Parameter, given: str) -> float | Literal["never"] | None:
    """The callback of an option that takes a duration or ``never``."""
    return "never" if given == "never" else seconds(context, option, given)


@click.group()
def token() -> None:
    """Create, list and revoke API tokens of the gateway.

    Without --url the commands work directly on the database. Create the first admin token that way.
    """


@token.command()
@click.argument("name")
@click.option("--role", required=True, type=click.Choice(ROLES), help="Role; each includes those before it.")
@click.option("--paths", default="", metavar="PATH,…", help="Allow only playbooks at or below these paths.")
@click.option(
    "--expires",
    "expires_s",
    default="90d",
    callback=seconds_or_never,
    metavar="TIME",
    help="Time until it expires, e.g. 30d, or never. [default: 90d]",
)
@form_option("text")
@target_options
def create(name: str, role: Role, paths: str, expires_s: float | Literal["never"], output: str, target: Target) -> None:
    """Create a token called NAME and print it to stdout. It cannot be shown again."""
    expires_ms = expires_s if expires_s == "never" else int((time.time() + expires_s) * 1000)
    new = documents.NewToken(name, role, tuple(filter(None, map(str.strip, paths.split(",")))), expires_ms)
    made = with_session(target, lambda session: session.operations.access.create_token(new, session.by))

    def show(made: documents.NewApiTokenDocument) -> None:
        say(made.secret)
        say(f"created {made.id} ({name}, {role}); store the token now, it cannot be shown again", err=True)

    print_document(made, output, "id", show)


@token.command()
@click.argument("secret")
@click.option(
    "--api", default=None, metavar="URL", help="Address of the API. [default: https://kubernetes.default.svc]"
)
@click.option(
    "--account",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder with the token, ca.crt and namespace of the account. [default: where Kubernetes mounts it]",
)
@home_option
def bootstrap(secret: str, api: str | None, account: Path | None, home: Path | None) -> None:
    """Make the first token of an installation, in the Kubernetes Secret called SECRET, as its key `token`.

    It does nothing if an admin has a token. This one only creates the token of an admin, and is revoked when there is
    one. Run it in a pod whose account may get, create and patch that one Secret.
    """
    from noetl_stream.adapters.kubernetes import ACCOUNT, API, SecretKey
    from noetl_stream.wiring.stores import register_bootstrap_token

    kept = SecretKey(secret, "token", api=api or API, account=account or ACCOUNT)
    made = run_on_stack(settings_for(home), ADMIN, lambda admin: register_bootstrap_token(admin, kept))
    if made is None:
        say("there is a token already")
    else:
        say(f"the Secret {secret} has the bootstrap token {made.id}")


TOKEN_COLUMNS: Final = columns_of(
    *("id", "name", "role", "created", "expires", "last_used", "revoked"), paths=lambda one: " ".join(one.paths)
)


@token.command("list")
@lists("access.tokens", TOKEN_COLUMNS, "id")
def list_tokens() -> None:
    """List all tokens without their secrets, including revoked ones."""


@token.command()
@click.argument("token_ids", nargs=-1, required=True, metavar="ID...")
@does("access.revoke_token", "revoked")
def revoke() -> None:
    """Revoke tokens by their ids, as `token list` shows them."""


@click.command()
@target_options
def sign_in(target: Target) -> None:
    """Print a link that signs a browser in, with the rights of your token.

    It works once, within 10 minutes. The session ends after 12 hours, or with the token. Without --url and --context it
    is for the gateway of the embedded stack, which must run.
    """
    from noetl_stream.adapters.clock import SystemClock
    from noetl_stream.adapters.gateway_client.own_verbs import sign_in_link

    settings = settings_for(target.home)
    gateway = gateway_of(target, settings) or next(iter(gateways_of(settings.home)), None)
    if gateway is None:
        hint = "start `noetl-stream dev`, or name the gateway with --url"
        raise UsageError(f"no gateway of {settings.home} is running", hint=hint)
    say(run_async(sign_in_link(gateway.url, gateway.token, SystemClock())))


@click.group()
def audit() -> None:
    """Inspect the audit log: who changed what, and which calls were refused."""


@audit.command("list")
@click.option("--principal", default=None, help="Only calls of this principal, e.g. token:ci.")
@click.option("--operation", default=None, help="Only calls of this operation, e.g. readCredential.")
@click.option("--of", default=None, metavar="TARGET", help="Only what was done to this execution, credential, ...")
@click.option("--refused/--allowed", default=None, help="Only what was refused, or only what was not.")
@limit_option("entries", 100)
@form_option()
@target_options
def list_entries(limit: int, output: str, target: Target, of: str | None, **chosen: Any) -> None:
    """List the calls that changed something or were refused, newest first."""

    async def read(session: Session) -> list[documents.AuditEntryDocument]:
        return await collect(partial(session.operations.access.audit, target=of, **chosen), limit)

    columns = columns_of("number", "at", "principal", "operation", "target", "status", "reason")
    print_documents(with_session(target, read), output, columns, "number")


@audit.command()
@form_option("text")
@target_options
@click.pass_context
def verify(context: click.Context, output: str, target: Target) -> None:
    """Check whether entries were changed, removed or inserted in the database. Exits with 1 if any was.

    Each entry has the hash of the one before it, so what was done to one shows at the next.
    """
    pages = with_session(target, _checked_audit)
    faults = [fault for page in pages for fault in page.faults]
    checked = sum(page.checked for page in pages)
    found = documents.AuditCheckDocument(checked=checked, unchained=pages[0].unchained, faults=faults, next=None)
    print_document(found, output, "checked", _say_audit_check)
    if faults:
        context.exit(ExitCode.FAILED)


async def _checked_audit(session: Session) -> list[documents.AuditCheckDocument]:
    pages = [await session.operations.access.check_audit()]
    while (cursor := pages[-1].next) is not None:
        pages.append(await session.operations.access.check_audit(cursor))
    return pages


def _say_audit_check(found: documents.AuditCheckDocument) -> None:
    for fault in found.faults:
        say(f"{fault.fault:8} {fault.part} {fault.number}: {fault.says}")
    older = f", {found.unchained} are from before there were chains" if found.unchained else ""
    say(f"{found.checked} calls and answers were checked{older}: {len(found.faults) or 'no'} faults")


GRANTS_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def _print_grants(found: documents.GrantsDocument) -> None:
    print_source(found.source)
    says = {
        "file": "a file of the operator says it: NOETL_GRANTS",
        "none": "there are none: NOETL_GRANTS_DEFAULT says what playbooks may use",
        "registered": f"revision {found.revision}, registered by {found.registered_by} at {found.registered}",
    }
    say(says[found.origin], err=True)


@click.group()
def grant() -> None:
    """Say what playbooks may use, or show it.

    Where NOETL_GRANTS names a file for the servers, that file says it. Otherwise it is what an admin registers.
    NOETL_GRANTS_DEFAULT says what playbooks may use that no grant covers.
    """


@grant.command()
@click.argument("file", type=GRANTS_FILE)
def check(file: Path) -> None:
    """Check the grants in FILE."""
    from noetl_stream.settings.grants import read_grants

    say(f"{file}: {len(read_grants(file).grants)} grants")


@grant.command()
@click.option("--revision", type=click.IntRange(1), default=None, help="Of those registered. [default: those in force]")
@shows("grants.get", "revision", _print_grants)
def get() -> None:
    """Print grants as they are written, and to stderr where they are from."""


@grant.command()
@click.argument("file", type=GRANTS_FILE)
@click.option(
    "--replaces",
    type=click.IntRange(0),
    required=True,
    metavar="REVISION",
    help="What `grant get` says; 0 if there are none.",
)
@reason_option
@target_options
def apply(file: Path, replaces: int, reason: str, target: Target) -> None:
    """Register the grants in FILE, in place of those you changed.

    It is refused if somebody else has registered grants meanwhile, or if servers have a file of grants. Every server
    has them within a few seconds.
    """
    from noetl_stream.settings.grants import parse_grants

    source = read_playbook(file)
    parse_grants(source, str(file))

    async def register(session: Session) -> documents.GrantsDocument:
        return await session.operations.grants.put(replaces + 1, source, session.by, reason)

    say(f"registered revision {with_session(target, register).revision} of the grants")


@grant.command()
@click.argument("path")
@click.option("--file", type=GRANTS_FILE, default=None, help="A file of grants, instead of those in force.")
@form_option()
@target_options
def show(path: str, file: Path | None, output: str, target: Target) -> None:
    """List what the playbook at PATH may use."""
    from noetl_stream.operations.grants import usable_in
    from noetl_stream.settings.grants import SORTS, read_grants

    settings = settings_for(target.home)
    if file is None and gateway_of(target, settings) is None:
        file = settings.grants_file
    if file is not None:
        found = usable_in(read_grants(file, settings.grants_default or "nothing"), path)
    else:
        found = with_session(target, lambda session: session.operations.grants.usable(path))
    rows = [{"sort": sort, "name": name} for sort in SORTS for name in getattr(found, sort)]
    print_documents(rows, output, columns_of("sort", "name"), "name")
