"""``noetl-stream setup|nats``: the user's own NATS and Postgres."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import home_option
from noetl_stream.cli.base.output import say


@click.command()
@click.option("--nats", metavar="URL", help="nats://USER:PASSWORD@HOST:4222. [default: NOETL_NATS_URL, else as before]")
@click.option(
    "--postgres",
    metavar="URL",
    help="postgresql://USER:PASSWORD@HOST:5432/DATABASE, as a user who may create a schema there. "
    "[default: NOETL_POSTGRES_DSN, else as before]",
)
@click.option(
    "--seeds",
    type=click.Path(exists=True, file_okay=False, path_type=Path, resolve_path=True),
    help="Folder of `nats accounts`, if NATS has these accounts.",
)
@click.option("--new-keys", is_flag=True, help="Make new keys for a database whose keys are lost.")
@home_option
def setup(nats: str | None, postgres: str | None, seeds: Path | None, new_keys: bool, home: Path | None) -> None:
    """Set up a NATS and a Postgres of your own: streams, schema, users, keys, and a settings file.

    The file is settings.env in the home. Every command with this home reads it, so nothing else needs to be set:
    `dev`, `run`, `server`, `worker`, `gateway` use these servers from then on. Remove it to use embedded ones again.
    Other machines need a copy.

    Both servers are checked before anything is changed. Safe to repeat, as after an upgrade: keys stay.
    """
    from noetl_stream.hosting.own_servers import set_up
    from noetl_stream.settings.servers import POSTGRES_VARIABLE
    from noetl_stream.settings.sources.environment import NATS_URL_VARIABLE, SEEDS_VARIABLE
    from noetl_stream.settings.sources.process_environment import (
        home_to_set_up,
        settings_to_set_up,
        variable_before_the_home,
    )

    options = {NATS_URL_VARIABLE: nats, POSTGRES_VARIABLE: postgres, SEEDS_VARIABLE: seeds and str(seeds)}
    given = {**settings_to_set_up(), **{name: value for name, value in options.items() if value}}
    folder = home_to_set_up(home)
    set_up(folder, given, new_keys=new_keys, say=say)
    if home is None and (other := variable_before_the_home()):
        say(f"unset {other}: while it is set, commands do not read this file")
    place = "" if home is None else f" --home {folder}"
    say(f"\nnext:     noetl-stream dev{place}, and in another terminal: noetl-stream run FILE{place}")


@click.group()
def nats() -> None:
    """Prepare your own NATS."""


@nats.command()
@click.option(
    "--pool", "pools", multiple=True, help="A pool with workers. [default: those in the folder, else default]"
)
@click.option("--trigger-stream", "streams", multiple=True, metavar="NAME", help="A stream that triggers may read.")
@click.option("--remove-pool", "without_pools", multiple=True, metavar="POOL", help="Remove a pool, and its seed.")
@click.option("--remove-trigger-stream", "without_streams", multiple=True, metavar="NAME", help="Remove a stream.")
@click.option(
    "--seeds",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("nats-seeds"),
    show_default=True,
    help="The folder of the seeds, one file for each identity.",
)
def accounts(
    pools: tuple[str, ...],
    streams: tuple[str, ...],
    without_pools: tuple[str, ...],
    without_streams: tuple[str, ...],
    folder: Path,
) -> None:
    """Print the accounts of a nats-server, with a user for each identity; keep their seeds in a folder.

    Pools and streams that the folder has are kept until they are removed, with the same seeds. What is kept, added and
    removed is said on stderr. Each process gets the seed of its own identity as NOETL_NATS_NKEY. nats-server needs the
    printed text, which holds no secret, and a reload; two where a pool or a stream is new.

    Streams that triggers read are in an account of their own, for whoever has the seed of the publisher.
    """
    from noetl_stream.hosting.nats_seeds import write_seeds

    made = write_seeds(folder, pools, streams, without_pools=without_pools, without_streams=without_streams)
    say(made.text, nl=False)
    say(f"pools: {made.pools}", err=True)
    if any(made.streams):
        say(f"trigger streams: {made.streams}", err=True)
