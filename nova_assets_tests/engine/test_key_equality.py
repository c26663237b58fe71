"""One meaning of equality (``model/value_comparison``), over every type of keys and values and every read strategy.

Spark's ``groupBy`` is the judge: it says which of some values are of one class.
"""

from __future__ import annotations

import datetime as d
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.engine.read.read_executor import filter_rows_by_keys
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.key_layout import HASHED_TYPES
from nova_assets.model.schema import parse_ddl
from nova_assets.settings import load_settings
from nova_assets.store.store import Store

NAN = math.nan
FLOATS = [0.0, -0.0, NAN, -NAN, 1.5, -1.5, math.inf, -math.inf, 5e-324, None]
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [0, -1, 127, -128],
    "smallint": [0, 2**15 - 1, -(2**15)],
    "int": [0, 2**31 - 1, -(2**31)],
    "bigint": [0, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "string": ["", " ", "a", "A", "é", "e\u0301", "a ", "\x00", "\x00\x00"],
    "binary": [b"", b"\x00", b"\x00\x00", b"a", b"\xff"],
    "date": [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 15)],
    "timestamp": [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1), datetime(1583, 1, 1)],
    "decimal(10,2)": [Decimal("0.00"), Decimal("-0.00"), Decimal("1.10"), Decimal("-1.10")],
    "float": FLOATS[:-1],
    "double": [*FLOATS[:-1], 0.1, 0.1 + 2**-55],
    "array<double>": [[], [0.0], [-0.0], [NAN], [-NAN], [0.0, None], [-0.0, None], [None]],
    "array<string>": [[], [""], [None], ["a", "b"], ["b", "a"]],
    "struct<x:float,y:array<double>>": [
        {"x": x, "y": y} for x in (0.0, -0.0, None) for y in ([0.0], [-0.0], [NAN], None)
    ],
}
HASHED = [t for t in VALUES if t in HASHED_TYPES]


@dataclass(frozen=True)
class Keys:
    """Rows with a key column of each type; in a row, one of them has a value of the table and the others their first.

    Args:
        rows: the keys alone.
        classes: by Spark's ``groupBy``; the places of the rows that are equal.
    """

    types: list[str]
    rows: list[dict[str, Any]]
    classes: list[list[int]]

    @property
    def ddl(self) -> str:
        return ", ".join(f"k{n} {t}" for n, t in enumerate(self.types))

    @property
    def names(self) -> list[str]:
        return [f"k{n}" for n in range(len(self.types))]

    def table(self, places: list[int], **more: Any) -> pa.Table:
        rows = [{**self.rows[p], **more} for p in places]
        ddl = self.ddl + "".join(f", {name} {'boolean' if name == '_deleted' else 'int'}" for name in more)
        return pa.Table.from_pylist(rows, schema=to_arrow_schema(parse_ddl(ddl)))


def keys_of(types: list[str], spark: Any) -> Keys:
    from nova_assets.engine.rows.spark_versions import frame_from_arrow

    firsts = {f"k{n}": VALUES[t][0] for n, t in enumerate(types)}
    rows = [{**firsts, f"k{n}": v} for n, t in enumerate(types) for v in (VALUES[t] if n == 0 else VALUES[t][1:])]
    keys = Keys(types, rows, [])
    numbered = pa.Table.from_pylist(
        [{**r, "n": n} for n, r in enumerate(rows)], schema=to_arrow_schema(parse_ddl(keys.ddl + ", n int"))
    )
    from pyspark.sql import functions as F

    grouped = (
        frame_from_arrow(spark, numbered)
        .groupBy(*keys.names)
        .agg(F.sort_array(F.collect_list("n")).alias("n"))
        .collect()
    )
    return replace(keys, classes=sorted(list(r["n"]) for r in grouped))


@pytest.fixture(scope="module")
def hashed(spark: Any) -> Keys:
    return keys_of(HASHED, spark)


@pytest.fixture(scope="module")
def every(spark: Any) -> Keys:
    return keys_of(list(VALUES), spark)


