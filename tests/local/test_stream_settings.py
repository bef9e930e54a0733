"""NOETL_STREAM_REPLICAS and NOETL_STREAM_PLACEMENT_TAGS."""

from __future__ import annotations

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.settings.servers import Spread
from noetl_stream.settings.sources.environment import Settings


def spread(**variables: str) -> Spread:
    return Settings.from_environment({f"NOETL_STREAM_{name}": value for name, value in variables.items()}).spread


def test_streams_have_one_copy_anywhere_unless_settings_say_more() -> None:
    assert spread() == Spread(1, ())
    assert spread(REPLICAS="3", PLACEMENT_TAGS="region:eu, disk:ssd") == Spread(3, ("region:eu", "disk:ssd"))


@pytest.mark.parametrize(("name", "value"), [("REPLICAS", "0"), ("REPLICAS", "6"), ("PLACEMENT_TAGS", "a b")])
def test_what_cannot_be_read_is_refused_and_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"NOETL_STREAM_{name}"):
        spread(**{name: value})
