"""Pushes the image and the chart of a release to a registry: ``python scripts/publish.py registry.example.com/team``.

The image has a bill of materials and its provenance beside it. The chart names the image by its digest, so it installs
without further values. Prints what was pushed, each with its digest, as the outputs of a step of a workflow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "deploy" / "chart"
REGISTRY: Final = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def run(*words: str | Path) -> str:
    """Runs a program. Returns its output, and shows it as it runs."""
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, file=sys.stderr, end="")
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, words[:3]))}")
    return done.stdout


def push_image(repository: str, folder: Path) -> str:
    """Builds and pushes the image, and starts it once. Returns its digest."""
    revision = run("git", "rev-parse", "HEAD").strip()
    generator = os.environ.get("SBOM_IMAGE")
    sbom = f"type=sbom,generator={generator}" if generator else "type=sbom"
    described = ("--attest", sbom, "--attest", "type=provenance,mode=max")
    about = ("--build-arg", f"VERSION={version()}", "--build-arg", f"REVISION={revision}")
    written = folder / "image.json"
    to = ("--tag", f"{repository}:{version()}", "--push", "--metadata-file", written)
    run("docker", "buildx", "build", "--file", "deploy/Dockerfile", *about, *described, *to, ".")
    digest = str(json.loads(written.read_text())["containerimage.digest"])
    run("docker", "run", "--rm", "--read-only", f"{repository}@{digest}", "version")
    return digest


def package_chart(repository: str, digest: str, folder: Path) -> Path:
    """Packages the chart with this image as its default."""
    chart = folder / "noetl-stream"
    shutil.copytree(CHART, chart)
    values = (chart / "values.yaml").read_text()
    for name, value in (("repository", repository), ("digest", digest)):
        values, found = re.subn(rf'^  {name}: ""', f'  {name}: "{value}"', values, count=1, flags=re.MULTILINE)
        if not found:
            sys.exit(f"values.yaml has no image.{name} to set")
    (chart / "values.yaml").write_text(values)
    run("helm", "package", chart, "--destination", folder)
    return folder / f"noetl-stream-{version()}.tgz"


def push_chart(registry: str, package: Path) -> str:
    """Pushes the package. Returns its digest."""
    found = DIGEST.search(run("helm", "push", package, f"oci://{registry}/charts"))
    if found is None:
        sys.exit("helm says no digest of the chart")
    return found[0]


def main() -> None:
    (registry,) = sys.argv[1:] or sys.exit(__doc__)
    if REGISTRY.fullmatch(registry) is None:
        sys.exit(f"{registry!r} is not a registry: write it as registry.example.com/team, in lower case")
    if (tag := os.environ.get("GITHUB_REF_NAME", f"v{version()}")) != f"v{version()}":
        sys.exit(f"this is {tag}, and not the tag v{version()}")
    image = f"{registry}/noetl-stream"
    with tempfile.TemporaryDirectory() as made:
        digest = push_image(image, Path(made))
        chart_digest = push_chart(registry, package_chart(image, digest, Path(made)))
    print(f"image={image}\nimage-digest={digest}")
    print(f"chart={registry}/charts/noetl-stream\nchart-digest={chart_digest}")


if __name__ == "__main__":
    main()
