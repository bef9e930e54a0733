"""``noetl-stream token bootstrap``: as the Job of the chart runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from cli_program import one_clear_line, only_json
from kubernetes_api import KubernetesApi
from warm_program import noetl


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesApi]:
    with KubernetesApi(tmp_path).running() as running:
        yield running


@pytest.mark.xdist_group("stack")
def test_the_first_token_of_an_installation_is_put_into_a_secret_once(
    own_home: Path, kubernetes: KubernetesApi
) -> None:
    def token(*words: object) -> CompletedProcess[str]:
        return noetl("token", *words, "--home", own_home)

    in_the_pod = ("--api", kubernetes.url, "--account", kubernetes.account)
    made = token("bootstrap", "bootstrap", *in_the_pod)
    assert made.returncode == 0, made.stderr
    text = kubernetes.secrets["bootstrap"]["token"]
    assert made.stdout == f"the Secret bootstrap has the bootstrap token {text.split('_')[1]}\n"
    assert text not in made.stdout + made.stderr
    assert token("bootstrap", "bootstrap", *in_the_pod).stdout == "there is a token already\n"
    assert [(one["name"], one["role"]) for one in only_json(token("list", "-o", "json"))] == [("@bootstrap", "admin")]
    assert token("create", "ann", "--role", "admin").returncode == 0
    first, second = only_json(token("list", "-o", "json"))
    assert first["revoked"] is not None and second["revoked"] is None


def test_a_secret_that_the_pod_may_not_write_is_reported(kubernetes: KubernetesApi, own_home: Path) -> None:
    in_the_pod = ("--api", kubernetes.url, "--account", kubernetes.account, "--home", own_home)
    refused = noetl("token", "bootstrap", "others", *in_the_pod)
    assert refused.returncode != 0
    assert "allow it get, create and patch of the Secret others" in one_clear_line(refused)
