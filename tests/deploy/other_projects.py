"""Objects of other projects (KEDA, Prometheus, Grafana …), checked by packages of npm made from their definitions."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from helm import ROOT, Rendered
from manifests import name_of

LOCKED = Path(__file__).with_name("schemas")
PACKAGES = {
    "cert-manager.io": "cert-manager",
    "external-secrets.io": "external-secrets",
    "gateway.networking.k8s.io": "gateway-api",
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
    "postgresql.cnpg.io": "cloudnative-pg",
    "trust.cert-manager.io": "cert-manager",
}
"""By group of the API."""

COMPILE = ("--noEmit", "--allowJs", "--checkJs", "--strict", "--skipLibCheck", "--module", "nodenext")


def group(one: Rendered) -> str:
    return str(one["apiVersion"]).partition("/")[0]


def of_other_projects(found: Iterable[Rendered]) -> list[Rendered]:
    return [one for one in found if group(one) in PACKAGES]


@cache
def installed() -> Path:
    """The folder below ``build/`` with the packages, as they are locked."""
    folder = ROOT / "build" / "schemas"
    shutil.copytree(LOCKED, folder, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=folder, check=True, capture_output=True)
    return folder


def fields(one: Rendered) -> str:
    return json.dumps({name: value for name, value in one.items() if name not in ("apiVersion", "kind")})


def refusal(found: Sequence[Rendered]) -> str:
    """What is wrong with objects: TypeScript knows the fields, the packages the values. Empty if nothing is."""
    modules = {one["kind"]: f"@kubernetes-models/{PACKAGES[group(one)]}/{one['apiVersion']}" for one in found}
    imports = [f'import {{ {kind} }} from "{module}/{kind}";' for kind, module in modules.items()]
    checks = [f"new {one['kind']}({fields(one)}).validate(); // {name_of(one)}" for one in found]
    return checked("\n".join([*imports, *checks]))


def dashboard_refusal(dashboard: str) -> str:
    """What is wrong with the fields of a dashboard of Grafana."""
    return checked(f'/** @type {{import("@grafana/schema").Dashboard}} */\nexport const dashboard = {dashboard};')


def checked(module: str) -> str:
    """What TypeScript says about a module and, where that is nothing, running it."""
    file = installed() / "checked.mjs"
    file.write_text(module)
    for command in (["node_modules/.bin/tsc", *COMPILE, file.name], ["node", file.name]):
        done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True)
        if done.returncode != 0:
            return done.stdout + done.stderr
    return ""
