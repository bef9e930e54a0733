"""Questions to servers on behalf of one command, whose capability they show (PROTOCOL §7 *Capabilities*)."""

from __future__ import annotations

from noetl_stream.model import codec
from noetl_stream.model.messages import Question, ShownCommand, StepCommand
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.waiting import ask


class Questions:
    """What a run asks. It waits until the owner of its execution answers.

    Attributes:
        command: The command, as questions show it.
        worker: The name of this worker, for the audit.
    """

    def __init__(self, bus: Bus, clock: Clock, command: StepCommand, worker: str) -> None:
        self.command = ShownCommand.of(command)
        self.worker = worker
        self._bus = bus
        self._clock = clock
        self._pool = command.pool

    @property
    def execution_id(self) -> str:
        return self.command.execution_id

    async def ask(self, subject: str, question: Question) -> bytes:
        """The answer to ``question`` on ``subject``, which the pool is added to."""
        return await ask(self._bus, self._clock, f"{subject}.{self._pool}", codec.encode(question))
