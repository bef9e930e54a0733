"""One event loop for all tests of the page in a worker, so that they share what is slow to start: a browser."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "gateway")]

from page_browser import BROWSERS  # noqa: E402
from page_stage import Shown, something_to_show  # noqa: E402


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def browsers() -> AsyncIterator[None]:
    """The tests' browsers are shared."""
    async with BROWSERS.shared():
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shown() -> AsyncIterator[Shown]:
    """Something of everything, for tests that only look at it."""
    async with something_to_show() as made:
        yield made
