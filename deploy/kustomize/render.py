"""Writes what is made of the chart: ``python deploy/kustomize/render.py [--helm PROGRAM]``.

Its objects, for those who use kustomize: what Helm runs before an upgrade, the migration, is in a folder of its own, to
be applied first. And the names of its values, by which it tells unknown ones.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).resolve().parent
CHART = HERE.parent / "chart"
HEAD = "# Rendered from deploy/chart by deploy/kustomize/render.py: do not edit.\n"
OF_HELM = ("helm.sh/", "app.kubernetes.io/managed-by")


def rendered(helm: Path) -> dict[Path, str]:
    """The files below this folder, with what they should hold."""
    command = [helm, "template", "noetl", CHART, "--namespace", "noetl", "-f", HERE / "values.yaml"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [one for one in YAML(typ="safe", pure=True).load_all(text) if one is not None]
    hooks = [one for one in found if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    migration = [one for one in hooks if one["metadata"]["annotations"]["helm.sh/hook"] != "test"]
    return {
        HERE / "base" / "noetl-stream.yaml": written([one for one in found if one not in hooks]),
        HERE / "migration" / "migration.yaml": written(migration),
    }


def written(found: list[dict[str, Any]]) -> str:
    output = io.StringIO(newline="")
    yaml = YAML()
    yaml.width = 120
    yaml.dump_all([without_helm(one) for one in found], output)
    return HEAD + output.getvalue()


def without_helm(value: Any) -> Any:
    """Without the labels and annotations of Helm, and the maps that these leave empty."""
    if isinstance(value, list):
        return [without_helm(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {name: without_helm(one) for name, one in value.items() if not name.startswith(OF_HELM)}
    return {name: one for name, one in kept.items() if not (name == "annotations" and not one)}


def value_names(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The names of a map's values, each with those below it. ``*`` is any name; ``None``: the map is the operator's."""
    definitions = schema["definitions"]

    def names_of(part: dict[str, Any]) -> dict[str, Any] | None:
        if "$ref" in part:
            return names_of(definitions[part["$ref"].rpartition("/")[2]])
        names: dict[str, Any] = {}
        for base in part.get("allOf", ()):
            names |= names_of(base) or {}
        if "$ref" in part.get("additionalProperties", ()):
            names["*"] = names_of(part["additionalProperties"])
        names |= {name: names_of(value) for name, value in part.get("properties", {}).items()}
        return names or None

    return names_of(schema)


def names_file() -> tuple[Path, str]:
    """The file with the names of the chart's values, and what it should hold."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    return CHART / "files" / "names.json", json.dumps(value_names(schema), indent=1) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--helm", type=Path, default=Path("helm"))
    helm = parser.parse_args().helm
    names, text = names_file()
    names.write_text(text)  # the chart renders nothing with a value that is not there
    for file, text in rendered(helm).items():
        file.write_text(text)


if __name__ == "__main__":
    main()
