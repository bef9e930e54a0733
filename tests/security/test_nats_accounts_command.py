"""`noetl-stream nats accounts`: a complete configuration, seeds that stay, and errors that say what to do."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_process import ROOT, NatsServer
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.cli.setup import accounts
from noetl_stream.errors import Unreachable, UsageError

INCLUDE = '# include "./nats-accounts.conf"'


def printed(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(accounts, ["--seeds", str(folder), *options], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


async def test_our_configuration_with_the_printed_accounts_knows_each_identity(tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    server = NatsServer(tmp_path)
    (tmp_path / "nats-accounts.conf").write_text(printed(seeds, "--pool", "default", "--pool", "gpu"))
    shipped = (ROOT / "nats.conf").read_text()
    assert shipped.count(INCLUDE) == 1
    server.conf.write_text(shipped.replace(INCLUDE, INCLUDE.removeprefix("# ")))
    server.start()
    try:
        for identity in ("admin", "server", "gateway", "worker-default", "worker-gpu"):
            nkey = (seeds / f"{identity}.nk").read_text().strip()
            connection = await NatsConnection.open(server.url, name="test", nkey=nkey, identity=identity)
            if identity == "admin":
                assert len(await ensure_streams(connection)) == 4
            await connection.close()
        with pytest.raises(Unreachable, match=r"(?i)authorization"):
            await NatsConnection.open(server.url, name="nobody")
    finally:
        server.end()


def test_seeds_are_private_and_stay_when_a_pool_is_added(tmp_path: Path) -> None:
    first = printed(tmp_path / "seeds")
    files = sorted((tmp_path / "seeds").iterdir())
    assert [file.name for file in files] == ["admin.nk", "gateway.nk", "server.nk", "worker-default.nk"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert not any(file.read_text().strip() in first for file in files)
    second = printed(tmp_path / "seeds", "--pool", "default", "--pool", "gpu")
    assert {line for line in first.splitlines() if "nkey" in line} < set(second.splitlines())


def said(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(accounts, ["--seeds", str(folder), *options], catch_exceptions=False)
    return result.stderr


def test_adding_a_pool_or_stream_keeps_the_others_and_lists_them(tmp_path: Path) -> None:
    assert said(tmp_path) == "pools: added default\n"
    assert said(tmp_path, "--pool", "gpu", "--trigger-stream", "ORDERS") == (
        "pools: kept default; added gpu\ntrigger streams: added ORDERS\n"
    )
    before = printed(tmp_path)
    assert "# worker-default" in before and "# worker-gpu" in before and "STREAM.INFO.ORDERS" in before
    assert said(tmp_path, "--pool", "default", "--trigger-stream", "VISITS") == (
        "pools: kept default, gpu\ntrigger streams: kept ORDERS; added VISITS\n"
    )
    assert printed(tmp_path, "--remove-trigger-stream", "VISITS") == before
    (tmp_path / "worker-gpu.nk.before").write_text("a copy is no pool")
    assert said(tmp_path, "--remove-pool", "gpu", "--pool", "night") == (
        "pools: kept default; added night; removed gpu\ntrigger streams: kept ORDERS\n"
    )
    assert "# worker-gpu" not in printed(tmp_path)
    assert not (tmp_path / "worker-gpu.nk").exists()


def test_streams_of_a_folder_that_does_not_say_them_are_asked_for(tmp_path: Path) -> None:
    """Release 0.3 wrote no list of them."""
    printed(tmp_path, "--trigger-stream", "ORDERS")
    (tmp_path / "trigger-streams").unlink()
    with pytest.raises(UsageError, match="does not say which streams triggers read"):
        printed(tmp_path)
    assert "STREAM.INFO.ORDERS" in printed(tmp_path, "--trigger-stream", "ORDERS")
    assert "STREAM.INFO.ORDERS" in printed(tmp_path)


def test_an_unusable_account_is_refused(tmp_path: Path) -> None:
    (tmp_path / "admin.nk").write_text("no seed")
    (tmp_path / "admin.nk").chmod(0o600)
    with pytest.raises(UsageError, match=r"admin\.nk holds no seed of a NATS user"):
        printed(tmp_path)
    with pytest.raises(UsageError, match=r"'a\.b' is not a valid pool name"):
        printed(tmp_path / "other", "--pool", "a.b")
    with pytest.raises(UsageError, match=r"there is no pool gpu .*there are: default"):
        printed(tmp_path / "third", "--pool", "default") and printed(tmp_path / "third", "--remove-pool", "gpu")
    with pytest.raises(UsageError, match="pool gpu is to be added and removed"):
        printed(tmp_path / "third", "--pool", "gpu", "--remove-pool", "gpu")
    with pytest.raises(UsageError, match="triggers cannot read it"):
        printed(tmp_path / "third", "--trigger-stream", "EVENTS")
    assert "EVENTS" not in said(tmp_path / "third")
