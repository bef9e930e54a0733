"""The fences in EVENTS: a record that an owner stores after the fence of a later epoch does not count
(PROTOCOL §5 *Fence in EVENTS*).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from noetl_stream.model.json import codec
from noetl_stream.model.messages import JournalRecord
from noetl_stream.protocol.subjects import FENCE_ID

MOST_KEPT: Final = 256
"""The number of earlier fences that a fence names."""


class FencePlace(NamedTuple):
    """The epoch of a fence and its sequence in EVENTS."""

    epoch: int
    sequence: int


class LogFence(JournalRecord, frozen=True, omit_defaults=True):
    """The fence of an owner: a checkpoint record without entries, for servers that know no fences.

    ``earlier``: the fences before it, oldest first; after it was stored again, its own first place too.
    """

    owner: str = ""
    earlier: Sequence[FencePlace] = ()


_NO_FENCE: Final = LogFence(execution=FENCE_ID, first_position=0, entries=[], through=0, partition=0, tick=0, epoch=0)


def places_of(body: bytes | None, sequence: int) -> Sequence[FencePlace]:
    """The fences of a partition, oldest first, by its last one at this sequence; ``None`` stands for no fence."""
    fence = _decode(body)
    is_known = not fence.epoch or (fence.earlier and fence.earlier[-1].epoch == fence.epoch)
    return fence.earlier if is_known else [*fence.earlier, FencePlace(fence.epoch, sequence)]


def is_late(fences: Iterable[FencePlace], epoch: int, sequence: int) -> bool:
    """Whether a record of this epoch was stored after the fence of a later one."""
    return any(fence.epoch > epoch and fence.sequence < sequence for fence in fences)


def raised(body: bytes | None, sequence: int, partition: int, epoch: int, owner: str) -> bytes | bool:
    """The fence to store after the last one; or whether the owner has it, or needs none, as the first of all has no
    predecessor.
    """
    last = _decode(body)
    if last.epoch >= epoch or (body is None and epoch == 1):
        return last.epoch < epoch or (last.epoch, last.owner) == (epoch, owner)
    earlier = tuple(places_of(body, sequence))[-MOST_KEPT:]
    return codec.encode(replace(_NO_FENCE, partition=partition, epoch=epoch, owner=owner, earlier=earlier))


def stored_again(body: bytes, sequence: int, through: int) -> bytes:
    """The last fence, to be stored again before all up to ``through`` is removed. Of the fences that go, only the
    newest still tells which of the messages that stay are late.
    """
    places = list(places_of(body, sequence))
    gone = sum(place.sequence <= through for place in places)
    return codec.encode(replace(_decode(body), earlier=places[max(0, gone - 1) :]))


def _decode(body: bytes | None) -> LogFence:
    try:
        return _NO_FENCE if body is None else msgspec.json.decode(body, type=LogFence)
    except msgspec.DecodeError:
        return _NO_FENCE  # an unreadable fence keeps nobody out
