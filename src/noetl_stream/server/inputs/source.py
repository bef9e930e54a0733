"""A kind of input of executions: its source, its fold, and the dead letter of an input that cannot be folded."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar, Generic, TypeVar

from noetl_stream.errors import JournalConflict, PayloadRefused, RequestAnswered
from noetl_stream.model.ids import partition_of
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import Fold

log = logging.getLogger(__name__)

T = TypeVar("T")


class InputSource(ABC, Generic[T]):
    """The inputs of one kind.

    Attributes:
        origin: The label of the kind in the metric of folded inputs; ``""`` if they are not counted.
    """

    origin: ClassVar[str] = ""

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        self._parts = parts
        self._committer = committer

    @abstractmethod
    async def take(self) -> Sequence[T]:
        """Returns the inputs that one turn of the loop folds."""

    @abstractmethod
    async def fold(self, inputs: Sequence[T]) -> Sequence[T]:
        """Folds inputs in one tick and commits it; returns the inputs left to a later tick."""

    @abstractmethod
    async def refuse(self, fold: Fold, one: T, reason: str) -> None:
        """Adds the dead letter of an input that cannot be folded, if it has one, to a fold."""

    def restore(self, inputs: Sequence[T]) -> None:
        """Makes :meth:`take` return these inputs again, if it would not do so anyway."""

    @abstractmethod
    def execution_of(self, one: T) -> str:
        """Returns the id of the execution or aggregate that an input is for."""

    def partition_of(self, one: T) -> int:
        """Returns the partition whose cursor an input moves."""
        return partition_of(self.execution_of(one))

    def is_misdirected(self, one: T) -> bool:
        """Returns whether an input came to another partition than its execution's, which is then not suspect."""
        return self.partition_of(one) != partition_of(self.execution_of(one))

    async def commit(self, fold: Fold, partitions: Collection[int] = ()) -> None:
        """Commits a fold; fences ``partitions`` in addition to those of its executions.

        Raises:
            PayloadRefused, RequestAnswered: Postgres refuses the tick for its data.
            JournalConflict: the tick cannot be committed, and no input is to blame.
        """
        fold.refuse_oversized()
        try:
            await self._committer.commit(fold.tick, partitions)
        except (PayloadRefused, RequestAnswered) as error:
            log.warning("a tick of %d executions is refused: %s", len(fold.tick.touched), error)
            raise
        except JournalConflict as error:
            executions = ", ".join(fold.tick.touched)
            log.error("stopping: cannot commit a tick of executions %s: %s", executions, error)
            raise
