"""NOETL_STREAM_REPLICAS, NOETL_STREAM_PLACEMENT_TAGS, NOETL_NATS_SYNC_INTERVAL and NOETL_NATS_MONITOR."""

from __future__ import annotations

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.settings.servers import NatsSync, Spread
from noetl_stream.settings.sources.environment import Settings


def spread(**variables: str) -> Spread:
    return Settings.from_environment({f"NOETL_STREAM_{name}": value for name, value in variables.items()}).spread


def test_streams_have_one_copy_anywhere_unless_settings_say_more() -> None:
    assert spread() == Spread(1, ())
    assert spread(REPLICAS="3", PLACEMENT_TAGS="region:eu, disk:ssd") == Spread(3, ("region:eu", "disk:ssd"))


@pytest.mark.parametrize(("name", "value"), [("REPLICAS", "0"), ("REPLICAS", "6"), ("PLACEMENT_TAGS", "a b")])
def test_an_invalid_value_is_refused_with_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"NOETL_STREAM_{name}"):
        spread(**{name: value})


def sync(**variables: str) -> NatsSync:
    return Settings.from_environment({f"NOETL_NATS_{name}": value for name, value in variables.items()}).nats_sync


def test_the_way_nats_writes_to_disk_is_set_or_read_from_its_monitors() -> None:
    monitors = sync(MONITOR="http://n1:8222/, https://n2:8222").monitors

    assert sync() == NatsSync(None, ())
    assert [sync(SYNC_INTERVAL=one).interval_s for one in ("always", "10s", "2m")] == [0.0, 10.0, 120.0]
    assert monitors == ("http://n1:8222", "https://n2:8222")


@pytest.mark.parametrize(
    ("name", "value"), [("SYNC_INTERVAL", "0s"), ("SYNC_INTERVAL", "often"), ("MONITOR", "n1:8222")]
)
def test_an_invalid_interval_or_monitor_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"NOETL_NATS_{name}"):
        sync(**{name: value})
