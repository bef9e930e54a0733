import sys
from pathlib import Path

import pytest
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
