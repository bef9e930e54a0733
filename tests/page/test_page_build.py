"""The committed page is what ``web/`` builds into."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
PAGE = ROOT / "src" / "noetl_stream" / "gateway" / "page"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules").exists(),
    reason="NO NODE: the page is not built again. Install Node 20.19 or newer, and run `npm ci` in web/",
)


def web(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["npx", "--no-install", *words], cwd=WEB, capture_output=True, text=True, timeout=300)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_committed_page_is_that_of_its_sources(tmp_path: Path) -> None:
    built = web("vite", "build", "--outDir", str(tmp_path / "page"), "--emptyOutDir")
    assert built.returncode == 0, built.stderr
    assert files(tmp_path / "page") == files(PAGE), "run `make page`"


@pytest.mark.verify
@pytest.mark.parametrize(
    "words", [("svelte-check", "--fail-on-warnings"), ("eslint", "."), ("vitest", "run")], ids=lambda words: words[0]
)
def test_the_sources_of_the_page_pass(words: tuple[str, ...]) -> None:
    ended = web(*words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
