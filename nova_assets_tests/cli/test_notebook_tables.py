"""What notebooks show of channels, timelines, plans and selections: the tables of the commands, as HTML."""

from __future__ import annotations

import pickle
from html.parser import HTMLParser
from typing import Any

import pytest

from nova_assets import CatalogUnavailable, Channel
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova
from nova_assets_tests.stub_engine import StubEngine

MARKUP = "<script>alert('tea')</script>"


class Cells(HTMLParser):
    """Rows of cells of all tables, and every other element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.elements: set[str] = set()
        self.is_in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.elements.add(tag)
        if tag == "tr":
            self.rows.append([])
        self.is_in_cell = tag in ("td", "th")
        if self.is_in_cell:
            self.rows[-1].append("")

    def handle_data(self, text: str) -> None:
        if self.is_in_cell:
            self.rows[-1][-1] += text

    def handle_endtag(self, tag: str) -> None:
        self.is_in_cell = False


def html_rows(shown: Any) -> list[list[str]]:
    cells = Cells(shown._repr_html_())
    assert cells.elements <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    return [[cell.strip() for cell in row if cell.strip()] for row in cells.rows]


def contains(printed: str, rows: list[list[str]]) -> bool:
    """Whether each row is a line of a printed text, apart from blanks."""
    lines = ["".join(line.split()) for line in printed.splitlines()]
    return all("".join("".join(row).split()) in lines for row in rows)


@pytest.fixture
def store(stub_store: Store, with_shop: None) -> Store:
    stub_store.register(stub_store.project)
    stub_store.insert("orders", [{"id": 1, "item": "tea", "price": 2.5}])
    stub_store.insert("stock", [{"item": "tea", "count": 7}])
    stub_store.run("sell")
    stub_store.insert("orders", [{"id": 2, "item": "jam", "price": 1.0}])
    return stub_store


def test_channels_timeline_and_plan_have_the_rows_of_the_commands(nova: Nova, store: Store) -> None:
    assert html_rows(store.channels())[0] == ["channel", "merge", "head", "rows", "bytes", "schema"]
    assert contains(nova("channels").out, html_rows(store.channels()))
    assert html_rows(store.timeline("orders"))[0] == ["seq", "block", "rows", "deleted", "bytes", "by", "time (UTC)"]
    assert contains(nova("timeline", "orders").out, html_rows(store.timeline("orders")))
    rows = html_rows(store.plan("sell"))
    assert ["port", "mode", "blocks", "files", "rows", "bytes", "way", "CPU"] in rows
    assert contains(nova("plan", "sell").out, rows)


def test_a_selection_shows_its_blocks_and_columns_and_reads_no_data(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    selection = store.read("orders", columns=["id", "price"])
    monkeypatch.delattr(StubEngine, "read")
    monkeypatch.delattr(StubEngine, "fetch")
    rows = html_rows(selection)
    assert rows[0] == ["blocks", "files", "rows", "bytes"] and rows[1][0] == "Δ(0→1) ⊕ Δ(1→2)"
    assert rows[2:] == [["column", "type"], ["id", "bigint"], ["price", "double"]]


def test_values_are_escaped(stub_store: Store) -> None:
    channel = Channel("odd", schema=f"`{MARKUP}` string")
    stub_store.register(channel)
    stub_store.insert("odd", [{MARKUP: "x"}])
    for shown in (stub_store.channels(), stub_store.read("odd")):
        assert MARKUP not in shown._repr_html_()
        assert any(MARKUP in cell for row in html_rows(shown) for cell in row)


def test_sizes_that_the_catalog_no_longer_tells_are_dashes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    channels = store.channels()
    assert pickle.loads(pickle.dumps(channels)) == list(channels)

    def history(*args: object, **options: object) -> None:
        raise CatalogUnavailable("the catalog does not answer")

    monkeypatch.setattr(store.catalog.histories, "of", history)
    assert ["orders", "Append", "2", "–", "–", "id bigint, item string, price double"] in html_rows(channels)
