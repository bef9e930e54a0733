"""Wheels that tests make, so that no index is asked."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()) -> Path:
    """Writes a wheel with these files."""
    about = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


def wheel_of_installed(folder: Path, name: str) -> str:
    """Writes the wheel of a package that is installed, for this interpreter; returns it as ``name==version``."""
    found = distribution(name)
    files = [one for one in found.files or () if one.suffix != ".pyc" and ".." not in one.parts]
    tag = next(line.split()[1] for line in (found.read_text("WHEEL") or "").splitlines() if line.startswith("Tag:"))
    with zipfile.ZipFile(folder / f"{name}-{found.version}-{tag}.whl", "w") as archive:
        for file in files:
            archive.write(str(found.locate_file(file)), zipfile.ZipInfo(str(file)).filename)
    return f"{name}=={found.version}"
