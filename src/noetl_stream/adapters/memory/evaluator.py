"""Evaluates templates in this process, for simulations and tests."""

from __future__ import annotations

import asyncio

from noetl_stream.engine.choices import answer_json


class MemoryEvaluator:
    """Evaluates templates in this process, and counts the sets of questions."""

    def __init__(self) -> None:
        self.answered = 0

    async def evaluate(self, questions: bytes) -> bytes:
        """Evaluates templates. See :meth:`~noetl_stream.ports.evaluator.Evaluator.evaluate`."""
        await asyncio.sleep(0)
        self.answered += 1
        return answer_json(questions)

    async def close(self) -> None:
        """Closes the evaluator, which holds nothing."""
