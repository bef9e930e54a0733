"""Ten times the messages that wait for a server are about ten times the work, in whatever number of turns."""

from __future__ import annotations

import pytest
from counted import Act, assert_near_linear

from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Request
from noetl_stream.model.rights import namespace_of
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.server.inputs.fair_queue import UnfoldedMessages

PARTS = 100
AT_ONCE = 8
PARTITIONS_READ = 4


@pytest.mark.parametrize("namespaces", [1, 5])
def test_a_turn_costs_the_same_however_many_messages_wait(namespaces: int) -> None:
    def folded(count: int) -> Act:
        unfolded = UnfoldedMessages(lambda _: None, namespace_of)
        messages = [_start(number, f"team{number % namespaces}/work") for number in range(1, count + 1)]
        unfolded.note_read(messages)
        unfolded.add(messages)

        def fold_all() -> None:
            cursors: dict[int, tuple[int, int]] = {}
            while taken := unfolded.take(AT_ONCE):
                unfolded.restore(taken[AT_ONCE // 2 :])
                cursors |= unfolded.cursors(taken[: AT_ONCE // 2])
                unfolded.note_folded(taken[: AT_ONCE // 2])
            last = {message.partition: (message.sequence, message.at_ms) for message in messages}
            assert cursors == last

        return fold_all

    assert_near_linear(folded, PARTS)


def _start(number: int, path: str) -> ReportedMessage:
    one = f"run-{number}"
    body = codec.encode(Request(one, one, ExecutionRequested(one, "digest", path)))
    return ReportedMessage(number, number, number % PARTITIONS_READ, one, body, "noetl.events")
