"""Estimated cost of computing the change of a result by the operators, and of replacing the result. Pure.

Costs are seconds of CPU, with rates measured on one machine (``benchmarks/incremental``). Only the comparison matters.
Sizes come from the catalog: nothing is known about values, so each key of a join is taken to have one partner on the
smaller side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nova_assets.model.merge import MergeModel
from nova_assets.plan.manifest_rows import replaces_whole_rows
from nova_assets.sql.incremental.accumulation import Accumulation
from nova_assets.sql.incremental.operators import (
    Aggregation,
    Distinct,
    GroupedOperator,
    Join,
    LateralView,
    Operator,
    Projection,
    Scan,
    SetOperation,
    TwoInputs,
    UnionAll,
    Windowed,
    walk,
)

_REPLACEMENT_SECONDS, _CHANGES_SECONDS, _STATEMENT_SECONDS, _TERM_SECONDS = 0.6, 0.3, 0.4, 0.25
"""Seconds for a replacement, for computing changes, for each statement of the latter, and for each term of a join,
whatever their size."""

_READ_ROW_SECONDS, _SEARCH_ROW_SECONDS, _WRITE_VALUE_SECONDS = 0.05e-6, 0.1e-6, 0.4e-6
"""Seconds for reading a row, for deciding whether it has a changed key, and for writing a value of a row."""

_PARTNER_ROW_SECONDS = 0.03e-6
"""Seconds for deciding whether a row of one side of a join is a partner of a changed row of the other side."""

_SMALL_MERGE_ROW_SECONDS, _MERGE_SECONDS, _MERGE_ROW_SECONDS = 3e-6, 0.3, 0.1e-6
"""Seconds for merging the changes of a dataset with its rows: for each of few rows; and for many rows, of any number,
and for each of them."""

_DIFFERENCE_SECONDS, _DIFFERENCE_ROW_SECONDS = 0.3, 0.3e-6
"""Seconds for the difference between two bases of any size, and for each of their rows."""

_COMPUTE_ROW_SECONDS: Mapping[type[Operator], float] = {
    Join: 0.08e-6,
    Aggregation: 0.1e-6,
    Windowed: 0.3e-6,
    Distinct: 0.8e-6,
    SetOperation: 0.8e-6,
    LateralView: 0.3e-6,
}
"""Operator -> seconds for a row of its inputs. Other operators cost almost nothing."""


@dataclass(frozen=True)
class ChangeRates:
    """Seconds for the rows of changes.

    Args:
        lookup_row: for a row of a dataset in which changed rows are looked up by the channel's key.
        input_row: for a changed row of a dataset.
        row: for a changed row of an operator.
        result_row: for a changed row of the result.
        evaluations: number of times that a change is computed for each operator that reads its keys.
    """

    lookup_row: float
    input_row: float
    row: float
    result_row: float
    evaluations: int


_SMALL = ChangeRates(0.04e-6, 3e-6, 0.5e-6, 2e-6, evaluations=1)
_LARGE = ChangeRates(0.2e-6, 25e-6, 4e-6, 0.0, evaluations=2)
"""Rates of changes in this process, which are computed once; and of others, which Spark computes each time."""

_ROWS_PER_GROUP = 10
"""Rows that are computed again for a changed row, if nothing better is known."""


_LOST_VALUE_CHANCE = 0.5
"""How likely a change of rows that can be removed takes the least or greatest value away from a group."""


@dataclass(frozen=True)
class DatasetSize:
    """Rows of a dataset.

    Args:
        rows: rows after the change.
        changed_rows: rows of the change.
        has_deletions: whether rows can be removed or replaced. Then the rows before the change are looked up.
        has_rows_after: whether the change has the rows after the change. Otherwise, they are looked up too.
        key: key columns of its channel, in lower case.
    """

    rows: int
    changed_rows: int
    has_deletions: bool
    has_rows_after: bool = False
    key: frozenset[str] = frozenset()

    @property
    def lookups(self) -> int:
        """Number of look-ups of the changed rows in all rows."""
        return 0 if not self.has_deletions else 1 if self.has_rows_after else 2


@dataclass(frozen=True)
class MaintenanceCost:
    """Estimated seconds of CPU.

    Args:
        changes: for computing the change of the result by the operators.
        replacement: for computing the whole query, and writing the result.
        netting: for adding up the changes of the inputs; infinite if Spark has to add them up.
        is_corrected: whether they are corrected by what earlier executions cost.
    """

    changes: float
    replacement: float
    netting: float = math.inf
    is_corrected: bool = False

    def as_seconds(self) -> dict[str, float]:
        """Strategy -> seconds."""
        return {"changes": self.changes, "replacement": self.replacement}


def estimate_maintenance(
    root: Operator,
    sizes: Mapping[str, DatasetSize],
    stored_rows: int,
    *,
    is_change_small: bool,
    readers: int = 0,
    accumulation: Accumulation | None = None,
    is_accumulated: bool = True,
) -> MaintenanceCost:
    """Estimate both ways to maintain a result.

    Args:
        sizes: dataset -> its size.
        stored_rows: rows of the stored result.
        is_change_small: whether relations that are read more than once are computed only once.
        readers: number of readers of the changes. After a replacement, each of them compares two bases.
        accumulation: the accumulation that the stored rows are; None if they are none.
        is_accumulated: whether the stored rows have the hidden columns of the accumulation.
    """
    rates = _SMALL if is_change_small else _LARGE
    estimates = _Estimates(sizes, rates, _groups_of_result(root, stored_rows))
    statements = 1 + sum(1 for o in walk(root) if estimates.needs_changed_keys(o))
    if accumulation is None:
        changes = estimates.change_seconds(root) + rates.result_row * estimates.changed_rows(root)
    else:
        changes = estimates.accumulation_seconds(accumulation, is_accumulated=is_accumulated)
        changes += _SEARCH_ROW_SECONDS * stored_rows
    result_rows = stored_rows or estimates.rows(root)
    comparisons = readers * (_DIFFERENCE_SECONDS + 2 * _DIFFERENCE_ROW_SECONDS * result_rows)
    return MaintenanceCost(
        _CHANGES_SECONDS + _STATEMENT_SECONDS * statements + changes,
        _REPLACEMENT_SECONDS
        + estimates.seconds(root)
        + _WRITE_VALUE_SECONDS * len(root.columns) * result_rows
        + comparisons,
        estimates.netting_seconds(root) if is_change_small else math.inf,
    )


def estimate_from_row_counts(
    root: Operator,
    row_counts: Mapping[str, Mapping[str, int]],
    merge_by_dataset: Mapping[str, MergeModel],
    result: str,
    *,
    is_change_small: bool,
    readers: int,
    accumulation: Accumulation | None,
    is_accumulated: bool = True,
) -> MaintenanceCost | None:
    """Estimate both ways to maintain a result; None if the size of an input is not known.

    Args:
        row_counts: input -> mode -> rows in the blocks that the mode opens.
        merge_by_dataset: dataset -> merge model of its channel.
        result: input with the stored rows.
        is_change_small, readers, accumulation, is_accumulated: as for ``estimate_maintenance``.
    """
    if not {*merge_by_dataset, result} <= row_counts.keys():
        return None
    sizes = {
        name: DatasetSize(
            row_counts[name]["all"],
            row_counts[name]["new"],
            merge.has_deletions,
            replaces_whole_rows(merge),
            frozenset(k.lower() for k in merge.key),
        )
        for name, merge in merge_by_dataset.items()
    }
    return estimate_maintenance(
        root,
        sizes,
        row_counts[result]["all"],
        is_change_small=is_change_small,
        readers=readers,
        accumulation=accumulation,
        is_accumulated=is_accumulated,
    )


class _Estimates:
    """Sizes and costs of operators.

    Args:
        rates: seconds for the rows of changes.
        groups: aggregation -> number of its groups, if it is known.
    """

    def __init__(
        self, sizes: Mapping[str, DatasetSize], rates: ChangeRates, groups: Mapping[Operator, float] | None = None
    ) -> None:
        self.sizes = sizes
        self.rates = rates
        self.groups = groups or {}

    def rows(self, operator: Operator) -> float:
        """Rows of the output."""
        if isinstance(operator, Scan):
            return self.sizes[operator.dataset].rows
        inputs = [self.rows(i) for i in operator.inputs]
        if isinstance(operator, Join):
            return _joined_rows(operator, *inputs)
        if isinstance(operator, Aggregation):
            return self.groups.get(operator, inputs[0] / _ROWS_PER_GROUP) if operator.group_keys else 1
        if isinstance(operator, UnionAll) or (isinstance(operator, SetOperation) and operator.kind == "union"):
            return sum(inputs)
        return inputs[0]

    def changed_rows(self, operator: Operator) -> float:
        """Rows of the change of the output: added rows and removed rows."""
        if isinstance(operator, Scan):
            size = self.sizes[operator.dataset]
            return size.changed_rows * (2 if size.has_deletions else 1)
        changed = [self.changed_rows(i) for i in operator.inputs]
        if isinstance(operator, Join):
            sides = [max(1.0, self.rows(i)) for i in operator.inputs]
            joined = self.rows(operator)
            return sum(c * max(1.0, joined / side) for c, side in zip(changed, sides, strict=True))
        if isinstance(operator, GroupedOperator) and not operator.group_keys:
            return 2 * self.rows(operator) if changed[0] else 0
        if isinstance(operator, Windowed):
            return min(changed[0] * _ROWS_PER_GROUP, 2 * self.rows(operator))
        if isinstance(operator, Aggregation | Distinct | SetOperation):
            return min(sum(changed), 2 * self.rows(operator))
        return sum(changed)

    def seconds(self, operator: Operator) -> float:
        """Seconds for all rows of the output, with its inputs."""
        if isinstance(operator, Scan):
            size = self.sizes[operator.dataset]
            return _READ_ROW_SECONDS * size.rows + _merge_seconds(size)
        return sum(map(self.seconds, operator.inputs)) + self._own_seconds(operator)

    def _own_seconds(self, operator: Operator) -> float:
        rate = _COMPUTE_ROW_SECONDS.get(type(operator), 0.02e-6)
        return rate * sum(self.rows(i) for i in operator.inputs)

    def change_seconds(self, operator: Operator) -> float:
        """Seconds for the change of the output, with its inputs."""
        if not self.changed_rows(operator):
            return 0
        if isinstance(operator, Scan):
            size = self.sizes[operator.dataset]
            lookup_seconds = size.lookups * self.rates.lookup_row * size.rows
            return lookup_seconds + self.rates.input_row * size.changed_rows
        if isinstance(operator, Join) and operator.kind != "full":
            return self._join_change_seconds(operator)
        if self.needs_changed_keys(operator):
            return self._again_seconds(operator)
        return sum(map(self.change_seconds, operator.inputs)) + self.rates.row * self.changed_rows(operator)

    def netting_seconds(self, root: Operator) -> float:
        """Seconds for adding up the changes of all datasets."""
        scans = {o.dataset: o for o in walk(root) if isinstance(o, Scan)}
        return sum(map(self.change_seconds, scans.values()))

    def accumulation_seconds(self, accumulation: Accumulation, *, is_accumulated: bool) -> float:
        """Seconds for adding a change to stored groups. Groups are computed again if their accumulators are not stored,
        or if they lose their least or greatest value.
        """
        below = accumulation.aggregation.input
        seconds = self.change_seconds(below)
        has_extremes = any(a.kind in ("min", "max") for a in accumulation.accumulators)
        changed = [o.dataset for o in walk(below) if isinstance(o, Scan) and self.changed_rows(o)]
        loses_extreme = has_extremes and any(self.sizes[dataset].has_deletions for dataset in changed)
        chance = 1.0 if not is_accumulated else _LOST_VALUE_CHANCE if loses_extreme else 0.0
        again = _STATEMENT_SECONDS + self.seconds(below) + _SEARCH_ROW_SECONDS * self.rows(below)
        return seconds + chance * again

    def _join_change_seconds(self, join: Join) -> float:
        """Seconds for the terms of a join. Rows of an outer join with changed keys are joined again."""
        seconds = self.rates.row * self.changed_rows(join)
        seconds += _TERM_SECONDS * sum(1 for i in join.inputs if self.changed_rows(i))
        searches = [self.seconds(i) + _SEARCH_ROW_SECONDS * self.rows(i) for i in join.inputs]
        for n, side in enumerate(join.inputs):
            if self.changed_rows(side):
                is_linear = join.is_linear_in(n)
                seconds += self.change_seconds(side) * (1 if is_linear else self.rates.evaluations)
                seconds += self._partner_seconds(join, 1 - n) if is_linear else 2 * sum(searches)
        return seconds

    def _partner_seconds(self, join: Join, n: int) -> float:
        """Seconds for finding the partners of changed rows among the rows of the n-th side of a join.

        The measured costs of joins by columns of a dataset's key do not contain a merge of all rows with its changes
        (``benchmarks/tpch``).
        """
        side = join.inputs[n]
        seconds = self.seconds(side) + _PARTNER_ROW_SECONDS * self.rows(side)
        columns = {pair[n].name.rpartition(".")[2] for pair in join.equal_keys}
        sizes = [self.sizes[o.dataset] for o in walk(side) if isinstance(o, Scan)]
        return seconds - sum(_merge_seconds(size) for size in sizes if columns & size.key)

    def needs_changed_keys(self, operator: Operator) -> bool:
        """Whether the keys of changed rows are computed before the change of an operator."""
        if isinstance(operator, Join):
            return any(self.changed_rows(i) and not operator.is_linear_in(n) for n, i in enumerate(operator.inputs))
        return isinstance(operator, GroupedOperator | Distinct | SetOperation) and bool(self.changed_rows(operator))

    def _again_seconds(self, operator: Operator) -> float:
        """Seconds for the rows with changed keys, before and after the change."""
        if not operator.keys_by_input[0]:
            return 2 * self.seconds(operator)
        keys = self.rates.evaluations * sum(map(self.change_seconds, operator.inputs))
        searched = sum(self.seconds(i) + _SEARCH_ROW_SECONDS * self.rows(i) for i in operator.inputs)
        changed = sum(map(self.changed_rows, operator.inputs))
        rows = sum(map(self.rows, operator.inputs))
        rows_per_group = rows / self.groups[operator] if operator in self.groups else _ROWS_PER_GROUP
        matching = min(changed * rows_per_group, rows)
        rate = _COMPUTE_ROW_SECONDS.get(type(operator), 0.0)
        return keys + 2 * (searched + rate * matching) + self.rates.row * self.changed_rows(operator)


def _merge_seconds(size: DatasetSize) -> float:
    """Seconds for merging all rows of a dataset with its changes."""
    if not size.has_deletions or not size.changed_rows:
        return 0
    return min(_SMALL_MERGE_ROW_SECONDS * size.rows, _MERGE_SECONDS + _MERGE_ROW_SECONDS * size.rows)


def _groups_of_result(root: Operator, stored_rows: int) -> dict[Operator, float]:
    """Number of groups of the aggregation whose groups are the stored rows."""
    operator = root
    while isinstance(operator, Projection):
        operator = operator.input
    is_known = isinstance(operator, Aggregation) and operator.having is None and stored_rows > 0
    return {operator: stored_rows} if is_known else {}


def _joined_rows(operator: TwoInputs, left: float, right: float) -> float:
    if not isinstance(operator, Join) or operator.kind in ("left semi", "left anti"):
        return left
    if operator.kind == "inner" and not operator.equal_keys:
        return left * right
    return max(left, right)
