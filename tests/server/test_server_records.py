"""Records of a tick that are published again."""

from __future__ import annotations

from noetl_stream.model.messages import RecordEntry
from noetl_stream.server.journal_records import Stamp, messages_of

AGAIN = Stamp(partition=3, tick=7, epoch=2, owner="server-1", again=True)


def test_another_content_has_another_message_id() -> None:
    """Else JetStream would drop it as a duplicate, and with it what was committed since."""
    entries = [(position, RecordEntry("report", position, 1)) for position in (5, 6)]
    (short,), (long,) = (list(messages_of("e", entries[:count], 40, AGAIN)) for count in (1, 2))
    (later,) = messages_of("e", entries[:1], 41, AGAIN)
    (repeated,) = messages_of("e", entries[:1], 40, AGAIN)
    assert len({one.message_id for one in (short, long, later)}) == 3
    assert repeated == short
