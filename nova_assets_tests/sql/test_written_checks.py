"""Checks in the statement of a dataset: ``CHECK not_null(shop)`` and ``WARN freshness(day, '25h')``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import CheckFailed, SqlError

orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id bigint, shop string, amount double")
shops = nova.Channel("shops", schema="name string")


def folder_with(tmp_path: Path, **statements: str) -> Path:
    for name, sql in statements.items():
        (tmp_path / f"{name}.sql").write_text(sql)
    return tmp_path


def checks_of(tmp_path: Path, options: str) -> list[nova.Check]:
    folder = folder_with(tmp_path, totals=f"{options}\nSELECT shop, SUM(amount) AS total FROM orders GROUP BY shop")
    [binding] = nova.datasets(folder, channels=[orders, shops])
    return list(binding.checks)


def test_the_checks_are_those_of_nova_checks(tmp_path: Path) -> None:
    checks = checks_of(
        tmp_path,
        "CHECK not_null(shop, total), UNIQUE (shop), expression(total >= 0 AND shop NOT IN ('a,b', 'c'))\n"
        "REFRESH INCREMENTAL\nWARN row_count_between(1, 1000) -- few\nCHECK relationships(shop, shops.name)\n"
        "WARN accepted_values(total, -1, 2.5)",
    )
    assert [(c.name, c.blocking) for c in checks] == [
        ("not_null_shop_total", True),
        ("unique_shop", True),
        ("expression", True),
        ("row_count", False),
        ("relationships_shop", True),
        ("accepted_values_total", False),
    ]
    assert [(e.port, e.mode) for e in checks[4].consumes] == [("totals", "new"), ("shops", "all")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("CHECK not_nul(shop)", "not_nul is no check.*did you mean 'not_null'"),
        ("CHECK not_null(town)", "no such column"),
        ("CHECK not_null()", "got no column"),
        ("CHECK not_null(shop", "the parenthesis is not closed|options without a query"),
        ("WARN relationships(shop, markets.id)", "markets is no channel"),
        ("WARN relationships(shop)", "relationships has other arguments"),
        ("CHECK freshness(total, 'soon')", "unusable period"),
        ("CHECK row_count_between(a + 1)", "is no argument of a check"),
        ("CHECK not_null(shop), REFRESH FULL", "REFRESH is no check"),
    ],
)
def test_a_wrong_check_is_refused_at_its_place(tmp_path: Path, options: str, expected: str) -> None:
    with pytest.raises(SqlError, match=f"(?s){expected}") as error:
        checks_of(tmp_path, options)
    assert "^" in str(error.value) and "totals.sql" in str(error.value)


@pytest.mark.spark
def test_a_dataset_that_fails_its_check_publishes_nothing(tmp_path: Path, spark: Any) -> None:
    folder = folder_with(
        tmp_path,
        totals="CHECK expression(total < 100), unique(shop) "
        "SELECT shop, SUM(amount) AS total FROM orders GROUP BY shop",
        bag="WARN expression(amount < 50) SELECT shop, amount FROM orders WHERE amount > 1",
    )
    project = nova.Project(nova.datasets(folder, channels=[orders]))
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.register(project)
        store.insert("orders", [{"id": 1, "shop": "a", "amount": 60.0}, {"id": 2, "shop": "b", "amount": 5.0}])
        store.run("totals")
        [warned] = store.run("bag").checks
        assert (warned.passed, warned.metadata["rows"]) == (False, 1)
        store.insert("orders", [{"id": 3, "shop": "a", "amount": 70.0}])
        with pytest.raises(CheckFailed, match="expression"):
            store.run("totals")
        assert store.read("totals").to_pandas().set_index("shop")["total"].to_dict() == {"a": 60.0, "b": 5.0}
        store.insert("orders", [{"id": 3, "shop": "a", "amount": 7.0}])
        store.run("totals")
        assert store.read("totals").to_pandas().set_index("shop")["total"].to_dict() == {"a": 67.0, "b": 5.0}
