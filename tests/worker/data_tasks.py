"""A step that writes a file and reads it, for tests of the data of attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

from worker_stage import Stage

from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Outcome
from noetl_stream.sealing.data_references import PART_BYTES
from noetl_stream.tools.contract import ToolCall

WRITE_THEN_READ = """
- step: start
  tool:
  - {name: write, kind: puppet, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
  - {name: read, kind: puppet, file: "{{ write.file }}", size: "{{ write.file.size }}"}
"""
LONG = bytes(range(256)) * (5 * PART_BYTES // 512)  # two parts and a half


async def pieces(data: bytes, *, then: Exception | None = None) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 1_000_000):
        yield data[at : at + 1_000_000]
    if then is not None:
        raise then


def writing(data: bytes) -> Any:
    async def write(call: ToolCall) -> dict[str, Any]:
        return {"file": await call.data.save(pieces(data), name="all.bin", media_type="application/octet-stream")}

    return write


async def read(call: ToolCall) -> dict[str, Any]:
    reference = call.data.reference(call.inputs["file"])
    if reference is None:
        return {"opened": None}
    digest, longest = sha256(), 0
    async for part in call.data.read(reference):
        digest.update(part)
        longest = max(longest, len(part))
    return {"opened": reference.name, "checksum": f"sha256:{digest.hexdigest()}", "longest": longest}


def value(outcome: Outcome) -> Any:
    return codec.decode_json(bytes(outcome.result.value))


async def ran(stage: Stage, write: Any, **command: Any) -> dict[str, Outcome]:
    """The outcomes of a step that writes a file and reads it, by task."""
    stage.puppet.acts = {"write": write, "read": read}
    return await outcomes(stage, **command)


async def outcomes(stage: Stage, **command: Any) -> dict[str, Outcome]:
    await stage.start()
    await stage.issue(stage.command(stage.plan(WRITE_THEN_READ), **command))
    await stage.soon(lambda: not {"step.done", "step.failed"}.isdisjoint(stage.names))
    return {fact.task: fact.outcome for fact in stage.facts if isinstance(fact, TaskProcessed)}
