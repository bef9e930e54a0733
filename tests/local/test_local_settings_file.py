"""The settings file of a home: who reads it, and what goes before what."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl_stream.cli.base.process import settings_for
from noetl_stream.cli.base.session import Target, gateway_of
from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.sealing.keys import new_key
from noetl_stream.settings.sources.process_environment import inherited_environment
from noetl_stream.settings.sources.variables import parse_settings, settings_text

NATS, POSTGRES, KEY = "nats://of.the.file:4222", "postgresql://ann:hidden@of.the.file/x", new_key()
TEXT = f"""\
# A comment
NOETL_NATS_URL={NATS}
NOETL_POSTGRES_DSN='{POSTGRES}'

export NOETL_SERVER_KEY="{KEY}"
NOETL_LOG_LEVEL=debug
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The default home, with a settings file; the environment is as before when the test ends."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("NOETL_")]:
        del os.environ[name]
    os.environ["HOME"] = str(tmp_path)
    os.environ.pop("XDG_CONFIG_HOME", None)
    write(tmp_path / ".noetl" / "settings.env", TEXT)
    yield tmp_path / ".noetl"
    os.environ.clear()
    os.environ.update(before)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_a_command_reads_the_file_of_its_home(home: Path) -> None:
    for _ in range(2):  # a command may ask twice
        found = settings_for(None)
        assert (found.nats_url, found.postgres_dsn, found.server_keys) == (NATS, POSTGRES, (KEY,))
        assert (found.log_level, found.home, found.is_of_home) == ("debug", home, True)


def test_children_get_the_settings_of_the_file_but_none_of_the_engine() -> None:
    settings_for(None)
    children = inherited_environment()
    assert children["NOETL_LOG_LEVEL"] == "debug"
    assert not any("of.the.file" in value or value == KEY for value in children.values())


def test_a_worker_takes_only_its_address_and_its_identity() -> None:
    found = settings_for(None, worker=True)
    assert (found.nats_url, found.postgres_dsn, found.server_keys) == (NATS, None, ())
    assert "NOETL_POSTGRES_DSN" not in os.environ and "NOETL_SERVER_KEY" not in os.environ


def test_where_the_environment_names_a_nats_no_file_is_read() -> None:
    os.environ["NOETL_NATS_URL"] = "nats://here:4222"
    found = settings_for(None)
    assert (found.nats_url, found.server_keys, found.log_level) == ("nats://here:4222", (), "info")
    assert found.selects_stack


def test_a_variable_of_the_environment_goes_before_the_file_but_keys_belong_to_the_addresses() -> None:
    os.environ |= {"NOETL_LOG_LEVEL": "error", "NOETL_SERVER_KEY": new_key(), "NOETL_POSTGRES_DSN_FILE": "/nowhere"}
    found = settings_for(None)
    assert (found.log_level, found.server_keys, found.postgres_dsn) == ("error", (KEY,), POSTGRES)


def test_a_home_that_is_asked_for_goes_before_the_servers_of_the_environment(tmp_path: Path) -> None:
    os.environ |= {"NOETL_NATS_URL": "nats://here:4222", "NOETL_POSTGRES_READ_DSN": "postgresql://here/x"}
    write(tmp_path / "other" / "settings.env", TEXT.replace("of.the.file", "other"))
    found = settings_for(tmp_path / "other")
    assert (found.nats_url, found.home) == ("nats://other:4222", tmp_path / "other")
    assert found.postgres_read_dsn is None

    embedded = settings_for(tmp_path / "third")
    assert (embedded.nats_url, embedded.postgres_dsn, embedded.home) == (None, None, tmp_path / "third")


def test_a_file_can_be_named(tmp_path: Path) -> None:
    os.environ["NOETL_SETTINGS"] = str(write(tmp_path / "named.env", TEXT.replace("of.the.file", "named")))
    found = settings_for(None)
    assert (found.nats_url, found.is_of_home, found.selects_stack) == ("nats://named:4222", False, True)


def test_the_current_context_goes_before_the_file_of_the_default_home(home: Path) -> None:
    contexts = home.parent / ".config" / "noetl-stream" / "contexts.yaml"
    contexts.parent.mkdir(parents=True)
    contexts.write_text("current: far\ncontexts: {far: {url: 'https://far.example', token: x}}\n")
    found = gateway_of(Target(), settings_for(None))
    assert found is not None and found.url == "https://far.example"
    assert gateway_of(Target(context="direct"), settings_for(None)) is None


def test_a_file_that_others_may_open_is_refused(home: Path) -> None:
    (home / "settings.env").chmod(0o640)
    with pytest.raises(LocalStackError, match="other users may open"):
        settings_for(None)


def test_a_file_that_is_named_and_missing_is_an_error() -> None:
    os.environ["NOETL_SETTINGS"] = "/nowhere/settings.env"
    with pytest.raises(UsageError, match=r"NOETL_SETTINGS names /nowhere/settings\.env, which does not exist"):
        settings_for(None)


@pytest.mark.parametrize("line", ["NOETL_SLOTS 8", "hidden", "A-B=hidden", "=hidden"])
def test_a_line_that_is_no_setting_is_named_and_not_shown(line: str) -> None:
    with pytest.raises(UsageError, match=r"f, line 2: not a setting") as refused:
        parse_settings(f"# first\n{line}\n", "f")
    assert "hidden" not in str(refused.value)


def test_writing_keeps_every_other_line_and_writes_nothing_for_an_empty_value() -> None:
    text = settings_text("# kept\nA=1\nB=2\n\nC=3\n", {"A": "9", "B": "", "D": "4", "E": ""})
    assert text == "# kept\nA=9\n\nC=3\nD=4\n"
    assert parse_settings(text, "f") == {"A": "9", "C": "3", "D": "4"}
