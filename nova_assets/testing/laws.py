"""Check of the laws of merge models (R10) on frames."""

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

_MAX_SEQUENCES = 6
_MAX_VALUES = 8
_SIDE_COLUMN = "__nova_side"


def check_laws(model: MergeModel, frames: Sequence[Any], schema: Any = None, spark: Any = None) -> None:
    """Check the laws of R10 for a merge model, first on the functions of the model, then with real blocks.

    The functions of ``Custom`` are checked on the deltas in the given order, on each delta twice, and on an empty base.
    There are three laws. First, chaining is associative. Second, merging deltas one by one equals merging their chain.
    Third, ``merge(B, diff(B, C))`` is ``C``. A ``diff`` may raise, if it cannot represent the change. The functions in
    ``Keyed(combine=…)`` are checked on all values of their columns.

    Args:
        model: the merge model.
        frames: a base and two or more deltas, in any form that ``store.insert`` accepts.
        schema: schema of the channel, if it does not follow from the frames.
        spark: a session to use. By default, the local session of this process.

    Raises:
        AssertionError: a law does not hold. The error names the law, the rows that differ, and the smallest failing
            input.
        ValueError: there are fewer than three frames.
    """
    if len(frames) < 3:
        raise ValueError("check_laws needs a base and two or more deltas")
    channel = Channel("laws", merge=model, schema=schema)
    with World(spark=spark) as store:
        store.register(channel)
        tables = [store.engine.inputs.convert(f, channel.schema) for f in frames]
        if isinstance(model, Custom):
            with for_tiny_queries(store):
                _check_custom_functions(store, model, tables)
                _check_with_real_blocks(store, channel, frames)
            return
        if isinstance(model, Keyed):
            _check_keyed_combiners(store, model, tables)
        _check_with_real_blocks(store, channel, frames)


# the functions of Custom


@dataclass(frozen=True)
class _ModelFunctions:
    """The functions of a merge model, applied to rows."""

    store: Store
    model: Custom
    schemas: Sequence[pa.Schema]

    def frame(self, rows: Rows, frame_index: int) -> Any:
        """Rows as a frame with the types of the input frame at an index."""
        table = pa.Table.from_pylist(rows, self.schemas[frame_index])
        return self.store.engine.inputs.to_frame(table, self.store.engine.frames.schema_of(table))

    def __getattr__(self, name: str) -> Callable[[Any, Any], Any]:
        return FunctionRef.parse(getattr(self.model, f"{name}_ref")).load()

    def rows_of_both(self, left: Any, right: Any) -> tuple[Rows, Rows]:
        """Rows of two frames. Frames with equal columns share one query, since small queries have a high fixed cost."""
        if sorted(left.columns) != sorted(right.columns):
            return self._rows(left), self._rows(right)
        sides = left.selectExpr("*", f"0 AS {_SIDE_COLUMN}").unionByName(right.selectExpr("*", f"1 AS {_SIDE_COLUMN}"))
        rows: Rows = self.store.engine.frames.to_arrow(sides).to_pylist()
        split: tuple[Rows, Rows] = ([], [])
        for row in rows:
            split[row.pop(_SIDE_COLUMN)].append(row)
        return canonical(split[0]), canonical(split[1])

    def _rows(self, frame: Any) -> Rows:
        return canonical(self.store.engine.frames.to_arrow(frame).to_pylist())


@dataclass(frozen=True)
class _MergeLaw:
    """A law on a base and some deltas.

    Args:
        text: the equation.
        frame_indexes: indexes of the input frames that the law uses. None stands for the empty base.
        sides: function that computes both sides of the equation.
    """

    text: str
    frame_indexes: tuple[int | None, ...]
    sides: Callable[[_ModelFunctions, list[Any]], tuple[Any, Any]]

    def difference(self, functions: _ModelFunctions, lists: Sequence[Rows]) -> str | None:
        """Difference between the two sides, or None if they are equal."""
        frames = [functions.frame(rows, place or 0) for rows, place in zip(lists, self.frame_indexes, strict=True)]
        try:
            left, right = functions.rows_of_both(*self.sides(functions, frames))
        except _DiffNotRepresentable:
            return None
        return None if left == right else f"left {left}\n  right {right}\n  {difference(left, right)}"


class _DiffNotRepresentable(Exception):
    """``diff`` raised: it cannot represent this change, and loses no rows."""


def _chain_associativity_sides(functions: _ModelFunctions, frames: list[Any]) -> tuple[Any, Any]:
    a, b, c = frames
    return functions.chain(functions.chain(a, b), c), functions.chain(a, functions.chain(b, c))


def _chained_merge_sides(functions: _ModelFunctions, frames: list[Any]) -> tuple[Any, Any]:
    base, a, b = frames
    return functions.merge(functions.merge(base, a), b), functions.merge(base, functions.chain(a, b))


def _diff_merge_sides(functions: _ModelFunctions, frames: list[Any]) -> tuple[Any, Any]:
    base, *deltas = frames
    later = base
    for delta in deltas:
        later = functions.merge(later, delta)
    try:
        change = functions.diff(base, later)
    except Exception as error:
        raise _DiffNotRepresentable from error
    return functions.merge(base, change), later


