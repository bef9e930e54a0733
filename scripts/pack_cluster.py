"""Packs a new Postgres cluster with the schema of this version into the package: ``python scripts/pack_cluster.py``.

Homes of the embedded stack begin with it (``noetl_stream/local/cluster_archive.py``). It is packed anew with the
environment, and goes into the wheel; it serves only the system that made it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from noetl_stream.adapters.postgres.schema.migrate import MIGRATIONS
from noetl_stream.adapters.postgres.schema.roles import GRANTS
from noetl_stream.local import cluster_archive, postgres_server
from noetl_stream.local.binaries import find_postgres_programs, postgres_version
from noetl_stream.local.home import FileLock, prepare_home
from noetl_stream.local.postgres_server import DataFolder, PostgresServer
from noetl_stream.local.processes import postgres_user
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import open_stack, prepare_embedded

MADE_FROM = (*MIGRATIONS.glob("*.sql"), *GRANTS.glob("*.sql"), Path(postgres_server.__file__))


def main() -> None:
    for stale in cluster_archive.FOLDER.glob("cluster-*.bin"):
        stale.unlink()
    programs = find_postgres_programs()
    with TemporaryDirectory() as folder:
        home = prepare_home(Path(folder) / "home")
        settings = replace(Settings(), home_folder=home.root)
        with open_stack(settings) as stack:
            asyncio.run(prepare_embedded(stack))
        data = PostgresServer(home).data
        guard = FileLock(home.root / "packing.lock")
        DataFolder(data, programs, postgres_user(), guard.descriptor, home.root).strip()
        archive = cluster_archive.archive_path(postgres_version(programs))
        unfinished = archive.with_suffix(".new")
        cluster_archive.pack(data, unfinished, MADE_FROM)
        unfinished.replace(archive)


if __name__ == "__main__":
    main()
