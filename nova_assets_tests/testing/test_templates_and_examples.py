"""Each template of ``nova init`` and each example is incremental-safe (R12), also if rows are corrected and deleted.

People copy them, so they are checked as the project of a user would be.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import nova_assets as nova
from examples.joins import join_changes
from examples.news.pipeline import project as news
from examples.sales.pipeline import project as sales
from nova_assets.cli.init import DEFINED_PROJECTS, plan_project
from nova_assets.model.binding import Binding
from nova_assets.testing import check_incremental
from nova_assets_tests.effort import long_except

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Batches = Sequence[Sequence[Mapping[str, Any]]]


def order(n: int, day: int, amount: str | None, shop: str = "Lyon") -> dict[str, Any]:
    return {"id": n, "shop": shop, "day": f"2026-01-{day:02}", "amount": amount, "_deleted": False}


def cancelled(n: int) -> dict[str, Any]:
    return {"id": n, "shop": None, "day": None, "amount": None, "_deleted": True}


ORDERS: Batches = [
    [order(1, 1, "120.00"), order(2, 1, "9.50", "Metz"), order(3, 1, "150.00")],
    [order(1, 2, "12.00"), order(2, 2, "300.00", "Metz"), order(4, 2, None)],  # below the limit, above it, unknown
    [cancelled(3), order(5, 3, "100.00")],
]
"""New orders, corrections and cancellations."""

ARROW_SCHEMA = pa.schema(
    {"id": pa.int64(), "shop": pa.string(), "day": pa.date32(), "amount": pa.decimal128(10, 2), "_deleted": pa.bool_()}
)

TOTALS: Batches = [
    [{"shop": "Lyon", "total": "9.50", "orders": 1}, {"shop": "Metz", "total": "120.00", "orders": 2}],
    [{"shop": "Lyon", "total": "120.00", "orders": 2}, {"shop": "Metz", "total": None, "orders": 0, "_deleted": True}],
]


@dataclass(frozen=True)
class Checked:
    """A binding, and the batches of the channels that it reads."""

    binding: Binding
    inputs: Mapping[str, Batches]
    options: Mapping[str, Any] = field(default_factory=dict)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[nova.Project]:
    """The project of a template."""
    template = request.param
    planned = plan_project(f"shop_of_{template}", template, tmp_path)
    planned.write()
    monkeypatch.chdir(planned.folder)
    monkeypatch.syspath_prepend(str(planned.folder / "src"))
    module, _, name = DEFINED_PROJECTS[template].partition(":")
    loaded = getattr(importlib.import_module(f"{planned.folder.name}.{module}"), name)
    yield loaded if isinstance(loaded, nova.Project) else loaded().resources["nova"].defined_project
    for imported in [m for m in sys.modules if m.partition(".")[0] == planned.folder.name]:
        del sys.modules[imported]


@pytest.mark.parametrize("project", long_except(DEFINED_PROJECTS, "dagster", "python"), indirect=True)
def test_each_binding_of_a_template(project: nova.Project, spark: Any) -> None:
    batches = {"orders": ORDERS, "totals": TOTALS}
    for binding in project.bindings:
        written = {c.name for c in binding.writes}
        inputs = {c.name: batches[c.name] for c in binding.reads if c.name not in written}
        check_incremental(_with_function_of_asset(binding), inputs, spark, schedules=0)


def _with_function_of_asset(binding: Binding) -> Binding:
    """A binding as it is; for a plain Dagster asset, a binding whose task is the asset's function."""
    module = next((m for n, m in sys.modules.items() if n.endswith(f"defs.{binding.name}.assets")), None)
    asset = getattr(module, binding.name, None)
    if asset is None:
        return binding
    [task] = binding.tasks

    def call_asset(orders: DataFrame) -> Any:
        return asset(pa.Table.from_pylist([r.asDict() for r in orders.collect()], ARROW_SCHEMA))

    made = nova.task(name=task.name, consumes=task.consumes, produces=task.produces)(call_asset)
    return nova.bind(nova.Workflowette(binding.name, [made]))


def joined() -> Binding:
    orders = nova.Channel("orders", schema="order bigint, user bigint, amount bigint", merge=nova.Upsert("order"))
    users = nova.Channel("users", schema="user bigint, name string", merge=nova.Upsert("user"))
    both = nova.Channel("both", merge=nova.Upsert(["order", "user"]))

    @nova.task(consumes=[nova.changes(orders), nova.changes(users)], produces=nova.delta(both))
    def join(orders: nova.View, users: nova.View) -> DataFrame:
        return join_changes(orders, users, on=["user"], left_key=["order"], right_key=["user"])

    return nova.bind(nova.Workflowette("joined", [join]))


def page(n: int, site: str, url: str, text: str | None) -> dict[str, Any]:
    html = None if text is None else f"<html><body><p>The menu of the site</p><p>{text}</p></body></html>"
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n)
    return {"site": site, "url": url, "crawled_at": at, "title": url, "html": html}


PAGES: Batches = [
    [
        page(1, "a", "a/1", "The first article, which is long enough"),
        page(2, "a", "a/2", "Another article of the site"),
    ],
    [page(3, "a", "a/1", "The first article, after a correction"), page(4, "a", "a/2", None)],
    [page(5, "b", "b/1", "Another article of the site"), page(6, "a", "a/3", "The first article, after a correction")],
]
"""Crawls of pages: new ones, changed ones, a removed one, and a copy."""

TICKETS: Batches = [
    [{"product_id": "p", "price": "2.50", "day": "2022-03-31", "store": "Detroit"}] * 2,
    [{"product_id": p, "price": "1.00", "day": "2022-03-31", "store": "Detroit"} for p in "pq"],
]

EXAMPLES = {
    "joins": Checked(
        joined(),
        {
            "orders": [
                [{"order": n, "user": n % 2, "amount": n, "_deleted": False} for n in (1, 2, 3)],
                [{"order": 1, "user": 0, "amount": 7, "_deleted": False}],
                [{"order": 2, "user": None, "amount": None, "_deleted": True}],
            ],
            "users": [
                [{"user": n, "name": f"user {n}", "_deleted": False} for n in (0, 1)],
                [{"user": 1, "name": "renamed", "_deleted": False}],
                [{"user": 0, "name": None, "_deleted": True}],
            ],
        },
    ),
    "news": Checked(news.binding("dedup"), {"articles": PAGES}),
    "news templates": Checked(news.binding("detect"), {"articles": PAGES}),
    "sales": Checked(
        sales.binding("store_sales"), {"tickets": TICKETS}, {"partition": {"day": "2022-03-31", "store": "Detroit"}}
    ),
}


@pytest.mark.parametrize("example", long_except(EXAMPLES, "sales"))
def test_each_example(example: str, spark: Any) -> None:
    checked = EXAMPLES[example]
    check_incremental(checked.binding, checked.inputs, spark, schedules=0, **checked.options)
