"""The page about Kubernetes: its commands render, its files exist, its tables are true."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from helm import CHART, EXAMPLES, ROOT, Rendered, objects, program, render, run_helm
from manifests import matches, of_kind, pods, roles, secret_references
from ruamel.yaml import YAML

pytestmark = pytest.mark.xdist_group("helm")

PAGE = (ROOT / "docs" / "how-to" / "run-on-kubernetes.md").read_text()
BLOCK = re.compile(r"^```([\w ]+)\n(.*?)^```", re.M | re.S)
BLOCKS = re.findall(BLOCK, PAGE)
COMMANDS = [
    shlex.split(line)
    for language, block in BLOCKS
    if language == "text"
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith(("helm ", "kubectl "))
]


def rendering(command: list[str]) -> list[str]:
    """The values of a command on the chart. What it keeps from before is an example."""
    words = iter(command)
    kept = ["-f", "deploy/chart/values/small.yaml"] if "--reset-then-reuse-values" in command else []
    return [*kept, *(part for word in words if word in ("-f", "--set") for part in (word, next(words)))]


ON_THE_CHART = [command for command in COMMANDS if command[0] == "helm" and "deploy/chart" in command]


@pytest.mark.parametrize("command", ON_THE_CHART, ids=" ".join)
def test_a_command_of_the_page_renders_or_is_refused_as_it_says(command: list[str]) -> None:
    done = run_helm("template", "noetl", CHART, *rendering(command))
    if done.returncode == 0:
        assert roles(objects(done.stdout))
    else:
        (said,) = (block for _, block in BLOCKS if block.startswith("… "))
        assert "pools.gpu.slot=4" in " ".join(command)
        assert said.removeprefix("… ").strip() in done.stderr


def test_an_upgrade_in_order_ends_with_one_image() -> None:
    *_, last = (command for command in ON_THE_CHART if "--reset-then-reuse-values" in command)
    done = run_helm("template", "noetl", CHART, *rendering(last))
    images = {pod.spec["containers"][0]["image"] for pod in roles(objects(done.stdout))}
    assert images == {"registry.example.com/noetl-stream:NEW"}


def test_every_file_that_a_command_names_exists() -> None:
    named = {word for command in COMMANDS for word in command if word.startswith("deploy/")}
    assert len(named) > 4
    assert [name for name in named if not Path(ROOT, name).exists()] == []


def test_the_page_has_every_example() -> None:
    assert set(re.findall(r"deploy/chart/values/([\w-]+)\.yaml\)", PAGE)) == {path.stem for path in EXAMPLES}


def test_values_of_the_page_are_accepted(tmp_path: Path) -> None:
    blocks = [block for language, block in BLOCKS if language == "yaml values"]
    assert len(blocks) == 5
    for number, values in enumerate(blocks):
        file = tmp_path / f"{number}.yaml"
        file.write_text(values)
        done = run_helm("template", "noetl", CHART, "-f", CHART / "values" / "kind.yaml", "-f", file)
        assert done.returncode == 0, done.stderr


OVERRIDES = YAML(typ="safe", pure=True).load(Path(__file__).with_name("overrides.yaml"))
NAMES = json.loads((CHART / "files" / "names.json").read_text())
VALUES_PAGE = (ROOT / "docs" / "reference" / "chart.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", VALUES_PAGE, re.M)


def test_the_page_of_values_names_what_the_chart_knows_and_the_tests_override() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 47))
    of_pods = [OVERRIDES["podDefaults"], OVERRIDES["server"], OVERRIDES["gateway"], OVERRIDES["pools"]["night"]]
    for number, values in ROWS:
        for value in re.findall(r"`([\w.]+)`", values):
            path = value.split(".")
            assert stands_in(NAMES["podDefaults"] if int(number) <= 32 else NAMES, path), value
            assert any(stands_in(one, path) for one in (of_pods if int(number) <= 32 else [OVERRIDES])), value


def stands_in(values: Any, path: list[str]) -> bool:
    for part in path:
        if part not in (values or {}):
            return False
        values = values[part]
    return True


PREPARATION = PAGE[PAGE.index("## Prepare") : PAGE.index("## Install")]
KUBECTL = """#!/bin/sh
case " $* " in
    *" create "*) exec {program} "$@" --dry-run=client -o json >made/$$ ;;
    *" get secret "*) echo "password-of-$5" ;;
esac
"""
"""Makes objects without a cluster."""


@pytest.fixture
def prepared(tmp_path: Path) -> dict[str, Rendered]:
    """The Secrets that the page's commands make before the installation, by namespace and name."""
    (tmp_path / "made").mkdir()
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for name, script in (("kubectl", KUBECTL.format(program=program("kubectl"))), ("helm", "#!/bin/sh\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    script = "".join(block for language, block in re.findall(BLOCK, PREPARATION) if language == "text")
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path)}, check=True)
    made = [json.loads(file.read_text()) for file in (tmp_path / "made").iterdir()]
    return {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in of_kind(made, "Secret")}


def test_the_page_makes_every_secret_that_the_chart_refers_to(prepared: dict[str, Rendered]) -> None:
    example = render(CHART / "values" / "small.yaml")
    references = {reference for pod in pods(example) for reference in secret_references(pod)}
    assert {(name, key) for name, key in references if key not in prepared[f"noetl/{name}"]["data"]} == set()


@pytest.mark.parametrize("values", ["small", "production"])
def test_the_values_reach_nats_and_postgres_where_the_page_puts_them(values: str) -> None:
    found = render(CHART / "values" / f"{values}.yaml")
    (server,) = (pod for pod in pods(found) if pod.role == "server")
    assert server.environment["NOETL_NATS_URL"]["value"] == "tls://nats.nats.svc:4222"
    policies = [one for one in of_kind(found, "NetworkPolicy") if matches(one["spec"]["podSelector"], server.labels)]
    peers = [peer for one in policies for rule in one["spec"].get("egress", []) for peer in rule["to"]]
    namespaces = {peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in peers}
    assert namespaces - {"monitoring"} == {"kube-system", "nats", "postgres"}


def test_the_page_makes_the_users_of_postgres(prepared: dict[str, Rendered]) -> None:
    (cluster,) = objects((CHART / "examples" / "postgres.yaml").read_text())
    initdb = cluster["spec"]["bootstrap"]["initdb"]
    roles = [one for one in cluster["spec"]["managed"]["roles"] if one["login"]]
    users = {initdb["secret"]["name"]: initdb["owner"], **{one["passwordSecret"]["name"]: one["name"] for one in roles}}
    for name, user in users.items():
        secret = prepared[f"postgres/{name}"]
        assert (secret["type"], plain(secret, "username")) == ("kubernetes.io/basic-auth", user)
        assert len(plain(secret, "password")) == 48
        dsn = plain(prepared["noetl/noetl-postgres"], name.removeprefix("noetl-postgres-"))
        assert dsn.startswith(f"postgresql://{user}:password-of-{name}@noetl-postgres-rw.postgres.svc:")


def plain(secret: Rendered, key: str) -> str:
    return b64decode(secret["data"][key]).decode()


def test_the_page_names_every_secret_and_its_keys() -> None:
    rows = re.findall(r"^\| `(noetl-[\w-]+)` \| (.+?) \|", PAGE, re.M)
    assert [name for name, _ in rows] == ["noetl-nats-seeds", "noetl-postgres", "noetl-keys", "noetl-traces"]
