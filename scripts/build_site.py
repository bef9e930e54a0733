"""Builds the documentation site: ``python scripts/build_site.py FOLDER``, or ``make docs``.

The pages under ``docs/`` are plain Markdown that reads well in the repository. Zensical makes HTML of a copy of them in
strict mode: a link to a page, a heading or a file that does not exist ends the build. Next to the HTML, the site has
the pages as Markdown, ``llms.txt`` (a list of them) and ``llms-full.txt`` (all in one file). The pages of the
conformance table are made of its sentences.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("tutorials", "how-to", "reference", "explanation")
IMAGES = "images"
"""The folder of ``docs/`` with pictures that pages show."""

TABLE = PurePosixPath("tests/conformance/conformance_table.py")
"""The program that generates the pages of the conformance table, if it is installed."""

CONFORMANCE = PurePosixPath("reference/conformance")
"""Their folder below ``docs/``."""

SOURCE = PurePosixPath("source")
"""The folder of the site with the files of the repository that pages link to."""

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
"""The label, target and heading of a relative link."""

FENCE = re.compile(r"^```(\w+) [\w ]+$", re.MULTILINE)
"""An opening fence with options for the tests after its language, which Zensical does not accept."""


class BrokenDocs(Exception):
    """The site cannot be built; the message names the page."""


@dataclass(frozen=True)
class Page:
    """A page of the navigation.

    Attributes:
        path: Below ``docs/``.
        text: Its Markdown.
        pages: The pages that an index page lists, in its order.
    """

    path: PurePosixPath
    text: str
    pages: list[Page] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def summary(self) -> str:
        """The first paragraph, with links as plain text."""
        paragraph = self.text.split("\n\n")[1].removeprefix("> ")
        return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))


def build(root: Path, folder: Path) -> Path:
    """Builds the site of the repository at ``root`` in ``folder``, which is cleared first.

    Returns:
        The folder to serve.

    Raises:
        BrokenDocs: a link leads nowhere, or no index page lists a page.
    """
    docs = complete_docs(root, folder)
    start = read_page(docs, PurePosixPath("index.md"))
    sections = [read_index(docs, PurePosixPath(section, "index.md")) for section in SECTIONS]
    pages = [start, *(page for section in sections for page in walk(section))]
    require_listed(docs, pages)
    for page in pages:
        copy = folder / "pages" / page.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(FENCE.sub(r"```\1", with_sources(root, folder / "pages", page)), encoding="utf-8")
    if (docs / IMAGES).is_dir():
        shutil.copytree(docs / IMAGES, folder / "pages" / IMAGES)
    for picture in docs.rglob("*.svg"):
        shutil.copyfile(picture, folder / "pages" / picture.relative_to(docs))
    config = (docs / "zensical.toml").read_text(encoding="utf-8")
    entries = ",\n".join(f"  {entry(section)}" for section in sections)
    (folder / "zensical.toml").write_text(config.replace("nav = []", f'nav = [\n  "index.md",\n{entries},\n]'))
    run_zensical(folder)
    site = folder / "site"
    for page in pages:
        shutil.copyfile(folder / "pages" / page.path, site / page.path)
    (site / "llms.txt").write_text(overview(start, sections), encoding="utf-8")
    (site / "llms-full.txt").write_text("".join(whole(folder / "pages", page) for page in pages), encoding="utf-8")
    return site


def complete_docs(root: Path, folder: Path) -> Path:
    """A copy of ``docs/`` with the generated pages, in ``folder``, which is cleared first."""
    shutil.rmtree(folder, ignore_errors=True)
    docs = shutil.copytree(root / "docs", folder / "docs")
    if (root / TABLE).is_file():
        subprocess.run([sys.executable, str(root / TABLE), str(docs / CONFORMANCE)], check=True)
    return docs


def read_page(docs: Path, path: PurePosixPath) -> Page:
    """A page by its path below ``docs``."""
    text = (docs / path).read_text(encoding="utf-8")
    if not re.match(r"# .+\n\n(?![-#|<\s]|```)", text):
        raise BrokenDocs(f"docs/{path}: a page begins with a title and a paragraph that says what it is about")
    return Page(path, text)


def read_index(docs: Path, path: PurePosixPath) -> Page:
    """An index page with its pages: the target of the first link of each item, and those of nested indexes."""
    index = read_page(docs, path)
    for target in re.findall(r"^(?:- |\| )\[[^]]+\]\(([^)#:\s]+\.md)\)", index.text, re.MULTILINE):
        listed = resolved(path, target)
        if not (docs / listed).is_file():
            raise BrokenDocs(f"docs/{path}: {target} does not exist")
        index.pages.append(read_index(docs, listed) if listed.name == "index.md" else read_page(docs, listed))
    return index


def walk(page: Page) -> Iterator[Page]:
    """The page and its descendants, in the order of the navigation."""
    yield page
    for below in page.pages:
        yield from walk(below)


def require_listed(docs: Path, pages: list[Page]) -> None:
    """Raises :class:`BrokenDocs` if a page is not in the navigation."""
    listed = {docs / page.path for page in pages}
    forgotten = sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md") if page not in listed)
    if forgotten:
        raise BrokenDocs(f"no index page lists {', '.join(forgotten)}")


def resolved(page: PurePosixPath, target: str) -> PurePosixPath:
    """The target of a relative link of a page, from ``docs/``; outside of it the path begins with ``..``."""
    return PurePosixPath(os.path.normpath(page.parent / target))


def with_sources(root: Path, pages: Path, page: Page) -> str:
    """The text of a page whose links out of ``docs/`` lead to copies of the files, shown as text; those to folders are
    left out.
    """

    def moved(link: re.Match[str]) -> str:
        label, target, heading = link.groups(default="")
        path = resolved(page.path, target)
        if path.parts[0] != "..":
            is_folder = (root / "docs" / path).is_dir()
            return f"[{label}]({target}/index.md{heading})" if is_folder else link[0]
        file = PurePosixPath(*path.parts[1:])
        if (root / file).is_dir():
            return label
        if not (root / file).is_file():
            raise BrokenDocs(f"docs/{page.path}: {target} is not a file of the repository")
        copy = SOURCE / f"{file}.txt"
        (pages / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, pages / copy)
        return f"[{label}]({os.path.relpath(copy, page.path.parent)})"

    return LINK.sub(moved, page.text)


def entry(page: Page) -> str:
    """A page of the navigation as TOML."""
    if not page.pages:
        return json.dumps(str(page.path))
    entries = ", ".join([json.dumps(str(page.path)), *map(entry, page.pages)])
    return f"{{ {json.dumps(page.title)} = [{entries}] }}"


def run_zensical(folder: Path) -> None:
    """Builds ``folder/site`` from ``folder/pages``."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "zensical.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"}, check=False)
    if ended.returncode:
        raise BrokenDocs(re.sub(r"\x1b\[[\d;]*m", "", ended.stdout + ended.stderr.partition("Traceback")[0]).strip())


