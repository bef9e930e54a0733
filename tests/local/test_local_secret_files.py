"""Secrets of a process in files, as container engines, Kubernetes and systemd hand them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.sealing.keys import new_key
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.sources.process_environment import (
    drop_bucket_variables,
    drop_engine_variables,
    inherited_environment,
)

NATS = {"HOME": "/home/ann", "NOETL_NATS_URL": "nats://localhost:4222"}


def test_a_secret_is_read_from_the_file_that_its_variable_names(tmp_path: Path) -> None:
    dsn, key, seed = "postgresql://ann:hidden@db/noetl", new_key(), "SU" + "A" * 56
    given = dict(NATS)
    for variable, value in [
        ("NOETL_POSTGRES_DSN", dsn),
        ("NOETL_SERVER_KEY", key),
        ("NOETL_CREDENTIAL_KEY", key),
        ("NOETL_NATS_NKEY", seed),
    ]:
        (tmp_path / variable).write_text(f"{value}\n")
        given[f"{variable}_FILE"] = str(tmp_path / variable)
    settings = Settings.from_environment(given)
    assert (settings.postgres_dsn, settings.server_keys, settings.nats_nkey) == (dsn, (key,), seed)
    assert (settings.credential_key, settings.credentials) == (key, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "names .*: No such file or directory"),
        (b"\n", "which is empty"),
        (b"x" * (64 * 1024 + 1), "which has more than 65536 bytes"),
        (b"\xff", "which is not UTF-8 text"),
        (b"not a seed", "NOETL_NATS_NKEY is not the seed"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "seed"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Settings.from_environment(NATS | {"NOETL_NATS_NKEY_FILE": str(file)})


def test_a_folder_or_a_pipe_is_no_secret(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="is not a file"):
            Settings.from_environment(NATS | {"NOETL_NATS_NKEY_FILE": str(path)})


def test_a_secret_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(new_key())
    given = {"NOETL_SERVER_KEY": new_key(), "NOETL_SERVER_KEY_FILE": str(tmp_path / "key")}
    with pytest.raises(UsageError, match="NOETL_SERVER_KEY and NOETL_SERVER_KEY_FILE are both set"):
        Settings.from_environment(NATS | given)


def test_tasks_do_not_learn_where_the_secrets_of_the_engine_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOETL_NATS_NKEY_FILE", "NOETL_POSTGRES_DSN_FILE", "REPORT_FILE"):
        monkeypatch.setenv(name, "/run/secrets/one")
    assert "REPORT_FILE" in inherited_environment()
    assert not {"NOETL_NATS_NKEY_FILE", "NOETL_POSTGRES_DSN_FILE"} & inherited_environment().keys()
    assert drop_engine_variables() == ["NOETL_POSTGRES_DSN_FILE"]  # what a worker should not have been given
    assert not {"NOETL_NATS_NKEY_FILE", "NOETL_POSTGRES_DSN_FILE"} & os.environ.keys()


@pytest.mark.parametrize("is_used", [False, True])
def test_a_worker_keeps_no_key_of_the_bucket_of_objects(monkeypatch: pytest.MonkeyPatch, is_used: bool) -> None:
    monkeypatch.delenv("NOETL_OBJECTS", raising=False)
    keys = {"AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"}
    for name in (*keys, *(["NOETL_OBJECTS"] if is_used else [])):
        monkeypatch.setenv(name, "s3://bucket")
    drop_bucket_variables()
    assert keys & os.environ.keys() == (set() if is_used else keys)
