"""Sums of ``Keyed`` channels: what would leave its column's type is refused, with key, column and value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.commit import CommitRequest
from nova_assets.settings import load_settings
from nova_assets.store.store import Store

pytestmark = pytest.mark.slow

MOST = 2**31 - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as store:
        yield store


def opened(root: Path, spark: Any = None, strategy: str = "auto") -> Store:
    settings = load_settings(start_folder=root, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))
    return nova.open(spark=spark, settings=replace(settings, strategy=strategy))


def summing(type_: str = "int", **more: Any) -> nova.Channel:
    return nova.Channel("c", nova.Keyed(key="id", combine={"v": "sum"}), f"id int, v {type_}", retain="1d", **more)


def values(store: Store, **how: Any) -> dict[int, Any]:
    return {r["id"]: r["v"] for r in store.read("c", **how).to_arrow().to_pylist()}


def test_an_insert_that_would_overflow_is_refused_with_key_column_and_value(store: Store) -> None:
    store.register(summing())
    store.insert("c", [{"id": 1, "v": MOST}, {"id": 2, "v": 5}])
    with pytest.raises(nova.SumOverflow) as caught:
        store.insert("c", [{"id": 2, "v": 1}, {"id": 1, "v": 1}])
    assert "sum of column 'v' would be 2147483648 for key id = 1" in str(caught.value)
    assert (caught.value.fields["column"], caught.value.fields["key"]) == ("v", {"id": 1})
    assert values(store) == {1: MOST, 2: 5} and store.catalog.definitions.channel("c").head == 1, "nothing was changed"
    store.insert("c", [{"id": 1, "v": -1}, {"id": 2, "v": MOST - 5}])
    assert store.compact("c") is not None and values(store) == {1: MOST - 1, 2: MOST}
    with pytest.raises(nova.SumOverflow):
        store.insert("c", [{"id": 2, "v": 1}])
    store.insert("c", [{"id": 2, "v": 1, "_deleted": True}, {"id": 2, "v": 1}])
    assert values(store) == {1: MOST - 1, 2: 1}, "a deletion goes first"


def test_what_consumers_add_up_around_a_dropped_partition_fits(store: Store) -> None:
    """They are not told of the drop (R19), so to them both rows of the key add up."""
    store.register(
        nova.Channel(
            "c",
            nova.Keyed(key=["id", "day"], combine={"v": "sum"}),
            "id int, day string, v int",
            partitions=[nova.static("day", ["a", "b"])],
            retain="1d",
        )
    )
    store.insert("c", [{"id": 0, "day": "b", "v": 1}])
    store.insert("c", [{"id": 1, "day": "a", "v": MOST}])
    store.drop("c", "day=a")
    store.compact("c")
    with pytest.raises(nova.SumOverflow):
        store.insert("c", [{"id": 1, "day": "a", "v": 1}])
    store.insert("c", [{"id": 1, "day": "a", "v": -1}])
    assert [r["v"] for r in store.read("c", since=1).to_arrow().to_pylist()] == [MOST - 1]


@pytest.mark.parametrize("compacted", [False, True])
def test_deltas_that_overflow_only_when_they_are_chained_are_refused(compacted: bool, store: Store) -> None:
    store.register(summing())
    store.insert("c", [{"id": 1, "v": -2_000_000_000}])
    store.insert("c", [{"id": 1, "v": 2_000_000_000}])
    if compacted:
        store.compact("c")
    with pytest.raises(nova.SumOverflow, match="would be 4000000000 for key id = 1"):
        store.insert("c", [{"id": 1, "v": 2_000_000_000}])
    store.insert("c", [{"id": 1, "v": 0, "_deleted": True}, {"id": 1, "v": 2_000_000_000}])
    assert values(store) == {1: 2_000_000_000} == values(store, since=2)


@pytest.mark.parametrize(
    ("type_", "first", "then", "fits"),
    [
        ("tinyint", 127, 1, -127),
        ("smallint", -(2**15), -1, 2**15 - 1),
        ("bigint", 2**63 - 1, 1, -1),
        ("decimal(5,2)", Decimal("999.99"), Decimal("0.01"), Decimal("-0.01")),
        ("decimal(38,0)", 10**38 - 1, 1, -1),
    ],
)
def test_every_type_of_numbers_has_its_limit(type_: str, first: Any, then: Any, fits: Any, store: Store) -> None:
    store.register(summing(type_))
    store.insert("c", [{"id": 1, "v": first}])
    with pytest.raises(nova.SumOverflow):
        store.insert("c", [{"id": 1, "v": then}])
    store.insert("c", [{"id": 1, "v": fits}])
    assert values(store) == {1: first + fits}


@pytest.mark.core
def test_large_decimals_that_fit_are_added_up_exactly(store: Store) -> None:
    """Arrow's own sums wrap round at 38 digits: near them, numbers are added up one by one."""
    merge = nova.Keyed(key="id", combine={"v": "sum"}, order_by="o")
    store.register(nova.Channel("c", merge, "id int, o int, v decimal(38,10)", retain="1d"))
    most = Decimal("9999999999999999999999999999.9999999999")
    for n, v in enumerate([most, Decimal("-0.0000000001"), None]):
        store.insert("c", [{"id": 1, "o": n, "v": v}, {"id": 2, "o": n, "v": Decimal(1)}])
    total = Decimal("9999999999999999999999999999.9999999998")
    assert values(store) == {1: total, 2: Decimal(3)}
    commit = store.compact("c", chained=True)
    assert commit is not None and commit.details["ways"][0]["way"] == "arrow"
    assert values(store) == {1: total, 2: Decimal(3)}
    with pytest.raises(nova.SumOverflow, match=r"10000000000000000000000000000 for key id = 1"):
        store.insert("c", [{"id": 1, "o": 9, "v": Decimal("0.0000000002")}])


