"""The laws of merge models (R10), tried on frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import pyarrow as pa

from nova_assets.model.channel import Channel
from nova_assets.model.function_reference import FunctionRef
from nova_assets.model.merge import COMBINERS, Custom, Keyed, MergeModel
from nova_assets.store.store import Store
from nova_assets.testing.shrinking import shrink
from nova_assets.testing.world import (
    Rows,
    World,
    canonical,
    difference,
    for_tiny_queries,
    rows_of,
    snapshot_frame,
)

_MOST_SEQUENCES = 6
_MOST_VALUES = 8
_SIDE = "__nova_side"


def check_laws(model: MergeModel, frames: Sequence[Any], schema: Any = None, spark: Any = None) -> None:
    """Try the laws of R10 on a merge model: on its own functions, then with real blocks.

    The functions of ``Custom`` are tried on the deltas in the order in which they are given, each also twice, and from
    an empty base: chain is associative, merging deltas one by one is merging their chain, and merge(B, diff(B, C)) is
    C. A ``diff`` that raises is one that cannot tell a change, and is legal. The functions in ``Keyed(combine=…)`` are
    tried on all values of their columns.

    Args:
        model: the merge model.
        frames: a base and two or more deltas, as ``store.insert`` takes them.
        schema: of the channel, where the frames do not tell.

    Raises:
        AssertionError: names the law, the rows that differ, and the smallest input that shows it.
    """
    if len(frames) < 3:
        raise ValueError("check_laws needs a base and two or more deltas")
    channel = Channel("laws", merge=model, schema=schema)
    with World(spark=spark) as store:
        store.register(channel)
        tables = [store.engine.take(f, channel.schema) for f in frames]
        if isinstance(model, Custom):
            with for_tiny_queries(store):
                _check_functions(store, model, tables)
                _check_blocks(store, channel, frames)
            return
        if isinstance(model, Keyed):
            _check_combiners(store, model, tables)
        _check_blocks(store, channel, frames)


# the functions of Custom


@dataclass(frozen=True)
class _Functions:
    """The functions of a model, on rows."""

    store: Store
    model: Custom
    types: Sequence[pa.Schema]

    def frame(self, rows: Rows, place: int) -> Any:
        """Rows as a frame of the types of the frame at a place."""
        table = pa.Table.from_pylist(rows, self.types[place])
        return self.store.engine.frame(table, self.store.engine.schema_of(table))

    def __getattr__(self, name: str) -> Callable[[Any, Any], Any]:
        return FunctionRef.parse(getattr(self.model, f"{name}_ref")).load()

    def both(self, left: Any, right: Any) -> tuple[Rows, Rows]:
        """The rows of two frames, by one query where they have the same columns: small queries cost the most."""
        if sorted(left.columns) != sorted(right.columns):
            return self._rows(left), self._rows(right)
        sides = left.selectExpr("*", f"0 AS {_SIDE}").unionByName(right.selectExpr("*", f"1 AS {_SIDE}"))
        rows: Rows = self.store.engine.to_arrow(sides).to_pylist()
        split: tuple[Rows, Rows] = ([], [])
        for row in rows:
            split[row.pop(_SIDE)].append(row)
        return canonical(split[0]), canonical(split[1])

    def _rows(self, frame: Any) -> Rows:
        return canonical(self.store.engine.to_arrow(frame).to_pylist())


@dataclass(frozen=True)
class _Law:
    """A law on a base and some deltas.

    Args:
        places: the frames that it is about, by their place among those given; None is the empty base.
        sides: both sides of the equation.
    """

    text: str
    places: tuple[int | None, ...]
    sides: Callable[[_Functions, list[Any]], tuple[Any, Any]]

    def difference(self, functions: _Functions, lists: Sequence[Rows]) -> str | None:
        """What differs between the two sides; None where nothing does."""
        frames = [functions.frame(rows, place or 0) for rows, place in zip(lists, self.places, strict=True)]
        try:
            left, right = functions.both(*self.sides(functions, frames))
        except _CannotTell:
            return None
        return None if left == right else f"left {left}\n  right {right}\n  {difference(left, right)}"


class _CannotTell(Exception):
    """``diff`` has raised: it does not tell this change, and loses none."""


def _is_associative(f: _Functions, given: list[Any]) -> tuple[Any, Any]:
    a, b, c = given
    return f.chain(f.chain(a, b), c), f.chain(a, f.chain(b, c))


def _merges_as_chained(f: _Functions, given: list[Any]) -> tuple[Any, Any]:
    base, a, b = given
    return f.merge(f.merge(base, a), b), f.merge(base, f.chain(a, b))


def _undoes_diff(f: _Functions, given: list[Any]) -> tuple[Any, Any]:
    base, *deltas = given
    later = base
    for delta in deltas:
        later = f.merge(later, delta)
    try:
        change = f.diff(base, later)
    except Exception as error:
        raise _CannotTell from error
    return f.merge(base, change), later


def _laws(deltas: int) -> Iterator[_Law]:
    places = range(1, deltas + 1)
    merging = [(0, *pair) for pair in combinations(places, 2)] + [(None, 1, 2), (0, 1, 1)]
    for case in merging[:_MOST_SEQUENCES]:
        yield _Law("merge(merge(B, d1), d2) = merge(B, chain(d1, d2))", case, _merges_as_chained)
    for length in range(1, min(deltas, 3) + 1):
        yield _Law("merge(B, diff(B, C)) = C", tuple(range(length + 1)), _undoes_diff)
    yield _Law("merge(B, diff(B, C)) = C", (None, 1), _undoes_diff)
    triples = sorted(combinations_with_replacement(places, 3), key=lambda t: -len(set(t)))
    for triple in triples[:_MOST_SEQUENCES]:
        yield _Law("chain(chain(d1, d2), d3) = chain(d1, chain(d2, d3))", triple, _is_associative)


def _check_functions(store: Store, model: Custom, tables: Sequence[pa.Table]) -> None:
    functions = _Functions(store, model, [t.schema for t in tables])
    for law in _laws(len(tables) - 1):
        lists: list[Rows] = [[] if p is None else tables[p].to_pylist() for p in law.places]
        if law.difference(functions, lists) is None:
            continue

        def fails(candidate: list[Rows], law: _Law = law) -> bool:
            return law.difference(functions, candidate) is not None

        smallest = shrink(lists, fails)
        names = ["B", "d1", "d2", "d3"] if law.sides is not _is_associative else ["d1", "d2", "d3"]
        if law.sides is _undoes_diff:
            names = ["B", *(f"d{n}" for n in range(1, 4))]
        shown = "\n".join(f"  {name} = {rows}" for name, rows in zip(names, smallest, strict=False))
        merged = " (C is B with the deltas merged)" if law.sides is _undoes_diff else ""
        raise AssertionError(
            f"{law.text} does not hold{merged}. The smallest input that shows it:\n{shown}\n"
            f"  {law.difference(functions, smallest)}"
        )


# the functions of Keyed


def _check_combiners(store: Store, model: Keyed, tables: Sequence[pa.Table]) -> None:
    for column, name in model.combine:
        if name not in COMBINERS:
            _check_associative(store, column, FunctionRef.parse(name), tables)


def _check_associative(store: Store, column: str, ref: FunctionRef, tables: Sequence[pa.Table]) -> None:
    """One query over all triples of values."""
    values: dict[str, Any] = {}
    type_ = next(t.schema.field(column).type for t in tables if column in t.column_names)
    for table in tables:
        if column in table.column_names:
            values |= {repr(v): v for v in table.column(column).to_pylist() if v is not None}
    some = sorted(values.values(), key=_size)[:_MOST_VALUES]
    triples = [dict(zip("abc", triple, strict=True)) for triple in product(some, repeat=3)]
    table = pa.Table.from_pylist(triples, pa.schema([(n, type_) for n in "abc"]))
    frame = store.engine.frame(table, store.engine.schema_of(table))
    function, a, b, c = ref.load(), frame["a"], frame["b"], frame["c"]
    kind = frame.schema["a"].dataType

    def combined(earlier: Any, later: Any) -> Any:
        return function(earlier, later).cast(kind)

    left, right = combined(combined(a, b), c), combined(a, combined(b, c))
    rows = store.engine.to_arrow(frame.select("a", "b", "c", left.alias("left"), right.alias("right"))).to_pylist()
    wrong = [r for r in rows if canonical([{"v": r["left"]}]) != canonical([{"v": r["right"]}])]
    if wrong:
        least = min(wrong, key=lambda r: sum(_size(r[n])[0] for n in "abc"))
        raise AssertionError(
            f"f(f(a, b), c) = f(a, f(b, c)) does not hold for f = {ref.qualname}, which combines column {column!r}. "
            f"The smallest input that shows it:\n  a = {least['a']!r}, b = {least['b']!r}, c = {least['c']!r}\n"
            f"  left {least['left']!r}, right {least['right']!r}"
        )


def _size(value: Any) -> tuple[float, str]:
    """How large a value looks to a reader."""
    is_number = isinstance(value, int | float) and value == value
    return (abs(value) if is_number else len(repr(value))), repr(value)


# with real blocks


def _check_blocks(store: Store, channel: Channel, frames: Sequence[Any]) -> None:
    store.register(Channel("again", merge=channel.merge, schema=channel.schema))
    store.insert("laws", frames[0], kind="base")
    for delta in frames[1:]:
        store.insert("laws", delta)
    head = len(frames)
    snapshots = [rows_of(store, "laws", at=n) for n in range(head + 1)]
    for start in range(1, head):
        for end in range(start + 1, head + 1):
            store.insert("again", snapshot_frame(store, "laws", start), kind="base")
            store.insert("again", store.read("laws", since=start, at=end).to_arrow())
            _check_same(
                rows_of(store, "again"), snapshots[end], f"merge(B{start}, chain of the deltas to {end}) = B{end}"
            )
    for start in range(1, head + 1):
        store.insert("again", snapshot_frame(store, "laws", start), kind="base")
        before = store.catalog.channel("again").head
        store.insert("again", snapshot_frame(store, "laws", head), kind="base")
        change = store.read("again", since=before).to_arrow()
        store.insert("again", snapshot_frame(store, "laws", start), kind="base")
        store.insert("again", change)
        _check_same(rows_of(store, "again"), snapshots[head], f"merge(B{start}, diff(B{start}, B{head})) = B{head}")


def _check_same(actual: Rows, expected: Rows, law: str) -> None:
    if actual != expected:
        raise AssertionError(
            f"{law} does not hold: {len(actual)} rows, {len(expected)} expected; {difference(actual, expected)}"
        )
