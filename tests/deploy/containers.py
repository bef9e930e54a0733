"""Fixtures of the tests with containers. Where no engine can be had they are skipped, and say why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from container_engine import Engine, Images, NoEngine, build_images, some_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        with some_engine() as found:
            yield found
    except NoEngine as why:
        pytest.skip(f"NO CONTAINER WAS RUN: {why}")


@pytest.fixture(scope="session")
def images(engine: Engine) -> Images:
    try:
        return build_images(engine)
    except NoEngine as why:
        pytest.skip(f"NO IMAGE WAS BUILT: {why}")