def _laws_to_check(delta_count: int) -> Iterator[_MergeLaw]:
    places = range(1, delta_count + 1)
    merging = [(0, *pair) for pair in combinations(places, 2)] + [(None, 1, 2), (0, 1, 1)]
    for case in merging[:_MAX_SEQUENCES]:
        yield _MergeLaw("merge(merge(B, d1), d2) = merge(B, chain(d1, d2))", case, _chained_merge_sides)
    for length in range(1, min(delta_count, 3) + 1):
        yield _MergeLaw("merge(B, diff(B, C)) = C", tuple(range(length + 1)), _diff_merge_sides)
    yield _MergeLaw("merge(B, diff(B, C)) = C", (None, 1), _diff_merge_sides)
    triples = sorted(combinations_with_replacement(places, 3), key=lambda t: -len(set(t)))
    for triple in triples[:_MAX_SEQUENCES]:
        yield _MergeLaw("chain(chain(d1, d2), d3) = chain(d1, chain(d2, d3))", triple, _chain_associativity_sides)


def _check_custom_functions(store: Store, model: Custom, tables: Sequence[pa.Table]) -> None:
    functions = _ModelFunctions(store, model, [t.schema for t in tables])
    for law in _laws_to_check(len(tables) - 1):
        lists: list[Rows] = [[] if p is None else tables[p].to_pylist() for p in law.frame_indexes]
        if law.difference(functions, lists) is None:
            continue

        def fails(candidate: list[Rows], law: _MergeLaw = law) -> bool:
            return law.difference(functions, candidate) is not None

        smallest = shrink(lists, fails)
        names = ["B", "d1", "d2", "d3"] if law.sides is not _chain_associativity_sides else ["d1", "d2", "d3"]
        if law.sides is _diff_merge_sides:
            names = ["B", *(f"d{n}" for n in range(1, 4))]
        shown = "\n".join(f"  {name} = {rows}" for name, rows in zip(names, smallest, strict=False))
        merged = " (C is B with the deltas merged)" if law.sides is _diff_merge_sides else ""
        raise AssertionError(
            f"{law.text} does not hold{merged}. The smallest input that shows it:\n{shown}\n"
            f"  {law.difference(functions, smallest)}"
        )


# the functions of Keyed


def _check_keyed_combiners(store: Store, model: Keyed, tables: Sequence[pa.Table]) -> None:
    for column, name in model.combine:
        if name not in COMBINERS:
            _check_associative(store, column, FunctionRef.parse(name), tables)


def _check_associative(store: Store, column: str, ref: FunctionRef, tables: Sequence[pa.Table]) -> None:
    """Check all triples of values with one query."""
    values: dict[str, Any] = {}
    type_ = next(t.schema.field(column).type for t in tables if column in t.column_names)
    for table in tables:
        if column in table.column_names:
            values |= {repr(v): v for v in table.column(column).to_pylist() if v is not None}
    some = sorted(values.values(), key=_display_size)[:_MAX_VALUES]
    triples = [dict(zip("abc", triple, strict=True)) for triple in product(some, repeat=3)]
    table = pa.Table.from_pylist(triples, pa.schema([(n, type_) for n in "abc"]))
    frame = store.engine.inputs.to_frame(table, store.engine.frames.schema_of(table))
    function, a, b, c = ref.load(), frame["a"], frame["b"], frame["c"]
    kind = frame.schema["a"].dataType

    def combined(earlier: Any, later: Any) -> Any:
        return function(earlier, later).cast(kind)

    left, right = combined(combined(a, b), c), combined(a, combined(b, c))
    rows = store.engine.frames.to_arrow(
        frame.select("a", "b", "c", left.alias("left"), right.alias("right"))
    ).to_pylist()
    wrong = [r for r in rows if canonical([{"v": r["left"]}]) != canonical([{"v": r["right"]}])]
    if wrong:
        least = min(wrong, key=lambda r: sum(_display_size(r[n])[0] for n in "abc"))
        raise AssertionError(
            f"f(f(a, b), c) = f(a, f(b, c)) does not hold for f = {ref.qualname}, which combines column {column!r}. "
            f"The smallest input that shows it:\n  a = {least['a']!r}, b = {least['b']!r}, c = {least['c']!r}\n"
            f"  left {least['left']!r}, right {least['right']!r}"
        )


def _display_size(value: Any) -> tuple[float, str]:
    """Size of a value for a human reader."""
    is_number = isinstance(value, int | float) and value == value
    return (abs(value) if is_number else len(repr(value))), repr(value)


# with real blocks


def _check_with_real_blocks(store: Store, channel: Channel, frames: Sequence[Any]) -> None:
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
            _check_rows_equal(
                rows_of(store, "again"), snapshots[end], f"merge(B{start}, chain of the deltas to {end}) = B{end}"
            )
    for start in range(1, head + 1):
        store.insert("again", snapshot_frame(store, "laws", start), kind="base")
        before = store.catalog.definitions.channel("again").head
        store.insert("again", snapshot_frame(store, "laws", head), kind="base")
        change = store.read("again", since=before).to_arrow()
        store.insert("again", snapshot_frame(store, "laws", start), kind="base")
        store.insert("again", change)
        _check_rows_equal(
            rows_of(store, "again"), snapshots[head], f"merge(B{start}, diff(B{start}, B{head})) = B{head}"
        )


def _check_rows_equal(actual: Rows, expected: Rows, law: str) -> None:
    if actual != expected:
        raise AssertionError(
            f"{law} does not hold: {len(actual)} rows, {len(expected)} expected; {difference(actual, expected)}"
        )
