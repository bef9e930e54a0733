"""The chart renders for every example, and its schema refuses what nothing would read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helm import CHART, EXAMPLES, NAMESPACE, objects, refusal, render, run_helm
from manifests import of_kind

from noetl_stream.settings.children import VARIABLES as PYTHON_VARIABLES
from noetl_stream.settings.sources.environment import Settings

pytestmark = pytest.mark.xdist_group("helm")

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
NAMES: dict[str, Any] = json.loads((CHART / "files" / "names.json").read_text())
POD_NAMES = NAMES["podDefaults"].keys()
ROLES = ("server", "gateway", "migration", "poolDefaults")
VARIABLES = {*PYTHON_VARIABLES, *(one.name for one in Settings.variables().values())}


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_helm_finds_nothing_wrong_with_an_example(values: Path) -> None:
    done = run_helm("lint", "--strict", CHART, "-f", values)
    assert "0 chart(s) failed" in done.stdout, done.stdout


def test_there_is_an_example_for_each_size() -> None:
    assert [path.stem for path in EXAMPLES] == ["air-gapped", "edge", "kind", "production", "small"]


WRONG = (
    ("server.replica=3", "server.replica is no value of this chart: did you mean replicas?"),
    ("pools.gpu.slot=8", "pools.gpu.slot is no value of this chart: did you mean slots?"),
    ("podDefault={}", "podDefault is no value of this chart: did you mean podDefaults?"),
    ('gateway.serviceAccount={"annotation": {}}', "gateway.serviceAccount.annotation is no value of this chart"),
    ('server.replicas="3"', "at '/server/replicas': got string, want integer"),
    ('image.tag="latest"', "at '/image/tag': 'not' failed"),
    ('image.digest="sha256:12"', "at '/image/digest'"),
    ("nats.replicas=2", "at '/nats/replicas': value must be one of 1, 3, 5"),
    ('nats.url="nats://user:password@nats:4222"', "at '/nats/url'"),
    ('nats.monitoringAddress="http://nats:8222"', "at '/nats/monitoringAddress'"),
    ('postgres.readSecret="postgresql://replica/noetl"', "at '/postgres/readSecret'"),
    ('traces.endpoint="collector:4318"', "at '/traces/endpoint'"),
    ('traces.endpoint="http://key:secret@collector:4318"', "at '/traces/endpoint'"),
    ('traces.headersSecret="noetl-traces"', "at '/traces/endpoint': minLength: got 0, want 1"),
    ("traces.ratio=2", "at '/traces/ratio': maximum: got 2, want 1"),
    ('log.level="loud"', "at '/log/level': value must be one of 'debug', 'info', 'warning', 'error'"),
    ("pools.GPU={}", "invalid propertyName 'GPU'"),
    ('pools.gpu={"slots": 0}', "at '/pools/gpu/slots': minimum: got 0, want 1"),
    ('pools.gpu={"isolation": "none"}', "at '/pools/gpu/isolation': value must be one of"),
    ('pools.gpu={"autoscaling": {"by": "cpu", "minReplicas": 0}}', "minReplicas': minimum: got 0, want 1"),
    ('pools.gpu={"settings": {"NOETL_SLOT": "4"}}', "invalid propertyName 'NOETL_SLOT'"),
    ('pools.gpu={"settings": {"NOETL_POSTGRES_DSN": "x"}}', "invalid propertyName 'NOETL_POSTGRES_DSN'"),
    ('pools.gpu={"settings": {"NOETL_OBJECTS": "s3://a"}}', "invalid propertyName 'NOETL_OBJECTS'"),
    ('server.settings={"NOETL_SERVER_KEY": "in plain text"}', "invalid propertyName 'NOETL_SERVER_KEY'"),
    ('server.secretSettings={"NOETL_CREDENTIAL_KEY": {"secret": "a", "key": "b"}}', "'not' failed"),
    ('server.secretSettings={"NOETL_CREDENTIAL_A": "in plain text"}', "got string, want object"),
    ('gateway.settings={"NOETL_GATEWAY_MAX_WAITS": 10}', "got number, want string"),
    ('gateway.ingress={"enabled": true}', "at '/gateway/ingress/hosts': minItems: got 0, want 1"),
    ("networkPolicy.postgres=[]", "at '/networkPolicy/postgres': minItems: got 0, want 1"),
    ('networkPolicy.nats=[{"podSelectors": {}}]', "additional properties 'podSelectors' not allowed"),
    ('image.repository=""', "image.repository is needed: where you pushed the image of deploy/Dockerfile"),
    ('image.repository="registry:5000/noetl:1.2"', "noetl:1.2: put what is behind the colon into image.tag"),
    ('server.image={"repository": "noetl@sha256:12"}', "noetl@sha256:12: put what is behind the @ into image.digest"),
    ('server.extraEnv=[{"name": "NOETL_NATS_URL"}]', "env of noetl-server: the chart sets NOETL_NATS_URL"),
    ('podDefaults.extraVolumes=[{"name": "temporary"}]', "the chart sets temporary itself"),
    ('migration.extraVolumeMounts=[{"name": "a", "mountPath": "/tmp"}]', "the chart sets /tmp itself"),
    ('podDefaults.serviceAccount.name="ours"', "at '/podDefaults/serviceAccount/create': value must be false"),
    ("gateway.terminationGracePeriodSeconds=5", "noetl-gateway is 5: it takes up to 30 to end"),
    ('server.autoscaling={"by": "keda"}', "monitoring.prometheusAddress is needed for servers that KEDA scales"),
    ('pools.gpu={"autoscaling": {"by": "keda"}}', "nats.monitoringAddress is needed for pools that KEDA scales"),
)


@pytest.mark.parametrize(("value", "said"), WRONG, ids=[value for value, _ in WRONG])
def test_a_wrong_value_is_refused_in_words(value: str, said: str) -> None:
    assert said in refusal([value])


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    """A value that is only in the schema would have no effect, and one that is only in the file could not be set."""
    (defaults,) = objects((CHART / "values.yaml").read_text())
    assert unlike(defaults, NAMES) == []


def unlike(values: dict[str, Any], names: dict[str, Any], at: str = "") -> list[str]:
    """Paths that are on one side only. Maps of the operator's own keys are not followed."""
    inherited = POD_NAMES if at.strip("/") in ROLES else set()
    differing = [
        f"{at}/{name}" for name in (names.keys() ^ values.keys()) - inherited if not is_optional(f"{at}/{name}")
    ]
    for name in names.keys() & values.keys():
        if isinstance(values[name], dict) and names[name]:
            differing += unlike(values[name], names[name], f"{at}/{name}")
    return differing


