"""Layouts of inputs by which maintaining a query costs less. Pure.

An execution searches an input for the rows with certain values of a column, for example those that are joined with
changed rows. If the files of the input hold ranges of this column (``cluster_by``), Spark opens only the files and row
groups with these values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from nova_assets.model.channel import Channel
from nova_assets.sql.incremental.accumulation import accumulation_of
from nova_assets.sql.incremental.operators import (
    Filter,
    GroupedOperator,
    Join,
    LateralView,
    Operator,
    Projection,
    Scan,
    walk,
)
from nova_assets.sql.parse.dialect import DIALECT

MIN_ROWS = 1_000_000
"""Rows of an input from which on its layout matters."""

_ORDERED_TYPES = frozenset("tinyint smallint int bigint date string".split())
"""Types of columns by whose bounds files are skipped."""

_CLOCK_TYPES = frozenset({"date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True)
class LayoutAdvice:
    """A layout of an input by which an execution costs less.

    Args:
        dataset: the input.
        channel: its channel.
        cluster_by: column by which the rows should be clustered.
        reason: what is searched by this column.
        rows: rows of the input, which are searched now.
    """

    dataset: str
    channel: str
    cluster_by: str
    reason: str
    rows: int


def advise_layouts(
    root: Operator, channels: Mapping[str, Channel], rows: Mapping[str, int], changed: Collection[str]
) -> list[LayoutAdvice]:
    """Layouts that are better for the changes that are unread now.

    Args:
        root: the query's operators.
        channels: dataset -> its channel.
        rows: dataset -> its rows.
        changed: datasets with unread changes.
    """
    by_key = [(search, _CLOCK_TYPES) for search in _searches_by_key(channels, changed)]
    by_operators = [(search, _ORDERED_TYPES) for search in _searches_by_operators(root, changed)]
    found = dict[str, LayoutAdvice]()
    for (dataset, column, reason), types in (*by_key, *by_operators):
        channel = channels[dataset]
        is_large = rows.get(dataset, 0) >= MIN_ROWS
        if dataset not in found and is_large and _can_be_clustered(channel, column, types):
            found[dataset] = LayoutAdvice(dataset, channel.name, column, reason, rows[dataset])
    return list(found.values())


def _can_be_clustered(channel: Channel, column: str, types: Collection[str]) -> bool:
    """Whether the rows of a channel can be clustered by a column of certain types, and its author chose no layout."""
    is_known = channel.schema is not None and column in channel.schema
    if channel.cluster_by or not is_known or column not in channel.merge.key or column in channel.partition_columns:
        return False
    assert channel.schema is not None
    return channel.schema.field(column).type.name in types


def _searches_by_key(channels: Mapping[str, Channel], changed: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Earlier rows of changed keys, which lie close together if the key has a time."""
    for dataset in changed:
        for column in channels[dataset].merge.key:
            yield dataset, column, "the earlier rows of changed keys are looked up"


def _searches_by_operators(root: Operator, changed: Collection[str]) -> Iterator[tuple[str, str, str]]:
    accumulation = accumulation_of(root)
    for operator in walk(root):
        if isinstance(operator, Join):
            yield from _searches_of_join(operator, changed)
        elif isinstance(operator, GroupedOperator) and _reads_any(operator, changed):
            is_added_up = accumulation is not None and operator is accumulation.aggregation
            if not is_added_up:
                reason = f"changed groups of {_text(operator.group_keys)} are computed again"
                yield from _origins([(operator.input, key) for key in operator.group_keys], reason)


def _searches_of_join(join: Join, changed: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Searches in the side that did not change; in both sides if rows with changed keys are joined again."""
    reason = f"rows are joined with changes by {_text([key for pair in join.equal_keys for key in pair])}"
    for n, side in enumerate(join.inputs):
        is_joined_again = not join.is_linear_in(n) and _reads_any(side, changed)
        if _reads_any(join.inputs[1 - n], changed) or is_joined_again:
            yield from _origins([(side, key) for key in join.keys_by_input[n]], reason)


def _origins(keys: Sequence[tuple[Operator, exp.Expr]], reason: str) -> Iterator[tuple[str, str, str]]:
    for operator, key in keys:
        origin = _origin(operator, key)
        if origin is not None:
            yield (*origin, reason)


def _origin(operator: Operator, key: exp.Expr) -> tuple[str, str] | None:
    """Dataset and column from which a key is taken; None if it is computed."""
    if not isinstance(key, exp.Column):
        return None
    if isinstance(operator, Scan):
        return operator.dataset, key.name
    if isinstance(operator, Projection):
        expression = dict(operator.outputs).get(key.name)
        return None if expression is None else _origin(operator.input, expression)
    if isinstance(operator, Filter | LateralView | Join):
        return next((_origin(i, key) for i in operator.inputs if key.name in i.columns), None)
    return None


def _reads_any(operator: Operator, datasets: Collection[str]) -> bool:
    return any(isinstance(o, Scan) and o.dataset in datasets for o in walk(operator))


def _text(keys: Sequence[exp.Expr]) -> str:
    return ", ".join(dict.fromkeys(key.sql(DIALECT).replace("`", "") for key in keys))
