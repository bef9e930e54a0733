"""The evaluation of templates, and of workloads by their schemas, outside the loop (PROTOCOL §2 *Template work*)."""

from __future__ import annotations

from typing import Protocol


class Evaluator(Protocol):
    async def evaluate(self, questions: bytes, namespace: str = "") -> bytes:
        """The answers to these questions, both as JSON (:mod:`noetl_stream.engine.choices`).

        Args:
            namespace: Who asks: no namespace keeps all others waiting.

        Raises:
            EvaluationEnded: the work took too long or too much memory.
            Unreachable: it could not be begun.
        """

    async def close(self) -> None:
        """Ends all work under way."""