def is_optional(path: str) -> bool:
    return re.search(r"^/(global|enabled)$|^/pools/|/image/|/resources/", path) is not None


def setting_patterns() -> set[str]:
    """The names of settings that the schema lets through, as in ``NOETL_LIMIT_[A-Z0-9_]+``."""
    found = re.findall(r'"pattern": "\^\((NOETL[^"]*)\)\$"', json.dumps(SCHEMA))
    return {name for pattern in found for name in pattern.split("|")}


def test_every_setting_of_the_schema_is_one_of_the_program() -> None:
    families = {name.replace("<NAME>", "[A-Z0-9_]+").replace("<KIND>", "[A-Z0-9_]+") for name in VARIABLES}
    allowed = families | {"NOETL_GATEWAY_[A-Z0-9_]+"}
    assert setting_patterns() <= allowed


def test_the_version_of_the_chart_is_that_of_the_program() -> None:
    version = re.search(r'^version = "(.+)"$', (CHART.parents[1] / "pyproject.toml").read_text(), re.M)
    assert version is not None
    chart = (CHART / "Chart.yaml").read_text()
    assert f"\nversion: {version[1]}\n" in chart
    assert f"\nappVersion: {version[1]}\n" in chart


def test_the_defaults_render_with_an_image_alone() -> None:
    assert len(render(settings=('image.repository="registry.example.com/noetl-stream"',))) > 10


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_the_notes_name_what_was_installed(values: Path) -> None:
    done = run_helm("install", "noetl", CHART, "--namespace", NAMESPACE, "--dry-run=client", "-f", values)
    notes = done.stdout.partition("\nNOTES:\n")[2]
    made = {one["metadata"]["name"] for one in of_kind(render(values), "Deployment")}
    assert set(re.findall(r"deployment/([\w-]+)", notes)) <= {"noetl-gateway"} & made
    assert ("servers" in notes) == ("noetl-server" in made)
    assert notes.startswith("noetl-stream")
    assert ("token create" in notes) == ("noetl-gateway" in made and values.stem != "production")  # it has a provider
    assert ("bootstrap token in the Secret noetl-bootstrap" in notes) == ("token create" in notes)
