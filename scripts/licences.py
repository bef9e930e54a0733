"""Prints the licence of each package that the program needs, as a table for ``docs/reference/licences.md``."""

from __future__ import annotations

import re
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
CLASSIFIER = "License :: OSI Approved :: "


def licence_of(found: PackageMetadata) -> str:
    """The SPDX expression of a package; for an older one, its classifiers or its field."""
    classifiers = [text.removeprefix(CLASSIFIER) for text in found.get_all("Classifier") or [] if CLASSIFIER in text]
    stated = [
        *(found.get_all("License-Expression") or []),
        " and ".join(classifiers),
        *(found.get_all("License") or []),
    ]
    return next((text for text in stated if text), "not stated")


def main() -> None:
    print("| Package | Licence |\n| --- | --- |")
    for name in re.findall(r"^([a-z0-9.-]+)==", LOCK.read_text(), re.MULTILINE):
        try:
            print(f"| {name} | {licence_of(metadata(name))} |")
        except PackageNotFoundError:
            continue  # for another platform


if __name__ == "__main__":
    main()
