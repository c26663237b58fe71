"""Multiset deltas that are composed and merged in this process give what a naive model gives. No Spark."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_assets.engine.read.in_memory import compose_row_changes, merge_row_changes, to_delta_rows

SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.string()), ("d", pa.date32()), ("n", pa.decimal128(38, 2)), ("f", pa.float64())]
)
_OTHER_NAN: float = struct.unpack("d", struct.pack("Q", 0xFFF8000000000123))[0]
rows = st.tuples(
    st.none() | st.integers(0, 1),
    st.none() | st.sampled_from(["", "x"]),
    st.none() | st.just(dt.date(2024, 1, 1)),
    st.none() | st.sampled_from([Decimal("1.00"), Decimal("9" * 36 + ".99")]),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, _OTHER_NAN, math.inf]),
)
bases = st.lists(rows, max_size=6)
deltas = st.lists(st.lists(st.tuples(rows, st.booleans()), max_size=6), min_size=1, max_size=4)


def table(some: list[Any]) -> pa.Table:
    columns = [pa.array([r[n] for r in some], f.type) for n, f in enumerate(SCHEMA)]
    return pa.table(columns, schema=SCHEMA)


def delta_table(delta: list[tuple[Any, bool]]) -> pa.Table:
    deleted = pa.array([d for _, d in delta], pa.bool_())
    return table([r for r, _ in delta]).append_column("_deleted", deleted)


def counted(some: pa.Table) -> Counter[Any]:
    return Counter(comparable(r.values()) for r in some.to_pylist())


def comparable(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values of which equal ones are the same: NaN equals NaN, and -0.0 equals 0.0."""
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def naive(base: Counter[Any], delta: Counter[Any]) -> Counter[Any]:
    """Removals first, as far as the rows are there, then additions."""
    removed, added = ({r[:-1]: n for r, n in delta.items() if r[-1] is flag} for flag in (True, False))
    return +Counter({r: max(base[r] - removed.get(r, 0), 0) + added.get(r, 0) for r in {*base, *removed, *added}})


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(bases, deltas)
def test_merge_and_chain_are_those_of_a_naive_model(base: list[Any], changes: list[Any]) -> None:
    tables = [delta_table(d) for d in changes]
    expected = counted(table(base))
    for delta in tables:
        expected = naive(expected, counted(delta))
    composed = compose_row_changes(tables)
    assert counted(merge_row_changes(table(base), composed)) == expected
    chained = to_delta_rows(composed)
    assert chained.schema.names == [*SCHEMA.names, "_deleted"]
    assert naive(counted(table(base)), counted(chained)) == expected, "the chain is one delta with the same effect"


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(deltas, deltas)
def test_composition_does_not_depend_on_where_it_is_cut(first: list[Any], second: list[Any]) -> None:
    def chain(*some: pa.Table) -> pa.Table:
        return to_delta_rows(compose_row_changes(some))

    left, right = ([delta_table(d) for d in some] for some in (first, second))
    assert counted(chain(*left, *right)) == counted(chain(chain(*left), chain(*right)))
