"""SQL that computes the change of a query's result from the changes of its datasets (as in DBSP: rows with weights).

Each operator becomes up to three relations of one statement: its rows before the change (*old*), its rows after the
change (*new*), and its *change*. A row of a change has a weight: 1 for an added row, -1 for a removed one. Spark pushes
the semi-joins with changed keys down to the datasets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from nova_assets.model.partition_values import can_be_key, has_unequal_representations
from nova_assets.sql.incremental.dataset_change import (
    ChangedOperators,
    ColumnBounds,
    ComputedRelation,
    ComputeRelation,
    DatasetChange,
)
from nova_assets.sql.incremental.operator_sql import (
    KEY,
    MAX_EXPANDED_RELATIONS,
    RELATION_NAME,
    WEIGHT,
    StatementTooLarge,
    column_list,
    expanded_size,
    frozen_column,
    select_over,
    select_with_weight,
    semi_join,
    sum_weights,
    to_sql,
)
from nova_assets.sql.incremental.operators import (
    Aggregation,
    Join,
    Operator,
    Scan,
    walk,
)

RESULT = "nova_result"
"""Relation with the change of the result, added up: each different row once, with its weight."""

CHANGED_GROUPS = "nova_groups"
"""Relation with the groups of an accumulation that a change concerns."""


class MaintenanceSql:
    """Writes the relations of a query's operators.

    Args:
        changes: datasets that the query reads, by name.
        compute: computes relations that are read more than once; None if one statement does everything.
        add_up: computes a change, and adds it up; None if only Spark adds up.

    Attributes:
        changed: the operators whose rows change.
        values: parameter of the SQL -> its value.
    """

    def __init__(
        self,
        root: Operator,
        changes: Mapping[str, DatasetChange],
        compute: ComputeRelation | None = None,
        add_up: ComputeRelation | None = None,
    ) -> None:
        self.root = root
        self.changes = changes
        self.values: dict[str, Any] = {}
        self._compute = compute
        self._add_up = add_up
        self._computed: dict[str, ComputedRelation] = {}
        self._numbers = {id(operator): n for n, operator in enumerate(walk(root))}
        self.changed = ChangedOperators(root, changes)
        self._relations: dict[str, str] = {}

    def add_unfrozen(self, name: str, body: str, is_frozen: str, *, is_read_often: bool) -> str:
        """Add a relation without its frozen rows, and return its name. If few rows are computed now, the frozen ones
        are counted.

        Args:
            is_frozen: condition for frozen rows; empty if there are none.
        """
        if not is_frozen:
            return self.add_relation(name, body, is_read_often=is_read_often)
        self.add_relation(name, f"SELECT * FROM ({body}) WHERE NOT {is_frozen}")
        if is_read_often:
            self._keep_computed(name, self._compute, f"SELECT *{frozen_column(is_frozen)} FROM ({body})")
        return name

    def add_added_up(self, name: str, select: str) -> bool:
        """Compute a change now, add it up, and add it as a relation. Returns False, and adds nothing, if its rows are
        too many, or if only Spark adds up.
        """
        return self._keep_computed(name, self._add_up, select)

    @property
    def adds_up(self) -> bool:
        """Whether changes of few rows are added up outside Spark."""
        return self._add_up is not None

    @property
    def has_few_rows(self) -> bool:
        """Whether the change of the result is known to have few rows."""
        return RESULT in self._computed or CHANGED_GROUPS in self._computed

    def computed(self, name: str) -> ComputedRelation | None:
        """A relation whose rows are in this process; None if they are not."""
        return self._computed.get(name)

    def with_relations(self, select: str) -> str:
        """The SELECT with those relations that it reads. Raises StatementTooLarge."""
        if expanded_size(select, self._relations) > MAX_EXPANDED_RELATIONS:
            raise StatementTooLarge
        read = {*self._read_relations([select])}
        relations = [f"{name} AS ({body})" for name, body in self._relations.items() if name in read]
        return f"WITH {', '.join(relations)} {select}" if relations else select

    def _read_relations(self, texts: Iterable[str]) -> Iterator[str]:
        visited, waiting = set[str](), list(texts)
        while waiting:
            found = {n for n in RELATION_NAME.findall(waiting.pop()) if n in self._relations} - visited
            visited |= found
            waiting += [self._relations[n] for n in found]
            yield from found

    def rows_statement(self) -> str:
        """A statement that computes the whole result after the change by the operators."""
        rows = self.rows(self.root, "new")
        return self.with_relations(f"SELECT * FROM {rows}")

    def add_relation(self, name: str, body: str, *, is_read_often: bool = False) -> str:
        """Add a relation, and return its name. A relation that is read more than once is computed now, if its rows are
        few."""
        self._relations[name] = body
        if is_read_often:
            self._keep_computed(name, self._compute, f"SELECT * FROM {name}")
        return name

    def _keep_computed(self, name: str, compute: ComputeRelation | None, select: str) -> bool:
        """Compute a relation now. Returns whether its rows are few, and were computed."""
        computed = None if compute is None else compute(self.with_relations(select), self.values)
        if computed is None:
            return False
        self._computed[name] = computed
        self._relations[name] = f"SELECT * FROM {{{computed.frame}}}"
        return True

    def select_with_keys(self, rows: str, keys: str, expressions: Sequence[exp.Expr]) -> str:
        """SELECT of the rows whose key expressions equal a row of ``keys``.

        If the keys are known, their bounds are added, by which Spark skips files and row groups.
        """
        pairs = [(to_sql(e), f"{KEY}{n}") for n, e in enumerate(expressions)]
        select = f"SELECT * FROM {semi_join(rows, keys, pairs)}"
        computed = self._computed.get(keys)
        if computed is None:
            return select
        conditions = [
            self.is_within(to_sql(e), computed.bounds[key])
            for e, (_, key) in zip(expressions, pairs, strict=True)
            if isinstance(e, exp.Column) and key in computed.bounds  # another expression may fail for other rows
        ]
        return f"{select} WHERE {' AND '.join(conditions)}" if conditions else select

    def is_within(self, expression: str, bounds: ColumnBounds) -> str:
        """Condition for a value to be within bounds, by which Spark skips files and row groups."""
        low, high = (f"nova_value_{len(self.values) + n}" for n in range(2))
        self.values |= {low: bounds.low, high: bounds.high}
        is_null = f" OR ({expression}) IS NULL" if bounds.has_nulls else ""
        parts = (f"CAST(:{name} AS DATE)" if bounds.is_date else f":{name}" for name in (low, high))
        return f"(({expression}) BETWEEN {' AND '.join(parts)}{is_null})"

    # rows before and after the change

    def rows(self, operator: Operator, version: str) -> str:
        """Name of the relation with the operator's rows. ``version`` is ``new`` or ``old``."""
        version = version if self.changed.is_changed(operator) else "new"
        name = f"nova_{self._numbers[id(operator)]}_{version}"
        if name not in self._relations:
            body = self._rows_sql(operator, version)
            self.add_relation(name, body)  # after the relations that the body reads
        return name

    def _rows_sql(self, operator: Operator, version: str) -> str:
        if isinstance(operator, Scan):
            change = self.changes[operator.dataset]
            frame = change.all_frame if version == "new" else change.old_frame
            return f"SELECT {column_list(operator.columns)} FROM {{{frame}}}"
        return select_over(operator, [self.rows(i, version) for i in operator.inputs])

    # changes

    def change(self, operator: Operator) -> str:
        """Name of the relation with the operator's change."""
        name = f"nova_{self._numbers[id(operator)]}_change"
        if name not in self._relations:
            body = self._change_sql(operator) if self.changed.is_changed(operator) else self._no_change_sql(operator)
            self.add_relation(name, body)
        return name

    def _no_change_sql(self, operator: Operator) -> str:
        return f"{select_with_weight(operator.columns, 1)} FROM {self.rows(operator, 'new')} WHERE FALSE"

    def _change_sql(self, operator: Operator) -> str:
        if operator.passes_rows_on:
            return select_over(operator, [self.change(i) for i in operator.inputs], with_weight=True)
        if isinstance(operator, Scan):
            return self._scan_change(operator)
        if isinstance(operator, Join) and operator.kind != "full":
            # the left side changes first, and then the right side
            versions = ("new", "old")
            changed = [side for side in (0, 1) if self.changed.is_changed(operator.inputs[side])]
            return " UNION ALL ".join(self._join_term(operator, side, versions[side]) for side in changed)
        change = self._again(operator, self.changed_keys(operator))
        is_one_row = isinstance(operator, Aggregation) and not operator.group_keys
        if is_one_row and can_be_added_up(operator):  # often joined with many rows, which stay if the row stays
            return sum_weights(operator.columns, change)
        return change

    def _scan_change(self, scan: Scan) -> str:
        change = self.changes[scan.dataset]
        if change.netted_frame is not None:
            return f"SELECT {column_list(scan.columns)}, {WEIGHT} FROM {{{change.netted_frame}}}"
        added = f"{select_with_weight(scan.columns, 1)} FROM {{{change.added_frame}}}"
        if change.removed_frame is None:
            return added
        both = f"{added} UNION ALL {select_with_weight(scan.columns, -1)} FROM {{{change.removed_frame}}}"
        return sum_weights(scan.columns, both) if can_be_added_up(scan) else both

    def _join_term(self, join: Join, side: int, version: str) -> str:
        """What the change of one side changes in a join, while the other side stays as it is.

        Args:
            side: 0 for the left side, 1 for the right side.
            version: version of the other side.
        """
        changed, other = join.inputs[side], join.inputs[1 - side]
        if join.is_linear_in(side):
            keys = [(pair[side], pair[1 - side]) for pair in join.equal_keys]
            inputs = [self.change(changed), self._possible_partners(other, version, keys, changed)]
            return select_over(join, inputs if side == 0 else inputs[::-1], with_weight=True)
        return self._again(join, self.changed_keys(join, (side,)), {1 - side: version})

    def _possible_partners(
        self, operator: Operator, version: str, keys: Sequence[tuple[exp.Expr, exp.Expr]], changed: Operator
    ) -> str:
        """Name of the relation with the rows of an operator that can be joined with a change. If bounds of the changed
        keys are known, Spark skips files and row groups beyond them.

        Args:
            keys: pairs of equal keys, of the changed operator and of the other one.
            changed: the operator whose change is joined.
        """
        rows = self.rows(operator, version)
        pairs = [(key, other) for key, other in keys if isinstance(key, exp.Column) and isinstance(other, exp.Column)]
        bounds = [(other, self.changed.bounds_of_change(changed, key.name)) for key, other in pairs]
        conditions = [self.is_within(to_sql(other), b) for other, b in bounds if b is not None]
        if not conditions:
            return rows
        name = f"{rows}_of_{self._numbers[id(changed)]}"
        return self.add_relation(name, f"SELECT * FROM {rows} WHERE {' AND '.join(conditions)}")

    # groups that changed are computed again

    def changed_keys(self, operator: Operator, sides: Sequence[int] = (0, 1)) -> str | None:
        """Name of the relation with the keys of all changed input rows; None without keys.

        Args:
            sides: numbers of the inputs whose changes count.
        """
        keys_by_input = operator.keys_by_input
        if not keys_by_input[0]:
            return None
        parts = [
            f"SELECT {', '.join(f'{to_sql(k)} AS {KEY}{n}' for n, k in enumerate(keys))} FROM {self.change(i)}"
            for side, (i, keys) in enumerate(zip(operator.inputs, keys_by_input, strict=True))
            if side in sides and self.changed.is_changed(i)
        ]
        names = ", ".join(f"{KEY}{n}" for n in range(len(keys_by_input[0])))
        name = f"nova_{self._numbers[id(operator)]}_keys"
        body = f"SELECT DISTINCT {names} FROM ({' UNION ALL '.join(parts)})"
        return self.add_relation(name, body, is_read_often=True)

    def _again(
        self,
        operator: Operator,
        keys: str | None,
        version_by_input: Mapping[int, str] = MappingProxyType({}),
    ) -> str:
        """The operator over the rows with changed keys, before and after the change.

        Args:
            keys: relation with the changed keys; None if all rows are computed again.
            version_by_input: number of an input -> its version before and after the change, if it stays the same.
        """
        number, parts = self._numbers[id(operator)], []
        for version, weight in (("new", 1), ("old", -1)):
            inputs = []
            for n, (operand, key_columns) in enumerate(zip(operator.inputs, operator.keys_by_input, strict=True)):
                input_version = version_by_input.get(n, version)
                rows = self.rows(operand, input_version)
                if keys is not None:
                    name = f"nova_{number}_input_{n}_{input_version}"
                    rows = self.add_relation(name, self.select_with_keys(rows, keys, key_columns))
                inputs.append(rows)
            again = self.add_relation(f"nova_{number}_again_{version}", select_over(operator, inputs))
            parts.append(f"{select_with_weight(operator.columns, weight)} FROM {again}")
        return " UNION ALL ".join(parts)


def can_be_added_up(operator: Operator) -> bool:
    """Whether equal rows of the operator are the same in every respect, by the types of its columns."""
    return all(
        t is not None and can_be_key(t) and not has_unequal_representations(t) for t in operator.columns.values()
    )
