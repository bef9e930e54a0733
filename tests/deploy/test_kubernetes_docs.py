"""The page about Kubernetes: its commands render, its files exist, its tables are true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from helm import CHART, EXAMPLES, ROOT, objects, run_helm
from manifests import roles

pytestmark = pytest.mark.xdist_group("helm")

PAGE = (ROOT / "docs" / "how-to" / "run-on-kubernetes.md").read_text()
BLOCKS = re.findall(r"^```([\w ]+)\n(.*?)^```", PAGE, re.M | re.S)
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
        assert "NOETL_SLOT=4" in " ".join(command)
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
    (values,) = (block for language, block in BLOCKS if language == "yaml values")
    file = tmp_path / "values.yaml"
    file.write_text(values)
    assert run_helm("template", "noetl", CHART, "-f", CHART / "values" / "kind.yaml", "-f", file).returncode == 0


def test_the_page_names_every_secret_and_its_keys() -> None:
    rows = re.findall(r"^\| `(noetl-[\w-]+)` \| (.+?) \|", PAGE, re.M)
    assert [name for name, _ in rows] == ["noetl-nats-seeds", "noetl-postgres", "noetl-keys"]
