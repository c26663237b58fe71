"""``ROLLUP``, ``CUBE`` and ``GROUPING SETS`` as a union of aggregations, one for each set of group keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations, product
from typing import TypeAlias

from sqlglot import exp

from nova_assets.sql.incremental.expressions import has_aggregate, type_of
from nova_assets.sql.incremental.make_operators import make_aggregation
from nova_assets.sql.incremental.operators import NotMaintainable, Operator, Outputs, UnionAll

KeySet: TypeAlias = tuple[exp.Expr, ...]

_MAX_SETS = 64

ALL_ROWS = exp.cast(exp.Literal.number(0), "INT")
"""Group key of the set without keys. Without rows, this set has no group, unlike a query without ``GROUP BY``."""


def plain_group_keys(group: exp.Group | None, outputs: Sequence[exp.Expr]) -> KeySet:
    """The keys of a GROUP BY with a single set of keys.

    Args:
        outputs: the outputs of the SELECT. ``GROUP BY ALL`` groups by those without an aggregate.

    Raises:
        NotMaintainable: the clause is written in a form without a rule.
    """
    if group is None:
        return ()
    clauses = {name for name, value in group.args.items() if value}
    if clauses == {"all"} and any(e.find(exp.Window) for e in outputs):
        raise NotMaintainable("GROUP BY ALL beside window functions", group)
    if clauses == {"all"}:
        keys = tuple(e.unnest() for e in outputs if not has_aggregate(e))
    elif clauses - {"expressions"}:
        raise NotMaintainable("this form of GROUP BY", group)
    else:
        keys = tuple(key.unnest() for key in group.expressions)
    check_group_keys(keys)
    return keys


def check_group_keys(keys: Iterable[exp.Expr]) -> None:
    """Check that each key is an expression over columns. Raises NotMaintainable."""
    for key in keys:
        if key.find(exp.Query):
            raise NotMaintainable("a subquery in GROUP BY", key)
        if key.find(exp.Cube, exp.Rollup, exp.GroupingSets, exp.AggFunc):
            raise NotMaintainable("this GROUP BY", key)
        if key.find(exp.Column) is None:  # a number is the position of an output column
            raise NotMaintainable("GROUP BY without a column", key)


def key_sets(group: exp.Group) -> list[KeySet] | None:
    """The sets of group keys; None if there is a single set.

    Raises:
        NotMaintainable: the clause is written in a form without a rule.
    """
    kinds = (exp.Rollup, exp.Cube, exp.GroupingSets)
    trailing = [node for name in ("rollup", "cube", "grouping_sets") for node in group.args.get(name) or ()]
    if not trailing and not any(isinstance(e, kinds) for e in group.expressions):
        return None
    parts = [list(_sets_of(e)) for e in group.expressions]
    if trailing:  # GROUP BY a, b WITH ROLLUP
        if len(trailing) > 1 or trailing[0].expressions or any(isinstance(e, kinds) for e in group.expressions):
            raise NotMaintainable("this form of GROUP BY", group)
        parts = [list(_sets_of(type(trailing[0])(expressions=group.expressions)))]
    sets = [tuple(key for part in chosen for key in part) for chosen in product(*parts)]
    if len(sets) > _MAX_SETS:
        raise NotMaintainable(f"GROUP BY with more than {_MAX_SETS} sets of keys", group)
    return sets


def written_keys(group: exp.Group) -> KeySet:
    """All keys of a GROUP BY, in the order in which the clause names them first."""
    keys = [key for e in group.expressions for key in _keys_below(e)]
    return tuple({key.sql("spark"): key for key in keys}.values())


def _keys_below(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
        for part in node.expressions:
            yield from _keys_below(part)
    else:
        yield node.unnest()


def _sets_of(node: exp.Expr) -> Iterator[KeySet]:
    """The sets of keys of one part of GROUP BY."""
    if isinstance(node, exp.GroupingSets):
        for part in node.expressions:
            yield from _sets_of(part)
        return
    if not isinstance(node, exp.Rollup | exp.Cube):
        yield _keys_of(node)
        return
    parts = [_keys_of(e) for e in node.expressions]
    if isinstance(node, exp.Rollup):
        chosen: Iterator[Sequence[KeySet]] = (parts[:n] for n in range(len(parts), -1, -1))
    else:
        chosen = (c for n in range(len(parts), -1, -1) for c in combinations(parts, n))
    for some in chosen:
        yield tuple(key for part in some for key in part)


def _keys_of(node: exp.Expr) -> KeySet:
    return tuple(e.unnest() for e in node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def make_grouping_sets(
    operator: Operator,
    sets: Sequence[KeySet],
    written_keys: KeySet,
    outputs: Outputs,
    having: exp.Expr | None,
) -> Operator:
    """The groups of each set of keys, one set below the other.

    Args:
        written_keys: all keys, in the order in which the clause names them.
        sets: sets of expressions over the operator's columns.
        outputs: expressions over the operator's columns.
    """
    key_by_sql = {key.sql("spark"): key for key in (*written_keys, *(key for keys in sets for key in keys))}

    def groups_of(keys: KeySet) -> Operator:
        left_out = key_by_sql.keys() - {key.sql("spark") for key in keys}
        replaced = _replacement(operator, key_by_sql.keys(), left_out)
        in_set = tuple((name, replaced(e)) for name, e in outputs)
        condition = None if having is None else replaced(having)
        different = tuple({key.sql("spark"): key for key in keys}.values())
        return make_aggregation(operator, different or (ALL_ROWS.copy(),), in_set, condition)

    return reduce(_union, map(groups_of, sets))


def _union(left: Operator, right: Operator) -> UnionAll:
    columns = {name: type_ if right.columns[name] == type_ else None for name, type_ in left.columns.items()}
    return UnionAll(columns, left, right, rounded=left.rounded | right.rounded)


def _replacement(
    operator: Operator, keys: Collection[str], left_out: Collection[str]
) -> Callable[[exp.Expr], exp.Expr]:
    """Function that writes null in place of the keys that a set leaves out, except in the arguments of aggregates."""

    def insert(node: exp.Expr) -> exp.Expr:
        sql = node.sql("spark")
        if sql in left_out:
            type_ = type_of(node, operator)
            if type_ is None:
                raise NotMaintainable("a group key of unknown type in ROLLUP, CUBE or GROUPING SETS", node)
            return exp.cast(exp.null(), str(type_), dialect="spark")
        if isinstance(node, exp.Grouping):
            return _grouping(node, keys, left_out)
        if isinstance(node, exp.AnonymousAggFunc) and node.name.lower() == "grouping_id":
            return _grouping_id(node, list(keys), left_out)
        is_kept = sql in keys or isinstance(node, exp.AggFunc | exp.Filter)  # a key keeps keys that are parts of it
        return node.copy() if is_kept else node  # a copy is not visited

    return lambda expression: expression.copy().transform(insert)


def _grouping_id(node: exp.AnonymousAggFunc, keys: Sequence[str], left_out: Collection[str]) -> exp.Expr:
    """``GROUPING_ID(...)``: the values of GROUPING of all keys, as the digits of a binary number.

    Args:
        keys: all keys, in the order of GROUP BY.
    """
    arguments = [e.sql("spark") for e in node.expressions]
    if arguments and arguments != list(keys):  # as Spark requires
        raise NotMaintainable("GROUPING_ID of other columns than those of GROUP BY, in their order", node)
    digits = "".join("1" if key in left_out else "0" for key in keys)
    return exp.cast(exp.Literal.number(int(digits, 2)), "BIGINT", dialect="spark")


def _grouping(node: exp.Grouping, keys: Collection[str], left_out: Collection[str]) -> exp.Expr:
    """``GROUPING(key)``: 1 if the set leaves the key out."""
    sql = node.expressions[0].sql("spark") if len(node.expressions) == 1 else ""
    if sql not in keys:
        raise NotMaintainable("GROUPING of an expression that is no group key", node)
    return exp.cast(exp.Literal.number(1 if sql in left_out else 0), "TINYINT", dialect="spark")
