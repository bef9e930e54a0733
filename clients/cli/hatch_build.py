"""What the wheel holds: the whole import package, the examples and the pages, from where the source tree has them."""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "src/noetl_stream": "noetl_stream",
    "playbooks": "noetl_stream/examples",
    **{f"docs/{name}": f"noetl_stream/docs/{name}" for name in ("tutorials", "how-to", "reference", "explanation")},
}
NOT_PACKED = ("playbooks/demo.py", "docs/reference/conformance/*", "*.svg")


class SourceTree(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the files of the source tree to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling. An editable install has the source tree itself."""
        if version != "editable":
            build_data["force_include"] |= packed()


def packed() -> dict[str, str]:
    """The places in the wheel of all files but those of the wheel of noetl-stream."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]

    def is_left_out(file: PurePath) -> bool:
        if any(file.match(pattern) for pattern in NOT_PACKED):
            return True
        is_of_whole = any(file.is_relative_to(folder) for folder in wheel["only-include"])
        return is_of_whole and not any(file.match(pattern) for pattern in wheel["exclude"])

    return {
        str(file): f"{place}/{file.relative_to(ROOT / folder).as_posix()}"
        for folder, place in FOLDERS.items()
        for file in sorted((ROOT / folder).rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts and not is_left_out(file.relative_to(ROOT))
    }
