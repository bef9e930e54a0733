"""Secrets are prepared and searched for beside the loop: a long one, or a large result, takes seconds."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from keychain_stage import READS, Vault, result_of
from worker_stage import Act

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.secrets.credential import HiddenText
from noetl_stream.tools.contract import ToolCall, ToolFailure

SECRET = "s3cret-value"
LONG = "-" * 10_000


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads in which a secret was prepared, or searched for in a long text."""
    found: set[int] = set()
    prepare, search = HiddenText.__init__, HiddenText.may_be_in

    def preparing(self: HiddenText, secret: str, **options: Any) -> None:
        found.add(threading.get_ident())
        prepare(self, secret, **options)

    def searching(self: HiddenText, text: str) -> bool:
        if len(text) >= len(LONG):
            found.add(threading.get_ident())
        return search(self, text)

    monkeypatch.setattr(HiddenText, "__init__", preparing)
    monkeypatch.setattr(HiddenText, "may_be_in", searching)
    return found


async def returns(_call: ToolCall) -> str:
    return LONG + SECRET


async def fails(_call: ToolCall) -> None:
    raise ToolFailure(ErrorInfo("internal", "it failed"), result=LONG + SECRET)


@pytest.mark.parametrize("act", [returns, fails])
async def test_a_worker_hides_what_a_task_says_in_another_thread(vault: Vault, threads: set[int], act: Act) -> None:
    vault.stage.puppet.acts["read"] = act
    await vault.keeper.put("entry", SECRET, "ann")
    [processed] = await vault.run(READS % "credential")
    assert result_of(processed) == f"{LONG}***"
    assert threads and threading.get_ident() not in threads


async def test_a_gateway_hides_what_it_shows_in_another_thread(vault: Vault, threads: set[int]) -> None:
    await vault.keeper.put("entry", SECRET, "ann")
    await vault.run(READS % "credential")
    threads.clear()
    assert await vault.shown(LONG + SECRET) == f"{LONG}***"
    assert threads and threading.get_ident() not in threads
