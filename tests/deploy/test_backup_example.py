"""The CronJobs for backups and retention fit what the chart makes, and the program takes their commands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from helm import CHART, Rendered, objects, render
from manifests import Edge, PodOf, edges, matches, named, of_kind, pods, secret_references

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.sealing.keys import new_key
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("helm")

EXAMPLE = CHART / "examples" / "backup.yaml"
STORAGE = {"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
STORAGE_SECRETS = {("noetl-objects", "id"), ("noetl-objects", "key")}
LIKE = {"noetl-backup": "migration", "noetl-retention": "server"}
"""Whose rights each has."""
SIGNING = {"noetl-backup": "backup", "noetl-retention": "archive"}
"""The key in `noetl-signing` that each has, and no other."""
ROLES_OWN = {
    *("NOETL_LOG_LEVEL", "NOETL_LOG_FORMAT", "NOETL_STATUS_ADDRESS"),
    *("NOETL_CREDENTIAL_OLD_KEYS", "NOETL_GRANTS_DEFAULT"),
}


def jobs() -> dict[str, PodOf]:
    found = of_kind(objects(EXAMPLE.read_text()), "CronJob")
    templates = {one["metadata"]["name"]: one["spec"]["jobTemplate"]["spec"]["template"] for one in found}
    return {name: PodOf(name, one["metadata"]["labels"], one["spec"]) for name, one in templates.items()}


@pytest.fixture(scope="module")
def chart() -> Sequence[Rendered]:
    return render(CHART / "values" / "small.yaml")


@pytest.mark.parametrize("name", LIKE)
def test_a_job_has_the_variables_and_secrets_of_the_role_that_it_works_as(name: str, chart: Sequence[Rendered]) -> None:
    job, (role,) = jobs()[name], (pod for pod in pods(chart) if pod.role == LIKE[name])
    key = f"NOETL_{SIGNING[name].upper()}_SIGNING_KEY"
    assert job.environment.keys() - STORAGE - {key} == role.environment.keys() - ROLES_OWN - {"SSL_CERT_FILE"}
    assert secret_references(job) == secret_references(role) | STORAGE_SECRETS | {("noetl-signing", SIGNING[name])}
    assert job.spec["securityContext"] == role.spec["securityContext"]
    assert job.containers[0]["securityContext"] == role.containers[0]["securityContext"]


@pytest.mark.parametrize("name", LIKE)
def test_a_job_reaches_what_a_migration_does_and_object_storage(name: str, chart: Sequence[Rendered]) -> None:
    job, (migration,) = jobs()[name], (pod for pod in pods(chart) if pod.role == "migration")
    assert matches(named(chart, "NetworkPolicy", "noetl-default-deny")["spec"]["podSelector"], job.labels)
    found = list(objects(EXAMPLE.read_text()))
    bootstrap = {Edge("to", "anybody", port) for port in (443, 6443)}  # the API of Kubernetes, which it alone asks
    allowed = edges(chart, migration.labels)
    assert bootstrap <= allowed
    assert edges(found, job.labels) == allowed - bootstrap | {Edge("to", "0.0.0.0/0", 443)}
    assert job.spec["serviceAccountName"] in {one["metadata"]["name"] for one in of_kind(found, "ServiceAccount")}


@pytest.mark.parametrize("name", LIKE)
def test_the_program_takes_the_command_of_a_job(name: str) -> None:
    program, *words = jobs()[name].containers[0]["command"]
    away = {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_POSTGRES_DSN": "postgresql://127.0.0.1:1/none"}
    away |= {"NOETL_SERVER_KEY": new_key(), "NOETL_ACCESS_KEY": new_key()}
    done = noetl(*words, AWS_ENDPOINT_URL="http://127.0.0.1:1", **away)
    assert (program, done.returncode) == ("noetl-stream", ExitCode.UNREACHABLE), done.stderr
