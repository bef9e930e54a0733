"""Long results are encoded and decoded beside the loop, piece by piece: other commands go on meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from worker_stage import Stage

from noetl_stream.model.json import codec, pieces
from noetl_stream.model.outcome import Outcome, Payload, Reference, StepValue
from noetl_stream.tools.contract import ToolCall

LONG = [{"n": n, "text": "some text"} for n in range(20_000)]
RETURNS = """
- step: start
  tool: [{name: fetch, kind: puppet, spec: {result: {schema: {type: array}}}}]
"""
READS = """
- step: start
  tool: [{name: read, kind: puppet, value: "{{ steps.other[2].n }}"}]
  next: {arcs: [{step: other}]}
- step: other
  tool: {kind: noop}
"""


@pytest.fixture
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the JSON is that was encoded or decoded in the thread of the loop."""
    found: list[int] = []
    encode, decode, loop = codec.encode, codec.decode_json, threading.get_ident()

    def encoding(value: object) -> bytes:
        data = encode(value)
        if threading.get_ident() == loop:
            found.append(len(data))
        return data

    def decoding(data: Any) -> Any:
        if threading.get_ident() == loop:
            found.append(len(data))
        return decode(data)

    monkeypatch.setattr(codec, "encode", encoding)
    monkeypatch.setattr(codec, "decode_json", decoding)
    return found


async def test_a_long_result_is_encoded_and_validated_in_another_thread(stage: Stage, on_the_loop: list[int]) -> None:
    async def returns(_call: ToolCall) -> Any:
        return LONG

    stage.puppet.acts["fetch"] = returns
    await stage.start()
    await stage.issue(stage.command(stage.plan(RETURNS)))
    await stage.soon(lambda: stage.names[-1:] == ["step.done"])
    assert max(on_the_loop) < pieces.LONG_BYTES


async def test_a_long_result_is_decoded_in_another_thread(stage: Stage, on_the_loop: list[int]) -> None:
    data = codec.encode(LONG)
    await stage.broker.blobs.put("some/key", data)
    other = StepValue(Outcome("ok", Payload(reference=Reference("nats", "some/key", len(data)))))
    await stage.start()
    on_the_loop.clear()
    await stage.issue(stage.command(stage.plan(READS), steps={"other": other}))
    await stage.soon(lambda: stage.names[-1:] == ["step.done"])
    assert stage.puppet.calls[0].inputs["value"] == 2
    assert max(on_the_loop) < pieces.LONG_BYTES
