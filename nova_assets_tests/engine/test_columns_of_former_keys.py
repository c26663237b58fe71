"""Changes from before a changed merge model, after the columns of the former key were dropped, renamed or replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova

pytestmark = pytest.mark.spark

FORMER, PRESENT = nova.Upsert(key=["k0", "k1"]), nova.Upsert(key="o")
COLUMNS = "k0 int, k1 int, o int, v int"


@pytest.fixture
def store(spark: Any, tmp_path: Path) -> Iterator[nova.Store]:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as opened:
        opened.register(nova.Channel("t", merge=FORMER, schema=COLUMNS))
        opened.insert("t", [{"k0": 1, "k1": 1, "o": 1, "v": 1}, {"k0": 1, "k1": 2, "o": 2, "v": 1}], kind="base")
        opened.insert("t", [{"k0": 1, "k1": 1, "o": 3, "v": 5, "_deleted": False}])
        opened.register(nova.Channel("t", merge=PRESENT, schema=COLUMNS), replace=True)
        rows = opened.read("t", at=2).to_arrow().to_pylist()
        assert sorted(r["o"] for r in rows) == [2, 3]
        opened.insert("t", rows, kind="base")
        yield opened


def changes(store: nova.Store, since: int) -> list[tuple[Any, ...]]:
    table = store.read("t", since=since).to_arrow()
    streamed = list(store.read("t", since=since).to_batches())
    assert sum(b.num_rows for b in streamed) == table.num_rows
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize(
    ("schema", "renamed"),
    [
        ("k0 int, o int, v int", {}),
        ("k0 int, k1 int, o int, v int", None),
        ("k0 int, o int, v int, k2 int", {"k2": "k1"}),
        ("k0 int, o int, v int, k1 int", {"k1": "k0", "k0": "k1"}),
    ],
    ids=["dropped", "replaced by another of its name", "renamed", "exchanged"],
)
def test_the_former_snapshot_is_merged_by_its_own_columns(
    store: nova.Store, schema: str, renamed: dict[str, str] | None
) -> None:
    if renamed is None:  # dropped, and another column gets its name
        store.register(nova.Channel("t", merge=PRESENT, schema="k0 int, o int, v int"), replace=True)
    store.register(nova.Channel("t", merge=PRESENT, schema=schema, renamed=renamed or {}), replace=True)
    names = [column.split()[0] for column in schema.split(", ")]
    store.insert("t", [dict.fromkeys(names, 9) | {"_deleted": False}])
    found = changes(store, 2)
    assert len(found) == 1 and 9 in found[0] and found[0][-1] is False, "the rows of version 2 are in the base"
    from_one = [row for row in changes(store, 1) if row[-1]]
    assert len(from_one) == 1, "only the row with o = 1 was replaced"
    with pytest.raises(nova.NotSupported, match="was merged by columns that were dropped or renamed later"):
        store.restore("t", 2)
    store.restore("t", 3)
    assert [row[-1] for row in changes(store, 4)] == [True], "the row with o = 9 came after version 3"


def test_a_key_that_comes_back_with_another_column(store: nova.Store) -> None:
    store.register(nova.Channel("t", merge=PRESENT, schema="k0 int, o int, v int"), replace=True)
    store.register(nova.Channel("t", merge=PRESENT, schema=COLUMNS), replace=True)
    store.register(nova.Channel("t", merge=FORMER, schema=COLUMNS), replace=True)
    store.insert("t", [{"k0": 1, "k1": 7, "o": 2, "v": 1}, {"k0": 2, "k1": 7, "o": 3, "v": 5}], kind="base")
    found = changes(store, 2)
    assert [row for row in found if not row[-1]] == [(1, 7, 2, 1, False), (2, 7, 3, 5, False)]
    assert [row for row in found if row[-1]] == [(1, None, 2, 1, True), (1, None, 3, 5, True)]


@pytest.mark.parametrize("strategy", [None, "spark"])
@pytest.mark.parametrize("merge", [nova.Append(), nova.Upsert(key="k")])
def test_a_new_column_whose_name_differs_from_a_dropped_one_in_case_only(
    spark: Any, tmp_path: Path, merge: Any, strategy: Any
) -> None:
    """Spark finds columns of Parquet files without regard to case."""
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("t", merge=merge, schema="k int, v int"))
        store.insert("t", [{"k": 1, "v": 5}], kind="base")
        store.register(nova.Channel("t", merge=merge, schema="k int"), replace=True)
        store.register(nova.Channel("t", merge=merge, schema="k int, V int"), replace=True)
        store.insert("t", [{"k": 2, "V": 2}])
        store.engine.reader.forced_strategy = strategy
        for rows in (
            store.read("t").to_arrow().to_pylist(),
            [r.asDict() for r in store.read("t").to_spark().collect()],
        ):
            assert sorted((r["k"], r["V"]) for r in rows) == [(1, None), (2, 2)]


def test_a_model_that_waits_for_its_base_does_not_decide_what_is_told(spark: Any, tmp_path: Path) -> None:
    """A base of the partition came after the drop, so the dropped rows are not told."""
    places = nova.dynamic("p")
    schema = "p string, k int, v int"
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("t", merge=nova.Upsert(key=["p", "k"]), schema=schema, partitions=places))
        store.insert("t", [{"p": "a", "k": 1, "v": 1}])
        store.insert("t", [{"p": "b", "k": 1, "v": 1}])
        store.drop("t", {"p": "b"})
        empty = store.read("t").to_arrow().slice(0, 0)
        store.insert("t", empty, kind="base", partition={"p": "b"})
        before = store.read("t", since=1).to_arrow().to_pylist()
        store.register(nova.Channel("t", merge=nova.Append(), schema=schema, partitions=places), replace=True)
        assert store.read("t", since=1).to_arrow().to_pylist() == before == []