def overview(start: Page, sections: list[Page]) -> str:
    """``llms.txt``: each page with its summary."""
    parts = [f"# {start.title}\n\n> {start.summary}\n\nAll pages in one file: [llms-full.txt](llms-full.txt)\n"]
    for section in sections:
        parts.append(f"\n## {section.title}\n\n")
        parts += [f"- [{page.title}]({page.path}): {page.summary}\n" for page in walk(section)]
    return "".join(parts)


def whole(pages: Path, page: Page) -> str:
    """A page in ``llms-full.txt``: its path, and its text with links from the site's root."""

    def from_root(link: re.Match[str]) -> str:
        label, target, heading = link.groups(default="")
        return f"[{label}]({resolved(page.path, target)}{heading})"

    return f"<!-- page: {page.path} -->\n\n{LINK.sub(from_root, (pages / page.path).read_text(encoding='utf-8'))}\n"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("folder", type=Path, help="emptied first; the site is FOLDER/site")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    arguments = parser.parse_args()
    try:
        site = build(arguments.root, arguments.folder.resolve())
    except BrokenDocs as error:
        sys.exit(str(error))
    print(f"{site}\n{sys.executable} -m http.server --directory {site} 8000 shows it at http://127.0.0.1:8000")


if __name__ == "__main__":
    main()
