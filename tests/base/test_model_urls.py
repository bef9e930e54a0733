"""URLs in messages: nothing of a password or a token, however it is written."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.postgres.connections.database import shown_address
from noetl_stream.cli.base.session import check_url
from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import redact_urls, strip_logins
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.tools import check_proxy
from noetl_stream.tools.http.address import shown

SECRETS = ["s3cret", "s3/cret", "s3?cret", "s3#cret", "s3@cret", "s3:cret", "12/s3cret", "s3cret\u2100"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
        ("nats://user:secret@host:1", "nats://user:***@host:1"),
        ("nats://token@host:1", "nats://***@host:1"),
        ("nats://a:b@x:1,nats://c:d@y:2", "nats://a:***@x:1,nats://c:***@y:2"),
        ("nats://a:b@x:1,c:d@y:2", "nats://a:***@y:2"),
        ("https://host/path?key=1#part", "https://host/path"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, said: str) -> None:
    assert redact_urls(url) == said


@pytest.mark.parametrize("secret", SECRETS)
def test_a_password_of_any_signs_is_not_shown(secret: str) -> None:
    for url in (f"nats://ann:{secret}@host:1", f"nats://ann:{secret}@one:1,nats://bob:{secret}@two:2"):
        assert "cret" not in redact_urls(url) and "s3" not in redact_urls(url)
        assert "cret" not in strip_logins(url) and "s3" not in strip_logins(url)
        assert "ann" not in strip_logins(url)


@pytest.mark.parametrize("secret", SECRETS)
def test_no_refusal_of_a_url_shows_its_password(secret: str) -> None:
    with pytest.raises(ValueError, match=r"^must be http:// or https://, a host and a port$"):
        check_proxy(f"http://ann:{secret}@[proxy:3128/")
    with pytest.raises(UsageError) as refused:
        check_url(f"http://ann:{secret}@host", "--url")
    assert "cret" not in str(refused.value) and "s3" not in str(refused.value)
    try:
        assert "cret" not in shown_address(f"postgresql://ann:{secret}@host/db")
    except UsageError as error:
        assert "cret" not in str(error) and "s3" not in str(error)


@pytest.mark.parametrize(
    "variable",
    ["NOETL_NATS_URL", "NOETL_POSTGRES_DSN", "NOETL_HTTP_PROXY", "OTEL_EXPORTER_OTLP_ENDPOINT"],
)
@pytest.mark.parametrize("address", ["http://ann:s3cr/et@host:1", "http://ann:s3cret\u2100@host:1", "http://[s3cret"])
def test_no_refusal_of_a_setting_shows_a_password(variable: str, address: str) -> None:
    with pytest.raises(UsageError, match=variable) as refused:
        Settings.from_environment({variable: address})
    assert "cr" not in str(refused.value).replace("NOETL", "")


def test_a_url_of_http_is_shown_without_user_and_query() -> None:
    assert shown("https://ann:s3cret@host:1/@scope/name?key=1") == "https://host:1/@scope/name"
