"""Makes the environment in ``.venv``: ``python scripts/environment.py runtime|development``.

``runtime`` has the packages of the program and its demonstration, ``development`` also those of the tests. Both are
installed from the locks, by uv, which takes seconds where pip takes minutes; by pip where uv is not available. Packages
come only from the index that pip is configured for.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "uv"
"""The folder of uv if it is not on the PATH."""

BESIDE = (
    "clients/python",
    *sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("plugins/*/pyproject.toml")),
)
"""The packages of this repository, next to the program, for its tests."""

RUNTIME_LOCK = ROOT / "requirements.lock"
DEVELOPMENT_LOCK = ROOT / "requirements-dev.lock"

SIGN_OF_LIFE_S = 5.0
REASON_CHARS = 300

PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
PIP_SECTIONS = ("global", "install", ":env:")
"""The later overrides the earlier."""

BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"environment: {text}", flush=True)


def call(command: list[str | Path], *, environment: dict[str, str] | None = None) -> str | None:
    """Runs a command, with a message now and then while it runs. Returns the reason of a failure, or ``None``."""
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**(environment or {}), **os.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        return str(error)
    while True:
        try:
            _, errors = process.communicate(timeout=SIGN_OF_LIFE_S)
            break
        except subprocess.TimeoutExpired:
            say(f"still working, {time.monotonic() - began:.0f} s")
    if process.returncode == 0:
        return None
    return errors.strip()[-REASON_CHARS:] or f"{command[0]} exited with {process.returncode}"


def pinned(name: str) -> str:
    """The requirement of this name in the development lock, as in ``uv==0.13.9``."""
    found = re.search(rf"^{name}==\S+", DEVELOPMENT_LOCK.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{DEVELOPMENT_LOCK.name} has no {name}: run `make lock`")
    return found[0]


def installations(kind: str) -> list[list[str | Path]]:
    """The arguments of each ``pip install``, in order. A lock is complete, so nothing else is resolved.

    Sources without a hash, such as this folder, cannot be installed together with a lock.
    """
    ours: list[str | Path] = ["--no-deps", "--editable", "clients/cli", "--editable", "."]
    if kind == "development":
        beside: list[str | Path] = [word for folder in BESIDE for word in ("--editable", folder)]
        return [["--no-deps", "--require-hashes", "-r", DEVELOPMENT_LOCK], [*ours, *beside]]
    # The demonstration reads a file of vega-datasets, without its dependencies.
    return [["--no-deps", "--require-hashes", "-r", RUNTIME_LOCK], [*ours, pinned("vega-datasets")]]


def install(kind: str, command: list[str | Path], environment: dict[str, str] | None = None) -> str | None:
    """Returns the reason of a failure, or ``None``."""
    failures = (call([*command, "--quiet", *given], environment=environment) for given in installations(kind))
    return next((failure for failure in failures if failure), None)


def make_venv() -> None:
    """Makes an empty environment, unless one with a working Python exists."""
    if call([PYTHON, "-c", ""]) is None:
        return
    say(f"Python {'.'.join(map(str, sys.version_info[:3]))} of {sys.executable}, in {VENV.name}")
    failure = call([sys.executable, "-m", "venv", "--clear", "--without-pip", VENV])
    if failure:
        raise SystemExit(failure)


def pip() -> list[str | Path]:
    """The pip of this Python, or one in the environment if this Python has none."""
    return [sys.executable, "-m", "pip"] if find_spec("pip") else pip_in_venv()


def pip_in_venv() -> list[str | Path]:
    failure = call([PYTHON, "-m", "ensurepip"]) if call([PYTHON, "-m", "pip", "--version"]) else None
    if failure:
        raise SystemExit(f"{failure}\nInstall pip (on Debian and Ubuntu: python3-venv) or uv, and try again.")
    return [PYTHON, "-m", "pip"]


def index_settings() -> dict[str, str] | None:
    """The environment variables with which uv uses pip's index; ``None`` if pip is configured without one."""
    listed = subprocess.run([*pip(), "config", "list"], capture_output=True, text=True, check=False).stdout
    lines = re.findall(r"^(\S+)\.([\w-]+)=(.*)$", listed, re.MULTILINE)
    found = {key: ast.literal_eval(value) for rank in PIP_SECTIONS for section, key, value in lines if section == rank}
    if found.get("no-index", "0").lower() in ("1", "true", "yes", "on"):
        return None
    settings = {name: " ".join(found[key].split()) for key, name in PIP_TO_UV.items() if key in found}
    if "UV_INDEX" in settings:
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip does
    return settings


def install_with_uv(kind: str) -> str | None:
    """Returns the reason of a failure, or ``None``."""
    settings = index_settings()
    if settings is None:
        return "pip is configured for no index"
    uv: str | Path | None = shutil.which("uv")
    if uv is None:
        uv = UV / "bin" / "uv"
        wanted = [*pip(), "install", "--quiet", "--only-binary", ":all:", "--target", UV, pinned("uv")]
        failure = None if uv.exists() else call(wanted)
        if failure:
            return failure
    say(f"installing {kind} packages with uv")
    return install(kind, [uv, "pip", "install", "--python", PYTHON], settings)


def main(kind: str) -> None:
    make_venv()
    failure = install_with_uv(kind)
    if failure:
        say(f"uv cannot be used here ({failure.splitlines()[-1]})")
        say(f"installing {kind} packages with pip, which takes a minute or two")
        failure = install(kind, [*pip_in_venv(), "install"])
    if failure:
        raise SystemExit(failure)
    say(f"ready in {time.monotonic() - BEGAN:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1])
