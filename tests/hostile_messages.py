"""Messages that no client and no worker of ours sends: well signed, and wrong anywhere inside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any, Final

from noetl_stream.model.events import (
    CancelRequested,
    ClientFact,
    CtxPatched,
    ExecutionRequested,
    PauseRequested,
    Rerun,
    ResumeRequested,
    RetryNowRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, Report, UnreadableCommand
from noetl_stream.sealing.signing import Signer
from noetl_testkit.keys import ACCESS_KEYS
from noetl_testkit.memory.broker import StagedEventLog

SIGNER: Final = Signer(ACCESS_KEYS, "request")
DEEP: Final[Any] = json.loads("[" * 300 + "]" * 300)
WIDE: Final = "".join(map(chr, Random(1).choices(range(0x4E00, 0x9FFF), k=3_000)))
"""Text that does not compress into an index row."""

EXTREMES: Final[Sequence[Any]] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, 10**40, 1e308, 0.1, "", "\0", "a\0b", "x" * 3_000, WIDE, "\ud800", "a b",
    "a.b", "*", ">", "../x", "{{ 1 / 0 }}", "{{ 'x' * 10 ** 9 }}", "\u202e", [], {}, [None], {"": None}, DEEP,
    {WIDE: 1}, "quarantined", "execution.finished",
)  # fmt: skip


def requests_to(execution_id: str, digest: str) -> list[ClientFact]:
    """A request of each kind."""
    return [
        ExecutionRequested("ask", digest, "tests/hostile"),
        ExecutionRequested("ask", digest, rerun=Rerun(execution_id, "only")),
        CtxPatched("ask", patch={"a": 1}),
        SignalReceived("ask", signal="go", payload=[1]),
        TokenInjected("ask", step="only", args={"n": 1}),
        PauseRequested("ask"),
        ResumeRequested("ask"),
        RetryNowRequested("ask"),
        CancelRequested("ask", reason="enough"),
    ]


def hostile(dice: Random, value: Any) -> Any:
    """``value`` with one to three places of it changed, taken away or added."""
    value = deepcopy(value)
    for _ in range(dice.randint(1, 3)):
        places = [(holder, key) for holder in _holders(value) for key in _keys(holder)]
        if not places:
            break
        holder, key = dice.choice(places)
        match dice.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[dice.choice(["unknown", WIDE, "", "type"])] = deepcopy(dice.choice(EXTREMES))
            case 2:
                other, its = dice.choice(places)
                holder[key] = deepcopy(other[its])
            case _:
                holder[key] = deepcopy(dice.choice(EXTREMES))
    return value


class HostileMessages:
    """Makes requests and reports that are well signed, and wrong anywhere inside.

    Args:
        begin: Facts of the requests to an execution.
    """

    def __init__(self, dice: Random, signer: Signer, begin: Callable[[str], Sequence[ClientFact]]) -> None:
        self._dice = dice
        self._signer = signer
        self._begin = begin

    def request(self, execution_id: str, request_id: str) -> bytes:
        """A request to this execution."""
        genuine = codec.decode_json(codec.encode(self._dice.choice(self._begin(execution_id))))
        fact = self._mutated({**genuine, "request_id": request_id})
        signature = self._signer.sign(execution_id, request_id, body=fact)
        head = {"type": "request", "execution_id": execution_id, "request_id": request_id, "signature": signature}
        return self._damaged(_json(head)[:-1] + b',"fact":' + fact + b"}")

    def like(self, genuine: bytes) -> bytes:
        """A message like this one, which is JSON."""
        return self._damaged(self._mutated(json.loads(genuine)))

    def _mutated(self, value: Any) -> bytes:
        while True:
            with contextlib.suppress(RecursionError):  # too deep even for Python to write
                return _json(hostile(self._dice, value))

    def _damaged(self, body: bytes) -> bytes:
        """``body``, one in ten of them with up to three wrong bytes."""
        if self._dice.random() >= 0.1:
            return body
        at = self._dice.randrange(len(body))
        return body[:at] + self._dice.randbytes(self._dice.randint(0, 3)) + body[at + 1 :]


class Attack:
    """Writes hostile messages to a log, about what it holds. ``begin``: facts of the requests to an execution."""

    def __init__(self, dice: Random, log: StagedEventLog, begin: Callable[[str], Sequence[ClientFact]]) -> None:
        self._dice = dice
        self._log = log
        self._messages = HostileMessages(dice, SIGNER, begin)
        self._sent = 0

    async def send(self, count: int, execution_ids: Sequence[str]) -> None:
        """Messages about these executions, and about some that do not exist."""
        genuine = [one.message for one in self._log.stored if not one.message_id.startswith(("hostile", "stray"))]
        reports = [one for one in genuine if b'"type":"report"' in one.body and one.execution_id in execution_ids]
        for _ in range(count):
            self._sent += 1
            execution_id = self._dice.choice([*execution_ids, f"hostile-{self._sent}"])
            if reports and self._dice.random() < 0.6:
                report = self._dice.choice(reports)
                said = report.body if self._dice.random() < 0.9 else _unreadable(report.body)
                await self._publish(report.execution_id, self._messages.like(said))
            else:
                await self._publish(execution_id, self._messages.request(execution_id, f"hostile-{self._sent}"))

    async def _publish(self, execution_id: str, body: bytes) -> None:
        message_id = f"hostile-{self._sent}"
        match self._dice.randrange(8):
            case 0:
                await self._log.publish_again(execution_id, message_id, body)
            case 1:
                self._log.store_stray(self._dice.randrange(32), execution_id, body)
            case 2 | 3 | 4 if _is_by_worker(body):
                await self._log.publish_report(execution_id, "default", message_id, body)
            case _ if _is_by_worker(body):
                self._log.store_stray(partition_of(execution_id), execution_id, body)
            case _:
                await self._log.publish_request(execution_id, message_id, body)


def _is_by_worker(body: bytes) -> bool:
    return b'"type":"report"' in body or b'"type":"unreadable"' in body


def _unreadable(report: bytes) -> bytes:
    """That the command of a report cannot be read."""
    command = codec.decode_reported(report)
    assert isinstance(command, Report)
    return codec.encode(
        UnreadableCommand(command.execution_id, command.command_id, "cannot be read", b"{", format=FORMAT)
    )


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _holders(inner)


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
