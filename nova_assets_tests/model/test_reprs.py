"""What a notebook shows of a public object fits on two lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

WIDE = ", ".join(f"a_column_with_a_long_name_{n} decimal(38,18)" for n in range(40))


def reachable(value: Any, met: set[int]) -> Iterator[Any]:
    """The dataclasses of this package that a value is made of."""
    if id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, Mapping):
        for part in value.values():
            yield from reachable(part, met)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from reachable(part, met)
    elif is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("nova_assets."):
        yield value
        for field in fields(value):
            yield from reachable(getattr(value, field.name), met)


@pytest.mark.slow
def test_everything_that_a_store_gives_fits_on_two_lines(tmp_path: Path) -> None:
    wide = nova.Channel("wide", schema=f"k bigint, p string, {WIDE}", description="long " * 100, tags={"a": "b" * 300})
    source = nova.Channel("source", schema="p string, k bigint, v bigint", partitions=nova.dynamic("p"), retain="7d")
    table = nova.Channel(
        "table", merge=nova.Keyed(key=["p", "k"], combine={"v": "sum"}), schema="p string, k bigint, v bigint",
        partitions=nova.dynamic("p"),
    )  # fmt: skip

    @nova.task(consumes=[nova.new(source), nova.all(wide)], produces=nova.delta(table, columns={"v": "source.v"}))
    def copy(source: Any, wide: Any) -> Any:
        """A long description. """ + "word " * 100
        return source

    @nova.check(nova.new(table))
    def has_rows(table: Any) -> bool:
        return bool(table)

    when = nova.on_data(source) & nova.after("other") | nova.every("5m")
    bound = nova.bind(nova.Workflowette("w", [copy], checks=[has_rows]), when=when, params={"x": list(range(500))})

    @nova.task(consumes=nova.new(wide))
    def look(wide: Any) -> None: ...

    project = nova.Project([bound, nova.bind(nova.Workflowette("other", [look]))])
    settings = load_settings(
        start_folder=tmp_path, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")
    )
    with Store(settings, project, open_catalog(settings.catalog), StubEngine(tmp_path / "wh", "k bigint")) as store:
        rows = [{"p": f"partition {n}", "k": n, "v": n} for n in range(50)]
        commit = store.insert("source", rows)
        store.register(wide)
        planned, done = store.plan("w", whole=True), store.run("w", whole=True)
        states = [
            store.channels(),
            store.timeline("table"),
            store.cursors(),
            store.partitions("table"),
            store.held("table"),
        ]
        given = [project, commit, planned, done, states, store.executions(), store.compactable("table"), settings]
        long = {
            type(found).__name__: repr(found)
            for found in reachable(given, set())
            if len(repr(found)) > 160 or "\n" in repr(found)
        }
        assert not long, long
        assert repr(store).startswith("<Store of ") and len(repr(store)) < 160


def test_a_repr_begins_with_the_name_and_leaves_defaults_out() -> None:
    orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id bigint")
    assert repr(orders) == "Channel('orders', merge=Upsert(keys=['id']), schema=id bigint)"
