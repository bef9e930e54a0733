"""Nothing that can be written stops a server, and no other execution notices, on the real stack (PROTOCOL §5 *Poison*).

`make verify` writes a million messages with its usual effort; `make hostile` does only that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import islice

import pytest
from journey_chain import STEPS, chain, check_completed, submit_and_end
from journey_stack import LiveStack

from effort import HOSTILE_WRITTEN
from hostile_messages import requests_to
from hostile_storm import Storm
from noetl_stream.errors import ReaderBroken
from noetl_stream.model.ids import PARTITIONS, digest_of
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.protocol.nats_permissions import SERVER
from noetl_stream.sealing.keys import key_ring
from noetl_stream.sealing.signing import Signer
from noetl_stream.settings.key_variables import ACCESS_KEY_VARIABLE
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stack import embedded_endpoint
from noetl_stream.wiring.stores import Connected, connect
from noetl_testkit.following import Submission, submit

pytestmark = [pytest.mark.verify, pytest.mark.xdist_group("journeys")]

ROUND = 2_500
OTHERS = 2
REPORTS_KEPT = 500

HEAD = {"apiVersion": "noetl.io/v2", "kind": "Playbook"}


def victim(name: str, *steps: object) -> str:
    """The text of a playbook (JSON is YAML)."""
    return json.dumps({**HEAD, "metadata": {"name": name, "path": f"tests/{name}"}, "workflow": steps})


QUICK = victim("quick", {"step": "only", "tool": {"kind": "noop", "args": {"a": 1}}})
VICTIMS = (
    victim("looping", {
        "step": "only", "loop": {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}},
        "tool": [
            {"name": "see", "kind": "noop", "args": {"n": "{{ iter.n }}"}},
            {"name": "rest", "kind": "wait", "for_s": 1},
            {"name": "tell", "kind": "noop", "args": {"n": "{{ see }}"}},
        ],
    }),
    victim("signalled", {
        "step": "only", "tool": [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 20}],
    }),
    victim("branching",
        {"step": "start", "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "only"}, {"step": "right"}]}},
        {"step": "only", "tool": {"kind": "wait", "for_s": 2}, "next": {"arcs": [{"step": "both"}]}},
        {"step": "right", "tool": {"kind": "noop", "args": {}}, "next": {"arcs": [{"step": "both"}]}},
        {"step": "both", "spec": {"join": "all"}, "tool": {"kind": "noop", "args": {}}},
    ),
)  # fmt: skip


class Genuine:
    """Reads what real workers report on victims, all the while."""

    def __init__(self) -> None:
        self.reports: list[ReportedMessage] = []

    async def read(self, connected: Connected, storm: Storm, victims: list[str]) -> None:
        while True:
            reader = await connected.log.open_reader(range(PARTITIONS), await connected.log.last_sequence())
            with contextlib.suppress(ReaderBroken):  # this process was busy for longer than a heartbeat
                while True:
                    for message in await reader.next_batch(512):
                        known = message.execution_id in victims and b'"type":"report"' in message.body
                        if known and storm.is_genuine(message):
                            self.reports = [*self.reports[-REPORTS_KEPT:], message]
            await reader.close()


async def begin_victims(connected: Connected, victims: list[str]) -> None:
    for source in VICTIMS:
        submission = Submission.new(source, "tests/victim", {}, connected.clock)
        victims.append(submission.execution_id)
        async with asyncio.timeout(60):
            follower = await make_client(connected).follow(submission.execution_id).open()
            try:
                await submit(make_client(connected), submission, follower)
            finally:
                await follower.close()


async def test_hostile_messages_on_every_subject_stop_no_process_and_no_other_execution(
    start_stack: Callable[[int, int], LiveStack], capsys: pytest.CaptureFixture[str]
) -> None:
    stack = await asyncio.to_thread(start_stack, 2, 1)
    of_server = embedded_endpoint(stack.embedded, Settings(), SERVER)
    ring = key_ring(of_server.access_keys, ACCESS_KEY_VARIABLE)
    assert ring is not None
    signer, source = Signer(ring, "request"), chain(STEPS)
    roles = {role: stack.roles(role) for role in ("server", "worker")}
    others: list[str] = []
    took_s: list[float] = []
    victims: list[str] = []
    began_s = time.monotonic()
    async with AsyncExitStack() as closing:
        connected = await connect(stack.endpoint, name="journey")
        closing.push_async_callback(connected.close)
        reading = await connect(of_server, name="journey")
        closing.push_async_callback(reading.close)
        address = stack.embedded.address
        storm = await Storm.open(1, address.nats_url, dict(address.seeds), closing)
        genuine = Genuine()
        listening = asyncio.create_task(genuine.read(reading, storm, victims))
        closing.callback(listening.cancel)
        digest = await make_client(connected).put(QUICK)
        assert digest == digest_of(QUICK)

        async def other() -> None:
            at_s = time.monotonic()
            others.append(await submit_and_end(connected, source))
            took_s.append(time.monotonic() - at_s)

        while storm.written.total() < HOSTILE_WRITTEN:
            await begin_victims(connected, victims)
            recent = list(islice(reversed(victims), 12))
            count = min(ROUND, HOSTILE_WRITTEN - storm.written.total())
            blowing = storm.blow(count, signer, lambda one: requests_to(one, digest), recent, genuine.reports)
            await asyncio.gather(blowing, *(other() for _ in range(OTHERS)))
            assert not listening.done(), listening.exception()
            assert {role: stack.roles(role) for role in roles} == roles
            if storm.written.total() % 50_000 < ROUND:
                with capsys.disabled():
                    print(
                        f"{storm.written.total():,} written, {storm.stored:,} stored, {len(others)} others, slowest "
                        f"{max(took_s):.1f} s, {time.monotonic() - began_s:.0f} s",
                        flush=True,
                    )
        await check_completed(connected.store, others)
    with capsys.disabled():
        print(
            f"\n{storm.written.total():,} hostile messages, {storm.stored:,} of them stored, in "
            f"{time.monotonic() - began_s:.0f} s; {len(others)} other executions, median "
            f"{sorted(took_s)[len(took_s) // 2]:.2f} s, slowest {max(took_s):.2f} s"
        )
        for pattern, count in sorted(storm.written.items()):
            print(f"  {count:9,}  {pattern}")
