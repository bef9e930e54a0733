from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from keychain_stage import Vault
from worker_stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A broker in memory, and a clock and a tool that the test controls; the test starts workers."""
    made = Stage()
    yield made
    await made.close()


@pytest.fixture
async def vault(stage: Stage, tmp_path: Path) -> AsyncIterator[Vault]:
    made = Vault(stage)
    await made.open()
    await made.start(keychain_folders=[tmp_path])
    yield made
    await stage.tools["http"].close()