@pytest.mark.core
def test_r6_two_inserts_at_once_do_not_overflow_together(store: Store, tmp_path: Path) -> None:
    store.register(summing())
    other, commit = opened(tmp_path), store.runtime.channel_writer.commit
    done: list[int] = []

    def overtaken(request: CommitRequest) -> Any:
        if not done:
            done.append(other.insert("c", [{"id": 1, "v": 1_500_000_000}]).seq)
        return commit(request)

    store.runtime.channel_writer.commit = overtaken  # type: ignore[method-assign]
    with other, pytest.raises(nova.SumOverflow, match="3000000000"):
        store.insert("c", [{"id": 1, "v": 1_500_000_000}])
    assert values(store) == {1: 1_500_000_000}


def test_a_commit_of_a_binding_that_would_overflow_is_refused(tmp_path: Path) -> None:
    numbers, sums = nova.Channel("numbers", schema="id int, v int"), summing()

    @nova.task(consumes=nova.new(numbers), produces=nova.delta(sums))
    def copy(numbers: Any) -> Any:
        return numbers

    project = nova.Project(bindings=[nova.bind(nova.Workflowette("copy", [copy]))])
    with opened(tmp_path) as store:
        store.register(project)
        store.runtime.project = project
        store.engine.reader.read = store.engine.reader.fetch  # type: ignore[method-assign]  # no Spark for a few rows
        store.insert("c", [{"id": 7, "v": MOST}])
        store.insert("numbers", [{"id": 7, "v": 1}])
        with pytest.raises(nova.NovaError, match="2147483648 for key id = 7"):
            store.run("copy")
        assert values(store) == {7: MOST} and not store.cursors()


