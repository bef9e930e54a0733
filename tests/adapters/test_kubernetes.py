"""A text in a Secret: what is asked of Kubernetes, and what is said where it does not answer or refuses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubernetes_api import KubernetesApi
from noetl_stream.adapters.kubernetes import SecretKey
from noetl_stream.errors import Forbidden, Unreachable, UsageError
from own_certificate import write_certificate


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesApi]:
    with KubernetesApi(tmp_path).running() as running:
        yield running


def kept(kubernetes: KubernetesApi, secret: str = "bootstrap", key: str = "token") -> SecretKey:
    return SecretKey(secret, key, api=kubernetes.url, account=kubernetes.account)


async def test_a_text_is_written_where_there_is_no_secret_and_read_again(kubernetes: KubernetesApi) -> None:
    text = kept(kubernetes)
    assert await text.read() is None
    await text.write("first")
    assert kubernetes.secrets == {"bootstrap": {"token": "first"}}
    assert await text.read() == "first"


async def test_other_keys_of_the_secret_stay(kubernetes: KubernetesApi) -> None:
    kubernetes.secrets["bootstrap"] = {"other": "x"}
    assert await kept(kubernetes).read() is None
    await kept(kubernetes).write("first")
    assert kubernetes.secrets == {"bootstrap": {"other": "x", "token": "first"}}


async def test_it_is_applied_so_that_the_right_to_create_can_be_that_of_one_name(kubernetes: KubernetesApi) -> None:
    await kept(kubernetes).write("first")
    assert kubernetes.patches == [({"fieldManager": "noetl-stream", "force": "true"}, "application/apply-patch+yaml")]


async def test_a_secret_that_the_account_may_not_write_is_reported_with_the_missing_rights(
    kubernetes: KubernetesApi,
) -> None:
    for refused in (kept(kubernetes, "others").read(), kept(kubernetes, "others").write("x")):
        with pytest.raises(Forbidden, match='"others" is forbidden') as error:
            await refused
        assert "get, create and patch of the Secret others" in str(error.value)


async def test_an_account_that_has_expired_is_refused(kubernetes: KubernetesApi) -> None:
    (kubernetes.account / "token").write_text("older")
    with pytest.raises(Forbidden, match="Unauthorized"):
        await kept(kubernetes).read()


async def test_another_server_at_the_address_of_kubernetes_gets_no_token(
    kubernetes: KubernetesApi, tmp_path: Path
) -> None:
    certificate, _ = write_certificate(tmp_path, 2)
    shutil.copy(certificate, kubernetes.account / "ca.crt")
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await kept(kubernetes).write("x")
    assert kubernetes.patches == []


async def test_outside_a_pod_the_command_says_that_it_needs_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the account of a pod") as error:
        SecretKey("bootstrap", "token", account=tmp_path)
    assert "run it in a pod" in str(error.value)
