"""The documentation site: complete, whole, and fetched from nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "tests/conformance/sentences").glob("*.yaml") if path.stem != "sources")
CONFORMANCE = Path("reference/conformance")
PAGES = sorted(
    {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    | {CONFORMANCE / f"{source.stem}.md" for source in SOURCES}
)
"""Those of the repository, and those that the build makes."""
PATIENCE_S = 120


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "build_site.py"), str(folder), "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    ended = build(ROOT, folder)
    assert ended.returncode == 0, ended.stderr
    return folder / "site"


def written(site: Path, page: Path) -> str:
    """The text that the site's page is made of."""
    return (site.parent / "docs" / page).read_text()


def html_of(site: Path, page: Path) -> Path:
    return site / (page.parent if page.name == "index.md" else page.with_suffix("")) / "index.html"


@pytest.mark.xdist_group("docs_site")
def test_every_page_is_there_as_html_and_as_markdown(site: Path) -> None:
    for page in PAGES:
        assert html_of(site, page).is_file(), page
        assert (site / page).read_text().startswith(written(site, page).partition("\n")[0])


@pytest.mark.xdist_group("docs_site")
def test_the_pages_of_the_repository_are_those_of_the_site(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    changed = {page for page in pages if written(site, page) != (ROOT / "docs" / page).read_text()}
    assert changed == {CONFORMANCE / "index.md"}


@pytest.mark.xdist_group("docs_site")
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_each_row_of_the_conformance_table_is_on_its_page(site: Path, source: Path) -> None:
    rows = re.findall(r"^- id: (\S+)$", source.read_text(), re.MULTILINE)
    page = html_of(site, CONFORMANCE / f"{source.stem}.md").read_text()
    assert rows and [row for row in rows if f'id="{row.lower()}"' not in page] == []
    assert f'href="{source.stem}/"' in html_of(site, CONFORMANCE / "index.md").read_text()


@pytest.mark.xdist_group("docs_site")
def test_every_page_is_found_by_search(site: Path) -> None:
    found = {item["location"].partition("#")[0] for item in json.loads((site / "search.json").read_text())["items"]}
    assert {html_of(Path(), page).parent.as_posix().strip(".") + "/" for page in PAGES} - {"/"} <= found


@pytest.mark.xdist_group("docs_site")
def test_readers_choose_between_light_and_dark(site: Path) -> None:
    schemes = re.findall(r'data-md-color-scheme="(\w+)"', (site / "index.html").read_text())
    assert {"default", "slate"} <= set(schemes)


@pytest.mark.xdist_group("docs_site")
def test_lists_tables_and_code_are_shown_as_such(site: Path) -> None:
    """Zensical wants an empty line before a list, and none of the words that tests read behind a fence."""
    for page in PAGES:
        text = html_of(site, page).read_text()
        paragraphs = re.findall(r"<p>(.*?)</p>", text, re.DOTALL)
        assert [one for one in paragraphs if re.search(r"^(?:- |\| |\d+\. )", one, re.MULTILINE)] == [], page
        assert "```" not in text, page


class Loaded(HTMLParser):
    """What a browser loads for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("prev", "next", "canonical"):
            return
        address = given.get("href") if tag == "link" else given.get("src") or given.get("srcset")
        if tag != "a" and address:
            self.addresses.append(address)


@pytest.mark.xdist_group("docs_site")
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.addresses, page
        assert [address for address in loaded.addresses if "//" in address] == [], page
        assert re.findall(r'class="[^"]*(?:mermaid|glightbox|pyodide)', page.read_text()) == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*|@import[^;]*", style.read_text()) == [], style


@pytest.mark.xdist_group("docs_site")
def test_the_overview_for_programs_names_every_page_and_says_what_it_is_about(site: Path) -> None:
    listed = re.findall(r"^- \[.+\]\((.+\.md)\): \w|^- \[.+\]\((.+\.md)\): `", (site / "llms.txt").read_text(), re.M)
    assert sorted(Path(one or other) for one, other in listed) == [page for page in PAGES if page != Path("index.md")]


@pytest.mark.xdist_group("docs_site")
def test_the_whole_for_programs_has_every_page_and_links_that_hold(site: Path) -> None:
    whole = (site / "llms-full.txt").read_text()
    for page in PAGES:
        text = written(site, page)
        plain = [line for line in text.splitlines() if "](" not in line and not line.startswith("```")]
        (held,) = (part for part in whole.split("<!-- page: ") if part.startswith(f"{page} -->"))
        assert [line for line in plain if line not in held.splitlines()] == []
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", whole)
    assert [link for link in links if not (site / link).exists()] == []


def small(root: Path, **pages: str) -> Path:
    """A repository with a page in each section, and others."""
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "zensical.toml").write_text((ROOT / "docs" / "zensical.toml").read_text())
    (root / "docs" / "index.md").write_text("# Small\n\nA small site.\n")
    for section in ("tutorials", "how-to", "reference", "explanation"):
        (root / "docs" / section).mkdir()
        (root / "docs" / section / "index.md").write_text(f"# {section}\n\nWhat is in it.\n")
    for name, text in pages.items():
        (root / "docs" / "reference" / f"{name}.md").write_text(text)
    return root


LISTED = "# Reference\n\nPages.\n\n- [One](one.md): the one.\n"


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ({"index": LISTED, "one": "# One\n\nA [link](two.md).\n"}, "reference/one.md:3:10"),
        ({"index": LISTED, "one": "# One\n\nA [link](index.md#nowhere).\n"}, "reference/one.md:3:19"),
        ({"index": LISTED, "one": "# One\n\nA [link](../../src/gone.py).\n"}, "../../src/gone.py is not a file"),
        ({"index": LISTED}, "one.md does not exist"),
        ({"one": "# One\n\nForgotten.\n"}, "no index page lists reference/one.md"),
        ({"index": LISTED, "one": "# One\n\n- No paragraph.\n"}, "docs/reference/one.md: a page begins with"),
    ],
    ids=["page", "heading", "file", "listed", "forgotten", "summary"],
)
def test_a_fault_ends_the_build_and_names_its_place(tmp_path: Path, pages: dict[str, str], message: str) -> None:
    ended = build(small(tmp_path / "root", **pages), tmp_path / "out")
    assert ended.returncode == 1
    assert message in ended.stderr


def test_a_site_without_faults_is_built(tmp_path: Path) -> None:
    page = "# One\n\nA [link](index.md), a [file](../../LICENSE).\n\n```yaml steps\na: 1\n```\n"
    root = small(tmp_path / "root", index=LISTED, one=page)
    (root / "LICENSE").write_text("As you like.\n")
    ended = build(root, tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    site = tmp_path / "out" / "site"
    assert (site / "source" / "LICENSE.txt").read_text() == "As you like.\n"
    assert "```yaml\na: 1\n```" in (site / "reference" / "one.md").read_text()