@pytest.fixture
def stores(tmp_path: Path, spark: Any) -> Iterator[Any]:
    opened: list[Store] = []

    def opener(strategy: str) -> Store:
        settings = load_settings(
            start_folder=tmp_path, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")
        )
        opened.append(nova.open(spark=spark, settings=replace(settings, strategy=strategy)))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("which", "strategy"), [("hashed", "arrow"), ("hashed", "buckets"), ("hashed", "spark"), ("every", "auto")]
)
def test_r11_a_key_is_what_group_by_takes_for_one(
    which: str, strategy: str, stores: Any, spark: Any, request: pytest.FixtureRequest
) -> None:
    from nova_assets.engine.rows.spark_versions import frame_from_arrow

    keys: Keys = request.getfixturevalue(which)
    several = [c for c in keys.classes if len(c) > 1]
    assert (len(several) > 5) == (which == "every"), "zeros, NaNs, and both inside others"
    store: Store = stores(strategy)
    store.register(nova.Channel("c", nova.Upsert(key=keys.names), f"{keys.ddl}, v int", retain="1d"))
    for same in several:
        with pytest.raises(nova.BadKey, match="2 live rows of one key"):
            store.insert("c", keys.table([same[0], same[-1]], v=0))
    if which == "every":
        for same in several[-2:]:
            frame = frame_from_arrow(spark, keys.table(same[:2], v=0))
            frame = frame.select(*(frame[n].cast(t).alias(n) for n, t in zip(keys.names, keys.types, strict=True)), "v")
            with pytest.raises(nova.BadKey, match="2 live rows of one key"):
                store.insert("c", frame)
    firsts, lasts = [c[0] for c in keys.classes], [c[-1] for c in keys.classes]
    store.insert("c", keys.table(firsts, v=0), kind="base")
    store.insert("c", keys.table(lasts, v=1))
    live = store.read("c").to_arrow()
    assert live.num_rows == len(keys.classes) and set(live["v"].to_pylist()) == {1}, "each row displaced another"
    wanted = keys.table([c[0] for c in several] or firsts[:3])
    assert store.read("c", keys=wanted).to_arrow().num_rows == wanted.num_rows, "looked up by its other form"
    assert store.read("c", since=1).to_arrow().num_rows == len(keys.classes), "chained"
    store.insert("c", keys.table(firsts[::2], v=2, _deleted=True))
    left = len(keys.classes) - len(firsts[::2])
    assert store.read("c").to_arrow().num_rows == left, "deleted by its other form"
    assert store.read("c", since=1).to_arrow().num_rows == len(keys.classes), "a deletion follows a live row"
    assert store.compact("c") is not None and store.read("c").to_arrow().num_rows == left
    store.insert("c", keys.table(firsts[1::2], v=1), kind="base")
    assert store.read("c", since=3).to_arrow().num_rows == 0, "the same rows, in their other form"


@pytest.mark.spark
@pytest.mark.parametrize("strategy", ["auto", "spark"])
@pytest.mark.parametrize("flat", [True, False], ids=["flat", "nested"])
def test_a_value_in_another_form_is_no_change(strategy: str, flat: bool, stores: Any) -> None:
    ddl = "k int, d double, f float" if flat else "k int, d double, a array<float>, m map<string,struct<x:double>>"
    forms = [(0.0, -0.0), (-0.0, 0.0), (NAN, -NAN), (1.0, 1.0)]

    def rows(which: int) -> pa.Table:
        found = [
            {"k": n, "d": f[which], "f": f[which], "a": [f[which], None], "m": [("z", {"x": f[which]})]}
            for n, f in enumerate(forms)
        ]
        return pa.Table.from_pylist(found, schema=to_arrow_schema(parse_ddl(ddl)))

    store: Store = stores(strategy)
    for name, merge in (("u", nova.Upsert(key="k")), ("a", nova.Append()), ("o", nova.Upsert(key="k", order_by="d"))):
        store.register(nova.Channel(name, merge, ddl, retain="1d"))
        store.insert(name, rows(0), kind="base")
        store.insert(name, rows(1), kind="base")
        assert store.read(name, since=1).to_arrow().num_rows == 0, name
        again = [str(v) for v in store.read(name).to_arrow()["d"].to_pylist()]
        assert again.count("-0.0") == 1, "what was given is kept as it was given"


def test_a_map_is_no_key_at_any_depth() -> None:
    for type_ in ("map<string,int>", "struct<m:map<string,int>>", "array<map<string,int>>"):
        with pytest.raises(nova.DefinitionError, match="a map cannot be compared"):
            nova.Channel("c", nova.Upsert(key="k"), f"k {type_}, v int")


