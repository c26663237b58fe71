"""`make docs`: each link that leads nowhere is named. (`make check` builds the whole site.)"""

from __future__ import annotations

from pathlib import Path

from tools import docs_site


def a_site(folder: Path, index: str) -> Path:
    """A finished site with two pages and a picture."""
    (folder / "guides").mkdir(parents=True)
    (folder / "index.html").write_text(index)
    (folder / "guides" / "index.html").write_text('<h2 id="joins">Joins</h2>')
    (folder / "picture.svg").write_text("<svg/>")
    return folder


def test_links_that_lead_somewhere_are_accepted(tmp_path: Path) -> None:
    links = '<a href="guides/#joins"></a><a href="guides/"></a><img src="picture.svg"><a href="https://example.org/x">'
    assert list(docs_site.broken_links(a_site(tmp_path, links))) == []


def test_a_broken_link_an_anchor_and_a_picture_are_named(tmp_path: Path) -> None:
    links = '<a href="guides/#merge"></a><a href="decisions/"></a><img src="pictures/gone.svg"><a href="#here">'
    assert list(docs_site.broken_links(a_site(tmp_path, links))) == [
        "index.html: #here: the page has no such anchor",
        "index.html: decisions/ does not exist",
        "index.html: guides/#merge: the page has no such anchor",
        "index.html: pictures/gone.svg does not exist",
    ]


def test_links_from_the_root_of_the_repository_become_links_between_pages() -> None:
    text = '[a](docs/guides/sql.md#x), [b](CHANGELOG.md), ![c](docs/pictures/d.svg), <img src="docs/pictures/e.svg">'
    expected = '[a](guides/sql.md#x), [b](changelog.md), ![c](pictures/d.svg), <img src="pictures/e.svg">'
    assert docs_site.relative_to_docs(text) == expected


def test_every_page_is_in_the_navigation_and_every_decision_in_the_list(tmp_path: Path) -> None:
    docs_site.copy_pages(docs_site.ROOT, tmp_path)
    assert list(docs_site.pages_without_entry(tmp_path)) == []
    decisions = (tmp_path / "pages" / "decisions" / "index.md").read_text()
    for page in (docs_site.ROOT / "docs" / "decisions").glob("*.md"):
        assert f"({page.name})" in decisions
    (tmp_path / "pages" / "guides" / "lost.md").write_text("# Lost\n")
    assert list(docs_site.pages_without_entry(tmp_path)) == ["docs/zensical.toml: nav has no entry for guides/lost.md"]