def test_random_sums_are_refused_when_and_only_when_they_overflow(tmp_path: Path) -> None:
    rng = random.Random(3)
    with opened(tmp_path) as store:
        store.register(summing("tinyint"))
        versions: list[dict[int, int]] = [
            {}
        ]  # what each key is at each version; deltas since any of them must fit, too
        deltas: list[dict[int, tuple[bool, int]]] = []
        for _ in range(60):
            delta = {k: (rng.random() < 0.15, rng.randint(-90, 90)) for k in rng.sample(range(4), 2)}
            chains = []
            for start in range(len(deltas) + 1):
                for key, (deleted, v) in delta.items():
                    total = v
                    cut = deleted
                    for past in reversed(deltas[start:]):
                        if not cut and key in past:
                            total, cut = total + past[key][1], past[key][0]
                    chains.append(-128 <= total <= 127)
            rows = [{"id": k, "v": 0, "_deleted": True} for k, (gone, _) in delta.items() if gone]
            rows += [{"id": k, "v": v, "_deleted": False} for k, (_, v) in delta.items()]
            if all(chains):
                store.insert("c", rows)
                deltas.append(delta)
                now = dict(versions[-1])
                for key, (gone, v) in delta.items():
                    now[key] = v + (0 if gone else now.get(key, 0))
                versions.append(now)
            else:
                with pytest.raises(nova.SumOverflow):
                    store.insert("c", rows)
            if rng.random() < 0.1:
                store.compact("c", chained=rng.random() < 0.5)
            assert values(store) == versions[-1]
            store.read("c", since=rng.randint(0, len(deltas))).to_arrow()


@pytest.mark.core
@pytest.mark.parametrize(
    ("combine", "ddl"),
    [
        ("sum", "v string"),
        ("sum", "v boolean"),
        ("sum", "v array<int>"),
        ("max", "v map<string,int>"),
        ("min", "v struct<m:map<string,int>>"),
        ("bool_and", "v int"),
    ],
)
def test_types_that_cannot_be_combined_are_refused(combine: str, ddl: str, store: Store) -> None:
    with pytest.raises(nova.DefinitionError, match=f"combined column 'v' is .*; {combine} takes"):
        nova.Channel("c", nova.Keyed(key="id", combine={"v": combine}), f"id int, {ddl}")


def test_the_first_data_is_held_to_the_merge_model_too(store: Store) -> None:
    store.register(nova.Channel("c", nova.Keyed(key="id", combine={"v": "sum"})))
    with pytest.raises(nova.SchemaMismatch, match="combined column 'v' is string; sum takes numbers"):
        store.insert("c", [{"id": 1, "v": "x"}])
    store.insert("c", [{"id": 1, "v": 1}])
    assert values(store) == {1: 1}


@pytest.mark.spark
def test_a_channel_that_has_overflowed_says_how_it_is_mended(tmp_path: Path, spark: Any, monkeypatch: Any) -> None:
    with opened(tmp_path, spark) as store, monkeypatch.context() as before:
        before.setattr(
            "nova_assets.execution.staging.check_no_sum_overflow", lambda *_: None
        )  # as it was, when nothing was checked
        before.setattr("nova_assets.execution.commit_request.load_sum_headrooms", lambda *_: ())
        store.register(summing())
        store.insert("c", [{"id": 1, "v": MOST}])
        store.insert("c", [{"id": 1, "v": 1}])
        for strategy in ("auto", "spark"):
            with opened(tmp_path, spark, strategy) as other:
                with pytest.raises(nova.SumOverflow, match="wider type"):
                    other.read("c").to_arrow()
                with pytest.raises(nova.SumOverflow, match="wider type"):
                    other.compact("c")
        store.register(summing("bigint"), replace=True)
        assert values(store) == {1: MOST + 1}
        store.insert("c", [{"id": 1, "v": 1}])
        assert store.compact("c") is not None and values(store) == {1: MOST + 2}
        with pytest.raises(nova.SumOverflow):
            store.read("c", at=2).to_arrow()


@pytest.mark.core
def test_rows_of_one_insert_are_added_up_with_all_digits(tmp_path: Path) -> None:
    """Python's own decimals are rounded to 28 digits."""
    amounts = nova.Channel(
        "amounts", nova.Keyed(key="k", combine={"v": "sum"}, order_by="o"), "k int, v decimal(38,10), o int"
    )
    one, other = Decimal("1234567890123456789012345678.1234567890"), Decimal("1.0000000001")
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(amounts)
        store.insert("amounts", [{"k": 1, "v": one, "o": 1}, {"k": 1, "v": other, "o": 2}])
        (row,) = store.read("amounts").to_arrow().to_pylist()
    assert row["v"] == Decimal("1234567890123456789012345679.1234567891")
