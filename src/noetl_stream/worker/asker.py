"""Questions to servers on behalf of one command, with its capability (PROTOCOL §7 *Capabilities*)."""

from __future__ import annotations

from noetl_stream.model.json import codec
from noetl_stream.model.messages import ShownCommand, StepCommand, WorkerQuestion
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol.object_addresses import AddressQuestion
from noetl_stream.worker.waiting import ask


class Asker:
    """Asks the questions of one run, each repeatedly until the owner of its execution answers.

    Attributes:
        worker: The name of this worker, for the audit.
        digest: The playbook's digest. Answers for one playbook do not apply to another, whose grants may differ.
    """

    def __init__(self, bus: Bus, clock: Clock, command: StepCommand, worker: str) -> None:
        self._command = command
        self.worker = worker
        self.digest = command.digest
        self._bus = bus
        self._clock = clock

    @property
    def execution_id(self) -> str:
        return self._command.execution_id

    @property
    def command(self) -> ShownCommand:
        """The command as it is shown to servers."""
        return ShownCommand.from_command(self._command)

    async def ask(self, subject: str, question: WorkerQuestion | AddressQuestion) -> bytes:
        """Returns the answer to ``question`` on ``subject``, to which the pool is added."""
        return await ask(self._bus, self._clock, f"{subject}.{self._command.pool}", codec.encode(question))
