"""Repeatability: whether a query gives the same rows each time it is computed over the same data.

A maintained result consists of rows that were computed at different times. So the query must not depend on anything but
its data: no clock, no random numbers, no order of rows that the query does not determine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from nova_assets.sql.incremental.operators import Operator
from nova_assets.sql.parse import spark_functions


class NotRepeatable(Exception):
    """The query can give other rows each time it is computed over the same data.

    Args:
        reason: what the result depends on.
        node: the part of the query.
        advice: what to write instead.
    """

    def __init__(self, reason: str, node: exp.Expr, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node
        self.advice = advice


_VOLATILE = frozenset(
    """
    aes_encrypt curdate current_catalog current_database current_date current_path current_schema current_time
    current_timestamp current_timezone current_user input_file_block_length input_file_block_start
    input_file_name java_method localtime localtimestamp monotonically_increasing_id now rand randn random
    randstr reflect session_user shuffle spark_partition_id try_reflect uniform unix_timestamp user uuid version
    """.split()
)
"""Functions whose value depends on more than their arguments."""

_ORDER_SENSITIVE_AGGREGATES = frozenset(
    """
    any_value approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine array_agg collect_list
    collect_set first first_value histogram_numeric kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float last last_value listagg max_by min_by mode
    percentile_approx string_agg collect_union theta_sketch_agg theta_union_agg theta_intersection_agg
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer hll_sketch_agg hll_union_agg schema_of_variant_agg
    """.split()
)
"""Aggregates whose value can depend on the order in which Spark reads the rows."""

_COLLECTORS = frozenset({"array_agg", "collect_list", "collect_set"})
_ORDER_REMOVING = frozenset({"array_sort", "array_size", "cardinality", "size", "sort_array"})
"""Functions of an array whose value does not depend on the order of its elements."""

_TIE_FREE_WINDOW_FUNCTIONS = frozenset({"cume_dist", "dense_rank", "percent_rank", "rank"})
"""Window functions that give equal values to rows that are equal in ORDER BY."""

_KNOWN = (
    spark_functions.SCALAR_FUNCTIONS
    | spark_functions.AGGREGATES
    | spark_functions.WINDOW_FUNCTIONS
    | spark_functions.GENERATOR_FUNCTIONS
)


def check_query(tree: exp.Query) -> None:
    """Check what holds for every query, however it is maintained. Raises NotRepeatable."""
    for node in tree.walk():
        if isinstance(node, exp.Limit | exp.Fetch | exp.Offset):
            raise NotRepeatable("LIMIT chooses rows", node, "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)")
        if isinstance(node, exp.TableSample):
            raise NotRepeatable("TABLESAMPLE chooses rows at random", node, "a condition in WHERE")
        if isinstance(node, exp.Collate):
            raise _collation_error(node)
        if isinstance(node, exp.Func):
            _check_function(node)


def _collation_error(node: exp.Expr) -> NotRepeatable:
    return NotRepeatable("texts that are equal in a collation can differ", node, "LOWER(...) or another expression")


def _check_function(node: exp.Func) -> None:
    names = function_names(node)
    if "collate" in names:
        raise _collation_error(node)
    if volatile := names & _VOLATILE:
        name = min(volatile)
        raise NotRepeatable(f"{name}() depends on more than the data", node, "a column of the data")
    if isinstance(node, exp.Anonymous) and not names <= _KNOWN:
        raise NotRepeatable(f"{node.name}() is not known to be deterministic", node, "a function of Spark")


def function_names(node: exp.Func) -> frozenset[str]:
    """Names of a function, in lower case."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return frozenset({node.name.lower()})
    return frozenset(name.lower() for name in type(node).sql_names())


def check_aggregates(expressions: Iterable[exp.Expr]) -> None:
    """Check that no aggregate depends on the order of rows. Raises NotRepeatable."""
    for expression in expressions:
        for node in expression.find_all(exp.Func):
            names = function_names(node) & _ORDER_SENSITIVE_AGGREGATES
            if not names or node.find_ancestor(exp.Window) is not None:
                continue
            outer = node.parent
            if names <= _COLLECTORS and isinstance(outer, exp.Func) and function_names(outer) & _ORDER_REMOVING:
                continue
            raise NotRepeatable(
                f"{min(names)}() depends on the order of the rows",
                node,
                "sort_array(collect_list(...))" if names & _COLLECTORS else "MIN(...), MAX(...), or MAX(STRUCT(...))",
            )


def check_windows(windows: Sequence[exp.Window], operator: Operator) -> None:
    """Check that each window orders its rows completely, or that its function does not depend on the order of equal
    rows. Raises NotRepeatable.

    Args:
        operator: input of the windows, to whose columns they refer.
    """
    for window in windows:
        names = function_names(window.this) if isinstance(window.this, exp.Func) else frozenset[str]()
        specification = window.args.get("spec")
        by_rows = specification is not None and str(specification.args.get("kind")).upper() == "ROWS"
        if names and names <= _TIE_FREE_WINDOW_FUNCTIONS:
            continue
        is_plain_aggregate = names and names <= spark_functions.AGGREGATES - _ORDER_SENSITIVE_AGGREGATES
        if is_plain_aggregate and not by_rows:
            continue
        order = window.args.get("order")
        parts = [*(window.args.get("partition_by") or ()), *(o.this for o in (order.expressions if order else ()))]
        ordered = {p.name for p in parts if isinstance(p, exp.Column)}
        if not any(key <= ordered for key in operator.unique_keys):
            keys = [", ".join(sorted(k)) for k in operator.unique_keys if k]
            raise NotRepeatable(
                f"{min(names, default='the window')}() depends on the order of rows that are equal in ORDER BY",
                window,
                f"a key of the rows in ORDER BY: {' or '.join(sorted(keys))}" if keys else "RANK()",
            )


def check_without_operators(tree: exp.Query) -> None:
    """Check a query whose operators are not known, so that the order of its windows cannot be judged. Raises
    NotRepeatable.
    """
    check_aggregates([tree])
    for window in tree.find_all(exp.Window):
        check_windows([window], Operator({}))
