import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_engine import Engine, Images, NoEngine, build_images, some_engine
from helm import EXAMPLES, PRODUCTION, Rendered, render

# The load and the ledger of rolling upgrades serve here, too, and what follows pages of the documents.
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("releases", "journeys")]


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest) -> tuple[Rendered, ...]:
    """The objects of an example."""
    return render(request.param)


@pytest.fixture
def production() -> tuple[Rendered, ...]:
    return render(PRODUCTION)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A container engine. Where none can be had, tests with containers are skipped, and say why."""
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
