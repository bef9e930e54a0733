"""The environment's settings and their documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.sealing.age import new_identity, recipient_of
from noetl_stream.sealing.file_keys import public_key_of
from noetl_stream.sealing.keys import new_key
from noetl_stream.settings.children import (
    CONSTRAINTS_VARIABLE,
    DEFAULT_INDEX,
    DEFAULT_MAX_BYTES,
    INDEX_VARIABLE,
    INTERPRETERS_VARIABLE,
    MAX_BYTES_VARIABLE,
    SDISTS_VARIABLE,
)
from noetl_stream.settings.children import VARIABLES as PYTHON_VARIABLES
from noetl_stream.settings.sources.environment import ENGINE_VARIABLES, Settings
from noetl_stream.settings.sources.process_environment import identity_environment, inherited_environment

HOME = {"HOME": "/home/ann"}
OWN_SERVERS = {"NOETL_NATS_URL": "nats://localhost:4222", "NOETL_POSTGRES_DSN": "postgresql://ann:hidden@localhost/x"}
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_an_empty_environment_means_the_embedded_stack_with_all_defaults() -> None:
    settings = Settings.from_environment(HOME)
    assert settings == Settings(home_folder=Path("/home/ann/.noetl"))
    assert settings.nats_url is None and settings.postgres_dsn is None
    assert settings.home == Path("/home/ann/.noetl")


def test_every_variable_is_read() -> None:
    settings = Settings.from_environment(
        OWN_SERVERS
        | {
            "NOETL_HOME": "/srv/noetl",
            "NOETL_POOL": "gpu",
            "NOETL_SLOTS": "8",
            "NOETL_LOG_LEVEL": "DEBUG",
            "NOETL_LOG_FORMAT": "json",
            "NOETL_CREDENTIAL_Sales_DB": "postgresql://sales",
            "NO_COLOR": "1",
        }
    )
    assert settings == Settings(
        nats_url="nats://localhost:4222",
        postgres_dsn="postgresql://ann:hidden@localhost/x",
        home_folder=Path("/srv/noetl"),
        pool="gpu",
        slots=8,
        log_level="debug",
        log_format="json",
        credentials={"sales_db": "postgresql://sales"},
        no_color=True,
    )


def test_a_variable_set_to_nothing_is_not_set() -> None:
    names = ["NOETL_NATS_URL", "NOETL_POSTGRES_DSN", "NOETL_HOME", "NOETL_POOL", "NOETL_SLOTS", "NO_COLOR"]
    assert Settings.from_environment(HOME | dict.fromkeys(names, "")) == Settings.from_environment(HOME)


def test_a_home_may_begin_with_a_tilde_or_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Settings.from_environment(HOME | {"NOETL_HOME": "~/x/y"}).home == Path("/home/ann/x/y")
    assert Settings.from_environment(HOME | {"NOETL_HOME": "~"}).home == Path("/home/ann")
    monkeypatch.chdir(tmp_path)
    assert Settings.from_environment({"NOETL_HOME": "here"}).home == tmp_path / "here"


def test_a_missing_home_is_an_error_only_where_it_is_needed() -> None:
    settings = Settings.from_environment(OWN_SERVERS)
    assert settings.nats_url == "nats://localhost:4222"
    with pytest.raises(UsageError, match="neither NOETL_HOME nor HOME is set"):
        _ = settings.home


def test_a_postgres_without_its_nats_is_refused_by_name() -> None:
    given = {"NOETL_POSTGRES_DSN": OWN_SERVERS["NOETL_POSTGRES_DSN"]}
    with pytest.raises(UsageError, match="NOETL_POSTGRES_DSN is set, but NOETL_NATS_URL is not"):
        Settings.from_environment(HOME | given)


def test_a_nats_alone_is_enough_for_a_worker() -> None:
    given = {"NOETL_NATS_URL": OWN_SERVERS["NOETL_NATS_URL"]}
    assert Settings.from_environment(HOME | given).postgres_dsn is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NOETL_NATS_URL", "localhost:4222"),
        ("NOETL_NATS_URL", "nats://one:4222,http://two:4222"),
        ("NOETL_POSTGRES_DSN", "host=localhost password=hidden"),
        ("NOETL_HOME", "~bob/noetl"),
        ("NOETL_POOL", "a.b"),
        ("NOETL_POOL", "x" * 65),
        ("NOETL_SLOTS", "0"),
        ("NOETL_SLOTS", "10001"),
        ("NOETL_SLOTS", "-1"),
        ("NOETL_SLOTS", "many"),
        ("NOETL_SLOTS", "²"),
        ("NOETL_LOG_LEVEL", "loud"),
        ("NOETL_LOG_FORMAT", "xml"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_its_variable_but_no_secrets(variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=variable) as refused:
        Settings.from_environment(HOME | OWN_SERVERS | {variable: value})
    assert "hidden" not in str(refused.value)


def test_two_spellings_of_one_credential_are_refused_unless_they_say_the_same() -> None:
    both = {"NOETL_CREDENTIAL_SALES": "a", "NOETL_CREDENTIAL_sales": "a"}
    assert Settings.from_environment(HOME | both).credentials == {"sales": "a"}
    with pytest.raises(UsageError, match="sets credential 'sales' again"):
        Settings.from_environment(HOME | both | {"NOETL_CREDENTIAL_sales": "b"})


def test_addresses_and_credentials_do_not_show_when_settings_are_printed() -> None:
    settings = Settings.from_environment(HOME | OWN_SERVERS | {"NOETL_CREDENTIAL_A": "postgresql://hidden"})
    assert "hidden" not in repr(settings)


def test_the_documentation_lists_exactly_the_settings_with_their_defaults() -> None:
    table = DOCUMENTATION.read_text(encoding="utf-8").split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| [^|]+ \|$", table, flags=re.MULTILINE)
    documented = {variable: default.strip().strip("`") for variable, default in rows}
    of_environments = {name: documented.pop(name) for name in PYTHON_VARIABLES[1:]}
    assert documented == {one.name: one.default for one in Settings.variables().values()}
    assert of_environments == {
        MAX_BYTES_VARIABLE: str(DEFAULT_MAX_BYTES),
        INDEX_VARIABLE: DEFAULT_INDEX,
        CONSTRAINTS_VARIABLE: "none",
        SDISTS_VARIABLE: "off",
        INTERPRETERS_VARIABLE: "the worker's own, and `python3.11` and newer in its `PATH",
    }


def test_a_default_in_numbers_is_the_default_in_fact() -> None:
    numbers = {name: one.default for name, one in Settings.variables().items() if one.default.isdigit()}
    settings = Settings.from_environment(HOME)
    assert numbers and numbers == {name: str(getattr(settings, name)) for name in numbers}


def test_credential_keys_are_read_and_are_not_credentials() -> None:
    keys = [new_key() for _ in range(3)]
    given = {"NOETL_CREDENTIAL_KEY": keys[0], "NOETL_CREDENTIAL_OLD_KEYS": f"{keys[1]}, {keys[2]}"}
    settings = Settings.from_environment(HOME | given)
    assert (settings.credential_key, settings.credential_old_keys) == (keys[0], (keys[1], keys[2]))
    assert settings.credentials == {}
    assert keys[0] not in repr(settings) and keys[1] not in repr(settings)


@pytest.mark.parametrize("variable", ["NOETL_SERVER_KEY", "NOETL_ACCESS_KEY"])
def test_earlier_keys_follow_the_current_one_after_a_comma(variable: str) -> None:
    keys = (new_key(), new_key())
    settings = Settings.from_environment(HOME | {variable: ", ".join(keys)})
    assert keys in (settings.server_keys, settings.access_keys)
    assert not any(key in repr(settings) for key in keys)
    with pytest.raises(UsageError, match=variable) as refused:
        Settings.from_environment(HOME | {variable: f"{keys[0]},hidden"})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("prefix", ["NOETL_BACKUP_", "NOETL_ARCHIVE_"])
def test_keys_of_backups_and_archives_are_read_and_private_ones_not_shown(prefix: str, tmp_path: Path) -> None:
    signing, identities = new_key(), [new_identity(), new_identity()]
    (tmp_path / "identities").write_text(f"# created: today\n{identities[0]}\n\n# public key: …\n{identities[1]}\n")
    given = {
        f"{prefix}SIGNING_KEY": signing,
        f"{prefix}TRUSTED_KEYS": f"{public_key_of(signing)}, {public_key_of(new_key())}",
        f"{prefix}RECIPIENTS": ",".join(map(recipient_of, identities)),
        f"{prefix}IDENTITY_FILE": str(tmp_path / "identities"),
    }
    settings = Settings.from_environment(HOME | given)
    found = settings.backup_keys if prefix == "NOETL_BACKUP_" else settings.archive_keys
    assert found.public_key == found.trusted_keys[0]
    assert (len(found.trusted_keys), found.identities) == (2, tuple(identities))
    assert list(found.recipients) == [*map(recipient_of, identities)]
    assert not any(private in f"{settings!r} {found!r}" for private in (signing, *identities))


@pytest.mark.parametrize("name", ["SIGNING_KEY", "TRUSTED_KEYS", "RECIPIENTS", "IDENTITY"])
def test_an_invalid_key_of_backups_is_named_and_not_shown(name: str) -> None:
    for value in ("hidden", new_identity()[:-1] + "2", new_key()[:-4]):
        with pytest.raises(UsageError, match=rf"^NOETL_BACKUP_{name} is ") as refused:
            Settings.from_environment(HOME | {f"NOETL_BACKUP_{name}": value})
        assert value not in f"{refused.value.message} {refused.value.hint}"


def test_a_nats_user_is_given_by_its_seed() -> None:
    seed = "SUAEL6RG2SGHKZ54XVLM5WTIR4Q2ZVXQ6FHZ2VXVVS4FSVYUVJ3ZMBZ5ZQ"
    settings = Settings.from_environment(HOME | {"NOETL_NATS_NKEY": seed})
    assert settings.nats_nkey == seed and seed not in repr(settings)
    with pytest.raises(UsageError, match="NOETL_NATS_NKEY is not the seed of a NATS user") as refused:
        Settings.from_environment(HOME | {"NOETL_NATS_NKEY": "SAhidden"})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"NOETL_CREDENTIAL_KEY": "hidden"},
        {"NOETL_CREDENTIAL_KEY": new_key(), "NOETL_CREDENTIAL_OLD_KEYS": "hidden"},
        {"NOETL_CREDENTIAL_OLD_KEYS": new_key()},
    ],
)
def test_invalid_keys_are_rejected_without_being_shown(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"NOETL_CREDENTIAL_(OLD_)?KEY") as refused:
        Settings.from_environment(HOME | given)
    assert not any(value in str(refused.value) for value in given.values())


def test_a_child_process_gets_the_identity_and_keys_it_is_given_and_none_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ENGINE_VARIABLES:
        monkeypatch.setenv(variable, "of this process")
    monkeypatch.setenv("LANG", "C")
    inherited = inherited_environment()
    assert (inherited["LANG"], ENGINE_VARIABLES & inherited.keys()) == ("C", set())
    worker = identity_environment(nats_url="nats://here", credentials={"db": "a"})
    assert worker["NOETL_CREDENTIAL_DB"] == "a"
    assert {name: worker[name] for name in ENGINE_VARIABLES & worker.keys()} == {"NOETL_NATS_URL": "nats://here"}
    server = identity_environment(
        nats_url="nats://here", credential_keys=("one", "two", "three"), server_keys=("four",)
    )
    assert (server["NOETL_CREDENTIAL_KEY"], server["NOETL_CREDENTIAL_OLD_KEYS"]) == ("one", "two,three")
    assert server["NOETL_SERVER_KEY"] == "four"
    assert (
        identity_environment(nats_url="nats://here", archive_signing_key="five")["NOETL_ARCHIVE_SIGNING_KEY"] == "five"
    )
