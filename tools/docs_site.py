"""Builds the site of docs/ in build/docs/site (`make docs`, and part of `make check`).

README, CHANGELOG and CONTRIBUTING become pages, and guides/ and decisions/ get a list of their pages. So each link that
works in the repository works in the site. The build fails if a link, an anchor or a picture leads nowhere. Zensical
checks links between pages, and names the line. It does not look at pictures and folders. So each address in the
finished pages is checked here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "docs"
FROM_ROOT = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""File in the root of the repository -> page."""
LISTS = {"guides": "Guides", "decisions": "Decisions"}
"""Folder -> title of the list of its pages."""


def copy_pages(root: Path, build: Path) -> None:
    """Copy docs/ and the files of ``FROM_ROOT``, and write the lists of pages."""
    shutil.rmtree(build, ignore_errors=True)
    pages = build / "pages"
    shutil.copytree(root / "docs", pages, ignore=shutil.ignore_patterns("zensical.toml"))
    shutil.copy(root / "docs" / "zensical.toml", build)
    for file, page in FROM_ROOT.items():
        (pages / page).write_text(relative_to_docs((root / file).read_text(encoding="utf-8")), encoding="utf-8")
    for folder, title in LISTS.items():
        (pages / folder / "index.md").write_text(list_of_pages(pages / folder, title), encoding="utf-8")


def relative_to_docs(text: str) -> str:
    """Text from the root of the repository, with links and pictures relative to docs/."""
    text = re.sub(r'(\]\(|(?:src|srcset)=")docs/', r"\1", text)
    return re.sub(r"\]\((README|CHANGELOG|CONTRIBUTING)\.md", lambda m: f"]({FROM_ROOT[m[1] + '.md']}", text)


def list_of_pages(folder: Path, title: str) -> str:
    """Page with a link to each page of a folder."""
    lines = [f"# {title}", ""]
    for page in sorted(folder.glob("*.md")):
        number = f"{page.name[:4]} " if page.name[:4].isdigit() else ""
        heading = re.sub(r"^# (\d{4}:? )?", "", page.read_text(encoding="utf-8").splitlines()[0])
        lines.append(f"- [{number}{heading[:1].upper()}{heading[1:]}]({page.name})")
    return "\n".join(lines) + "\n"


class Page(HTMLParser):
    """Anchors of a finished page, and the addresses that the page links to or shows."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value and tag != "base":
                self.addresses.add(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Each address in the site that leads nowhere, with its page. Other sites are not asked."""
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    for file, page in sorted(pages.items()):
        for address in sorted(page.addresses):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{file.relative_to(site)}: {address} does not exist"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{file.relative_to(site)}: {address}: the page has no such anchor"


def pages_without_entry(build: Path) -> Iterator[str]:
    """Each page that the navigation leaves out. Decisions are reached by their list."""
    navigation = (build / "zensical.toml").read_text(encoding="utf-8")
    for page in sorted((build / "pages").rglob("*.md")):
        name = page.relative_to(build / "pages").as_posix()
        if f'"{name}"' not in navigation and page.parent.name != "decisions":
            yield f"docs/zensical.toml: nav has no entry for {name}"


def main() -> int:
    copy_pages(ROOT, BUILD)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(BUILD / "zensical.toml")]
    built = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
    if built.returncode:
        print(built.stdout + built.stderr, file=sys.stderr)
        return 1
    problems = [*pages_without_entry(BUILD), *broken_links(BUILD / "site")]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    print("To read the site: python3 -m http.server --directory build/docs/site")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
