"""What a release pushes to a registry: the image with what describes it, and a chart that names it by its digest.

Docker, and the push of Helm, are stand-ins here; the packaging is Helm's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helm import ROOT, objects, program, run_helm
from manifests import pods
from ruamel.yaml import YAML

pytestmark = pytest.mark.xdist_group("helm")

DIGEST, CHART_DIGEST = ("sha256:" + digits * 32 for digits in ("0f", "1e"))
REGISTRY = "registry.example.com:5000/team"
IMAGE = f"{REGISTRY}/noetl-stream"
WORKFLOW: dict[str, Any] = YAML(typ="safe", pure=True).load(ROOT / ".github" / "workflows" / "release.yml")
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["publish"]["steps"]

DOCKER = """#!{python}
import json, os, sys
words = sys.argv[1:]
with open("{folder}/docker.log", "a") as log:
    log.write(json.dumps(words) + "\\n")
if words[:2] == ["buildx", "build"]:
    with open(words[words.index("--metadata-file") + 1], "w") as made:
        json.dump({{"containerimage.digest": "{digest}"}}, made)
sys.exit(words[0] == "run" and os.environ.get("BROKEN"))
"""
HELM = """#!/bin/sh
[ "$1" = push ] || exec {helm} "$@"
cp "$2" {folder}/pushed.tgz
echo "$3" >{folder}/pushed.to
echo "Digest: {digest}" >&2
"""


def publish(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with stand-ins, which write into the folder what they are told."""
    docker = DOCKER.format(python=sys.executable, folder=folder, digest=DIGEST)
    for name, text in (
        ("docker", docker),
        ("helm", HELM.format(folder=folder, digest=CHART_DIGEST, helm=program("helm"))),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    given = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    given |= {"PATH": f"{folder}:{os.environ['PATH']}", **environment}
    command = [sys.executable, ROOT / "scripts" / "publish.py", *words]
    return subprocess.run(command, env=given, capture_output=True, text=True)


def told(folder: Path) -> list[list[str]]:
    """The arguments of each call of docker."""
    log = folder / "docker.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_image_and_chart_are_pushed_and_named_by_digest(tmp_path: Path) -> None:
    done = publish(tmp_path, REGISTRY, SBOM_IMAGE="generator")
    assert done.returncode == 0, done.stderr
    outputs = dict(line.split("=", 1) for line in done.stdout.splitlines())
    chart = {"chart": f"{REGISTRY}/charts/noetl-stream", "chart-digest": CHART_DIGEST}
    assert outputs == {"image": IMAGE, "image-digest": DIGEST, **chart}
    assert (tmp_path / "pushed.to").read_text().strip() == f"oci://{REGISTRY}/charts"
    build, start = told(tmp_path)
    assert [build[at + 1] for at, word in enumerate(build) if word == "--attest"] == [
        "type=sbom,generator=generator",
        "type=provenance,mode=max",
    ]
    assert build[build.index("--tag") + 1].startswith(f"{IMAGE}:") and "--push" in build
    assert start == ["run", "--rm", "--read-only", f"{IMAGE}@{DIGEST}", "version"]


def test_the_chart_that_is_pushed_installs_without_a_value(tmp_path: Path) -> None:
    assert publish(tmp_path, REGISTRY).returncode == 0
    rendered = run_helm("template", "noetl", tmp_path / "pushed.tgz")
    assert rendered.returncode == 0, rendered.stderr
    images = {container["image"] for pod in pods(objects(rendered.stdout)) for container in pod.containers}
    assert images == {f"{IMAGE}@{DIGEST}"}
    unknown = run_helm("template", "noetl", tmp_path / "pushed.tgz", "--set", "server.replica=1")
    assert "did you mean replicas?" in unknown.stderr


def test_no_chart_is_pushed_for_an_image_that_does_not_start(tmp_path: Path) -> None:
    failed = publish(tmp_path, REGISTRY, BROKEN="1")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.splitlines()[-1] == "failed: docker run --rm"
    assert not (tmp_path / "pushed.tgz").exists()


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (("https://registry.example.com",), {}, "write it as registry.example.com/team"),
        (("registry.example.com/Team",), {}, "in lower case"),
        ((REGISTRY,), {"GITHUB_REF_NAME": "main"}, "this is main, and not the tag v"),
        ((), {}, "python scripts/publish.py registry.example.com/team"),
    ],
)
def test_a_text_that_is_no_release_or_registry_is_refused_before_anything_is_built(
    tmp_path: Path, words: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    refused = publish(tmp_path, *words, **environment)
    assert refused.returncode == 1 and said in refused.stderr
    assert told(tmp_path) == []


def test_the_workflow_pushes_to_the_given_registry_after_the_wheels_are_signed() -> None:
    job = WORKFLOW["jobs"]["publish"]
    assert job["needs"] == "build"
    assert job["env"]["REGISTRY"] == "${{ inputs.registry || vars.REGISTRY }}"
    assert WORKFLOW["on"]["workflow_dispatch"]["inputs"]["registry"]["required"] is True
    runs = [step["run"] for step in STEPS if "run" in step]
    assert runs[0] == "python3 scripts/pin_images.py --check"
    assert runs[-1].startswith('python3 scripts/publish.py "$REGISTRY"')


def test_the_workflow_signs_what_it_has_pushed() -> None:
    signed = [step["with"] for step in STEPS[-2:]]
    for one, name in zip(signed, ("image", "chart"), strict=True):
        assert one["subject-name"] == f"${{{{ steps.pushed.outputs.{name} }}}}"
        assert one["subject-digest"] == f"${{{{ steps.pushed.outputs.{name}-digest }}}}"
        assert one["push-to-registry"] is True


def test_no_script_of_the_workflow_has_an_expression_and_each_can_be_read() -> None:
    """What is written into a script by the workflow is run as part of it."""
    for step in STEPS:
        script = step.get("run", "")
        assert "${{" not in script
        assert subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True).stderr == ""
    holders = [step["run"].split()[:2] for step in STEPS if "secrets." in json.dumps(step)]
    assert holders == [["docker", "login"]]
