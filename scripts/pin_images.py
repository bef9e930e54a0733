"""The third-party images of the repository, each by its digest in the registry.

    python scripts/pin_images.py            asks the registries, with docker, and writes the digests behind the tags
    python scripts/pin_images.py --check    exits with 1 if an image has none, as the workflow of a release does

A tag can be moved to another image, a digest cannot.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILES: Final = (
    "deploy/Dockerfile",
    "deploy/compose.yaml",
    ".devcontainer/devcontainer.json",
    ".github/workflows/ci.yml",
    ".github/workflows/nightly.yml",
    ".github/workflows/release.yml",
)
IMAGE: Final = re.compile(
    r"^(?P<before>ARG \w*BASE=|\s+\"?(?:image|\w+_IMAGE)\"?: (?:\"|\$\{\w+:-)?)"
    r"(?P<tagged>[\w./-]+:[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64}\b)?",
    re.MULTILINE,
)
"""An image with a tag. The project's own has none: it is built here."""
CHECK: Final = "--check"


def digest_of(image: str) -> str:
    """The digest that a tag names now, for all platforms."""
    inspect = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    asked = subprocess.run(inspect, capture_output=True, text=True)
    digest = asked.stdout.strip()
    if asked.returncode or not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        sys.exit(f"no digest of {image}: {asked.stderr.strip() or digest or 'docker says nothing'}")
    return digest


def pinned(text: str) -> str:
    """The text of a file with the current digests of its tags."""
    return IMAGE.sub(lambda image: f"{image['before']}{image['tagged']}@{digest_of(image['tagged'])}", text)


def main() -> None:
    files = [ROOT / name for name in FILES]
    if CHECK not in sys.argv:
        for file, text in [(file, pinned(file.read_text())) for file in files]:
            file.write_text(text)
        return
    images = [(file, image) for file in files for image in IMAGE.finditer(file.read_text())]
    loose = [f"{file}: {image['tagged']}" for file, image in images if not image["digest"]]
    if loose:
        sys.exit("\n".join((*loose, "these images have no digest: run `make pin-images` and commit what it writes")))


if __name__ == "__main__":
    main()
