"""Sums of decimals that may have more digits than their type: small ones are added to, and others computed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.sql.incremental.accumulation import accumulation_of
from nova_assets.store.store import Store
from nova_assets_tests.effort import long_except
from nova_assets_tests.sql.incremental.forced_strategy import force_strategy
from nova_assets_tests.sql.incremental.test_fast_floats import operators_of

pytestmark = pytest.mark.spark

ROWS = nova.Channel("rows", merge=nova.Upsert(key="id"), schema="id int, g int, a decimal(38,2), b decimal(15,2)")
SUMS = nova.Channel(
    "sums", merge=nova.Upsert(key="g"), schema="g int, a decimal(38,2), product decimal(38,6), n bigint"
)
SQL = "SELECT g, SUM(a) AS a, SUM(b * (1 - b) * (1 + b)) AS product, COUNT(a) AS n FROM rows GROUP BY g"
MANY = Decimal("4" * 36 + ".99")
"""Two of these values fit into the type of their sum; three do not."""


@pytest.fixture(autouse=True)
def changes_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    force_strategy(monkeypatch, "changes")


@contextmanager
def deployed(spark: Any, root: Path) -> Iterator[Store]:
    keep = nova.incremental("keep", SQL, produces=nova.delta(SUMS))
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]), channels={"rows": ROWS})], channels=[ROWS])
    with nova.open(project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark) as store:
        store.register(project)
        yield store


def row(number: int, group: int, a: Decimal | int | None, b: Decimal | int | None = 1) -> dict[str, Any]:
    return {"id": number, "g": group, "a": a, "b": b}


def check(store: Store, spark: Any) -> None:
    store.run("keep")
    store.read("rows").to_spark().createOrReplaceTempView("rows")
    expected = sorted(map(tuple, spark.sql(SQL).collect()))
    assert sorted(tuple(r.values()) for r in store.read("sums").to_arrow().to_pylist()) == expected


@contextmanager
def ansi(spark: Any, enabled: bool) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(enabled).lower())
    try:
        yield
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


HISTORY = [
    [row(1, 1, 5, 2), row(2, 1, None, None), row(3, 2, Decimal("0.01"), Decimal("99999999.99"))],
    [row(1, 1, -7, 3), row(4, 2, 3, Decimal("-99999999.99")), row(5, 3, MANY)],
    [row(6, 1, MANY), row(7, 3, -MANY), row(8, 3, 1)],
    [row(6, 1, -MANY), row(7, 3, -1), row(9, 4, None, None)],
    [{"id": 5, "_deleted": True}, row(9, 4, MANY)],
    [{"id": 9, "_deleted": True}, row(3, 2, 2), row(8, 3, 2, 5)],
]


@pytest.mark.parametrize("is_ansi", long_except([True, False], True))
def test_sums_near_the_greatest_value_are_those_of_spark(spark: Any, tmp_path: Path, is_ansi: bool) -> None:
    with ansi(spark, is_ansi), deployed(spark, tmp_path) as store:
        for change in HISTORY:
            store.insert("rows", change)
            check(store, spark)
        strategies = {e.details["tasks"][0]["facts"]["maintenance"]["strategy"] for e in store.timeline("sums")}
        assert strategies == {"first rows", "changes"}


def test_a_sum_that_exceeds_its_type_is_null_as_in_spark(spark: Any, tmp_path: Path) -> None:
    with ansi(spark, False), deployed(spark, tmp_path) as store:
        for change in ([row(1, 1, 5)], [row(n, 1, MANY) for n in (2, 3, 4)], [row(3, 1, 2)], [row(2, 1, 1)]):
            store.insert("rows", change)
            check(store, spark)


def test_a_sum_that_exceeds_its_type_fails_until_it_fits(spark: Any, tmp_path: Path) -> None:
    with ansi(spark, True), deployed(spark, tmp_path) as store:
        store.insert("rows", [row(1, 1, 5)])
        check(store, spark)
        store.insert("rows", [row(n, 1, MANY) for n in (2, 3, 4)])
        with pytest.raises(nova.NovaError):
            store.run("keep")
        store.insert("rows", [row(3, 1, 2)])
        check(store, spark)


@pytest.mark.core
def test_sums_that_lose_digits_in_an_addition_are_not_added_to() -> None:
    for scale, is_accumulated in ((6, True), (7, False)):
        sql = f"SELECT g, SUM(CAST(v AS DECIMAL(38, {scale}))) AS s FROM a GROUP BY g"
        assert (accumulation_of(operators_of(sql, adds_floats=False)) is not None) == is_accumulated


INTEGERS = nova.Channel("integers", merge=nova.Upsert(key="id"), schema="id int, g int, v bigint, d decimal(38,0)")
SUMS_OF_INTEGERS = "SELECT g, SUM(v) AS s, SUM(d) AS d, COUNT(v) AS n FROM integers GROUP BY g"
LEAST, GREATEST = -(2**63), 2**63 - 1


def test_a_change_beyond_the_greatest_integer_leads_to_a_sum_that_fits(spark: Any, tmp_path: Path) -> None:
    keep = nova.incremental("keep", SUMS_OF_INTEGERS, produces=nova.delta(nova.Channel("sums", nova.Upsert(key="g"))))
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]))], channels=[INTEGERS])
    history = (
        [(1, 1, -5 * 10**18), (2, 2, LEAST), (3, 3, 1)],
        [(1, 1, 5 * 10**18), (2, 2, GREATEST), (3, 3, GREATEST)],
        [(1, 1, None), (2, 2, LEAST), (4, 3, -GREATEST), (5, 4, 7)],
    )
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        for change in history:
            rows = [(n, g, v, None if v is None else Decimal(v * 10**19)) for n, g, v in change]
            store.insert("integers", [dict(zip(("id", "g", "v", "d"), values, strict=True)) for values in rows])
            strategy = store.run("keep").tasks[0].facts["maintenance"]["strategy"]
            store.read("integers").to_spark().createOrReplaceTempView("integers")
            expected = sorted(map(tuple, spark.sql(SUMS_OF_INTEGERS).collect()))
            assert sorted(tuple(r.values()) for r in store.read("sums").to_arrow().to_pylist()) == expected
    assert strategy == "changes"
