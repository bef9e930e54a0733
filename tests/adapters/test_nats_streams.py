"""Making, mending and checking the streams."""

from __future__ import annotations

import msgspec
import pytest

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import LogsBounds, delete_stream, ensure_streams, verify_stream
from noetl_stream.adapters.nats.task_logs import NatsTaskLogs
from noetl_stream.errors import NotReady
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, LOGS, RESULTS


async def config_of(connection: NatsConnection, stream: str) -> dict[str, object]:
    config: dict[str, object] = msgspec.json.decode(await connection.api(f"STREAM.INFO.{stream}"))["config"]
    return config


async def test_missing_streams_are_made_and_named(own_nats_connection: NatsConnection) -> None:
    assert await ensure_streams(own_nats_connection) == [
        "created stream EVENTS",
        "created stream COMMANDS",
        "created stream OBJ_noetl-results",
        "created stream LOGS",
    ]
    for stream in (EVENTS, COMMANDS, RESULTS, LOGS):
        await verify_stream(own_nats_connection, stream)


async def test_events_is_kept_until_a_server_trims_it(connection: NatsConnection) -> None:
    config = await config_of(connection, EVENTS)
    assert (config["max_age"], config["max_msgs_per_subject"], config["deny_delete"]) == (0, -1, True)


async def test_correct_streams_are_left_alone(connection: NatsConnection) -> None:
    assert await ensure_streams(connection) == []


async def test_a_differing_setting_is_mended_and_the_operators_own_stays(connection: NatsConnection) -> None:
    config = await config_of(connection, EVENTS)
    changed = {**config, "discard": "old", "max_bytes": 1 << 30, "description": "ours"}
    await connection.api(f"STREAM.UPDATE.{EVENTS}", changed)
    with pytest.raises(NotReady, match="EVENTS differs from what this version needs: discard"):
        await verify_stream(connection, EVENTS)
    assert await ensure_streams(connection) == ["changed stream EVENTS: discard"]
    mended = await config_of(connection, EVENTS)
    assert (mended["discard"], mended["max_bytes"], mended["description"]) == ("new", 1 << 30, "ours")
    await verify_stream(connection, EVENTS)


async def test_logs_has_the_bounds_that_are_given_and_else_keeps_its_own(connection: NatsConnection) -> None:
    assert await ensure_streams(connection, logs=LogsBounds(2 << 20, 600.0)) == [
        "changed stream LOGS: max_age, max_bytes"
    ]
    assert await ensure_streams(connection) == []
    config = await config_of(connection, LOGS)
    assert (config["max_bytes"], config["max_age"], config["max_msg_size"]) == (2 << 20, 600 * 10**9, 64 << 10)


async def test_logs_of_an_older_release_can_be_read_once_it_is_mended(connection: NatsConnection) -> None:
    config = await config_of(connection, LOGS)
    await connection.api(f"STREAM.UPDATE.{LOGS}", {**config, "allow_direct": False})
    logs = await NatsTaskLogs.open(connection)
    with pytest.raises(NotReady, match="stream ensure"):
        await logs.read("execution-1", 0)
    assert await ensure_streams(connection) == ["changed stream LOGS: allow_direct"]
    assert await logs.read("execution-1", 0) == []
    await logs.close()


async def test_settings_that_a_newer_release_added_to_a_stream_are_kept(connection: NatsConnection) -> None:
    config = await config_of(connection, COMMANDS)
    added = {"subjects": ["noetl.commands.>", "noetl.fence.*", "noetl.later.*"], "metadata": {"noetl_format": "99"}}
    await connection.api(f"STREAM.UPDATE.{COMMANDS}", {**config, **added})
    await verify_stream(connection, COMMANDS)
    assert await ensure_streams(connection) == []
    await connection.api(
        f"STREAM.UPDATE.{COMMANDS}", {**config, **added, "subjects": ["noetl.commands.>", "noetl.later.*"]}
    )
    assert await ensure_streams(connection) == ["changed stream COMMANDS: subjects"]
    mended = await config_of(connection, COMMANDS)
    assert sorted(mended["subjects"]) == sorted(added["subjects"])  # type: ignore[call-overload]
    assert mended["metadata"]["noetl_format"] == "99"  # type: ignore[index]


async def test_a_missing_stream_is_not_ready_and_says_how_to_fix_it(connection: NatsConnection) -> None:
    await connection.api(f"STREAM.DELETE.{COMMANDS}")
    with pytest.raises(NotReady, match=r"COMMANDS does not exist .*stream ensure"):
        await verify_stream(connection, COMMANDS)


async def test_a_stream_whose_deletion_was_not_answered_in_time_counts_as_deleted(connection: NatsConnection) -> None:
    for _ in ("the request", "the request sent again"):
        await delete_stream(connection, COMMANDS)
    with pytest.raises(NotReady, match="COMMANDS does not exist"):
        await verify_stream(connection, COMMANDS)


async def test_a_stream_of_another_partition_count_is_refused_and_not_changed(connection: NatsConnection) -> None:
    for attempt in (ensure_streams(connection, partitions=64), verify_stream(connection, EVENTS, 64)):
        with pytest.raises(NotReady, match="is for 32 partitions, this process uses 64"):
            await attempt
    assert (await config_of(connection, EVENTS))["metadata"]["noetl_partitions"] == "32"  # type: ignore[index]


async def test_a_stream_that_cannot_be_made_to_fit_is_refused(connection: NatsConnection) -> None:
    await connection.api(f"STREAM.DELETE.{COMMANDS}")
    foreign = {"name": COMMANDS, "subjects": ["noetl.commands.>"], "retention": "limits", "storage": "file"}
    await connection.api(f"STREAM.CREATE.{COMMANDS}", {**foreign, "sealed": False, "deny_purge": True})
    with pytest.raises(NotReady, match="COMMANDS exists with settings that cannot be changed"):
        await ensure_streams(connection)