@pytest.mark.parametrize("type_", ["double", "float", "decimal(10,2)"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with text"])
def test_small_reads_by_such_a_key_need_no_spark(type_: str, alone: bool, tmp_path: Path) -> None:
    def start_spark() -> Any:
        raise AssertionError("Spark is started")

    is_float = not type_.startswith("decimal")
    first = [0.0, NAN, 1.5] if is_float else [Decimal("0.00"), Decimal("-1.10"), Decimal("1.50")]
    second = [-0.0, -NAN, -math.inf] if is_float else [Decimal("-0.00"), Decimal("-1.10"), Decimal("9.99")]
    key, schema = ["k", "t"][: 1 if alone else 2], parse_ddl(f"k {type_}, t string, v int")

    def rows(keys: list[Any], value: int, **more: Any) -> pa.Table:
        found = pa.Table.from_pylist([{"k": k, "t": "x", "v": value} for k in keys], schema=to_arrow_schema(schema))
        return found.append_column("_deleted", pa.array([True] * len(keys))) if more else found

    def values(table: pa.Table) -> list[int]:
        return sorted(table["v"].to_pylist())

    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=start_spark) as store:
        store.register(nova.Channel("c", nova.Upsert(key=key), schema, retain="1d"))
        store.insert("c", rows(first, 1))
        store.insert("c", rows(second, 2))
        assert values(store.read("c").to_arrow()) == [1, 2, 2, 2], "two keys are equal in another form"
        assert values(store.read("c", since=1).to_arrow()) == [2, 2, 2]
        assert values(store.read("c", keys=rows(second[:2], 0).select(key)).to_arrow()) == [2, 2]
        store.insert("c", rows(first[:1], 0, _deleted=True))
        with store.pin("c") as pinned, pinned.read("c").to_batches() as reader:
            assert values(reader.read_all()) == [1, 2, 2]
        store.insert("c", rows([*second[1:], first[2]], 2), kind="base")
        changed = store.read("c", since=3).to_arrow().filter(pc.field("_deleted") == False)  # noqa: E712
        assert values(changed) == [2], "of equal keys, the one with another value"
        assert store.compact("c") is None or values(store.read("c").to_arrow()) == [2, 2, 2]


# rows with certain keys, in this process: as SQL has it, and in their order

COLUMN_VALUES: dict[str, Any] = {
    "int": (pa.int64(), st.integers(-2, 3)),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "\u00e4"])),
    "day": (pa.date32(), st.sampled_from([d.date(2024, 1, 1), d.date(2024, 1, 2)])),
    "flag": (pa.bool_(), st.booleans()),
}


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_it_is_what_one_finds_by_looking(data: st.DataObject) -> None:
    on = data.draw(st.lists(st.sampled_from(sorted(COLUMN_VALUES)), min_size=1, max_size=3, unique=True))
    key = st.tuples(*(st.none() | COLUMN_VALUES[c][1] for c in on))
    rows, keys = (data.draw(st.lists(key, max_size=8)) for _ in range(2))
    made = [
        pa.table({c: pa.array([k[n] for k in some], COLUMN_VALUES[c][0]) for n, c in enumerate(on)})
        for some in (rows, keys)
    ]
    table = made[0].append_column("tags", pa.array([[n] for n in range(len(rows))], pa.list_(pa.int64())))
    found = filter_rows_by_keys(table, made[1], on)
    expected = [n for n, k in enumerate(rows) if None not in k and k in keys]
    assert found is not None and found.column("tags").to_pylist() == [[n] for n in expected]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (pa.array([1], pa.int8()), [1]),
        (pa.array([1], pa.int64()), [1]),
        (pa.array([2**40], pa.int64()), None),
        (pa.array([1.0]), None),
        (pa.array(["1"]), None),
    ],
)
def test_what_is_not_clear_is_for_spark_to_say(keys: pa.Array, found: list[int] | None) -> None:
    rows = pa.table({"k": pa.array([1, 2], pa.int32())})
    table = filter_rows_by_keys(rows, pa.table({"k": keys}), ["k"])
    assert (None if table is None else table.column("k").to_pylist()) == found
