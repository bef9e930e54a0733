"""``noetl-stream nats``: the users and rights of your own NATS."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.output import say
from noetl_stream.errors import UsageError


@click.group()
def nats() -> None:
    """Prepare your own NATS."""


@nats.command()
@click.option("--pool", "pools", multiple=True, default=("default",), show_default=True, help="A pool with workers.")
@click.option("--trigger-stream", "streams", multiple=True, metavar="NAME", help="A stream that triggers may read.")
@click.option(
    "--seeds",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("nats-seeds"),
    show_default=True,
    help="The folder of the seeds, one file for each identity.",
)
def accounts(pools: tuple[str, ...], streams: tuple[str, ...], folder: Path) -> None:
    """Print the accounts of a nats-server, with a user for each identity; keep their seeds in a folder.

    Seeds that exist are used again, so name all pools and streams each time. Each process gets the seed of its own
    identity as NOETL_NATS_NKEY. nats-server needs the printed text, which holds no secret, and a reload.

    Streams that triggers read are in an account of their own, for whoever has the seed of the publisher.
    """
    from nkeys import NkeysError

    from noetl_stream.local.home import read_private, write_private
    from noetl_stream.local.secrets import new_seed, public_nkey
    from noetl_stream.protocol.nats_accounts import nats_accounts
    from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, PUBLISHER, SERVER, worker_identity

    public_keys: dict[str, str] = {}
    publishers = (PUBLISHER,) if streams else ()
    for identity in (ADMIN, SERVER, GATEWAY, *publishers, *dict.fromkeys(map(worker_identity, pools))):
        file = folder / f"{identity}.nk"
        if not file.exists():
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(file, new_seed() + "\n")
            except OSError as error:
                raise UsageError(f"cannot write {file}: {error.strerror}", hint="use --seeds") from None
        try:
            public_keys[identity] = public_nkey(read_private(file).strip())
        except (ValueError, NkeysError):
            raise UsageError(f"{file} holds no seed of a NATS user", hint="remove it to make another") from None
    say(nats_accounts(public_keys, streams), nl=False)
