"""Repeatability: whether a query, or a part of it, gives the same rows each time it is computed over the same data.

A maintained result consists of rows that were computed at different times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.operators import NotMaintainable, Operator
from nova_assets.sql.incremental.value_types import value_type
from nova_assets.sql.parse import spark_functions


class NotRepeatable(Exception):
    """The query depends on more than its data, such as a clock.

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
    current_timestamp current_timezone current_user input_file_block_length input_file_block_start input_file_name
    java_method localtime localtimestamp monotonically_increasing_id now rand randn random randstr reflect
    session_user shuffle spark_partition_id try_reflect uniform unix_timestamp user uuid version
    """.split()
)
"""Functions whose value depends on more than their arguments."""

CLOCK_WORD = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s.*)?", re.IGNORECASE | re.DOTALL)
"""Texts that Spark takes for the current day or time, where it converts them to a date or timestamp."""

_ORDER_SENSITIVE_AGGREGATES = frozenset(
    """
    any_value approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine array_agg collect_list
    collect_set collect_union first first_value histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float last
    last_value listagg max_by measure min_by mode percentile_approx schema_of_variant_agg string_agg
    theta_intersection_agg theta_sketch_agg theta_union_agg tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer vector_avg vector_sum
    """.split()
)
"""Aggregates whose value can depend on the order in which Spark reads the rows."""

_COLLECTORS = frozenset({"array_agg", "collect_list", "collect_set"})

_ROUNDING_AGGREGATES = frozenset(
    """
    corr covar_pop covar_samp kurtosis regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness std stddev stddev_pop stddev_samp try_sum var_pop var_samp variance
    """.split()
)
"""Aggregates whose value can depend on the order of additions, whatever their arguments are."""

_AVERAGES = frozenset({"avg", "mean", "try_avg"})

_TYPES_OF_EXACT_SUMS = frozenset({"tinyint", "smallint", "int", "bigint", "decimal"})
_TYPES_OF_EXACT_AVERAGES = frozenset({"tinyint", "smallint"})
"""Spark adds up integers for an average as doubles, which are exact only up to 2^53."""

_MAX_DIGITS_ADDED_AS_DOUBLES = 11
"""Spark adds up decimals of at most so many digits for an average as doubles, too (DecimalAggregates)."""

_DIGITS_OF_SMALL_DECIMALS = 5
"""Sums of decimals of so few digits reach 2^53 only with 90 billion rows."""

_TIE_FREE_WINDOW_FUNCTIONS = frozenset({"cume_dist", "dense_rank", "percent_rank", "rank"})
"""Window functions that give equal values to rows that are equal in ORDER BY."""

_NAMES_BY_CLASS: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.ApproxQuantile: frozenset({"approx_percentile"}),
    exp.ArrayUniqueAgg: frozenset({"collect_set"}),
    exp.BitwiseAndAgg: frozenset({"bit_and"}),
    exp.BitwiseOrAgg: frozenset({"bit_or"}),
    exp.BitwiseXorAgg: frozenset({"bit_xor"}),
    exp.GroupConcat: frozenset({"listagg"}),
    exp.Quantile: frozenset({"percentile"}),
}
"""Spark's names of functions whose class in the syntax tree has another name."""


def function_names(node: exp.Func) -> frozenset[str]:
    """Names of a function, in lower case: the one that was written, or all names of its class."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return frozenset({node.name.lower()})
    return frozenset(name.lower() for name in type(node).sql_names()) | _NAMES_BY_CLASS.get(type(node), frozenset())


def check_query(tree: exp.Expr) -> None:
    """Check that the query, or a condition, depends on its data only. Raises NotRepeatable."""
    for node in tree.walk():
        if isinstance(node, exp.TableSample):
            raise NotRepeatable("TABLESAMPLE chooses rows at random", node, "a condition in WHERE")
        if isinstance(node, exp.Collate):
            raise _collation_error(node)
        if (text := _constant_text(node)) is not None and CLOCK_WORD.fullmatch(text):
            raise NotRepeatable(f"{text!r} can stand for the current day", node, "a column of the data")
        if isinstance(node, exp.Func):
            _check_function(node)


def _constant_text(node: exp.Expr) -> str | None:
    """Text of a literal, or of several literals that are joined."""
    if isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string):
        return str(node.name)
    is_joined = isinstance(node, exp.Concat | exp.DPipe) or (
        isinstance(node, exp.Anonymous) and node.name.lower() == "concat"
    )
    parts = [_constant_text(part) for part in node.iter_expressions()] if is_joined else [None]
    return None if None in parts else "".join(p for p in parts if p is not None)


def _collation_error(node: exp.Expr) -> NotRepeatable:
    return NotRepeatable("texts that are equal in a collation can differ", node, "LOWER(...) or another expression")


def _check_function(node: exp.Func) -> None:
    names = function_names(node)
    if "collate" in names:
        raise _collation_error(node)
    if volatile := names & _VOLATILE:
        name = min(volatile)
        raise NotRepeatable(f"{name}() depends on more than the data", node, "a column of the data")
    is_of_user = isinstance(node, exp.Anonymous) and not names <= spark_functions.EXPRESSION_FUNCTIONS
    if is_of_user or isinstance(node.parent, exp.Dot):
        raise NotRepeatable(f"{node.name}() is not known to be deterministic", node, "a function of Spark")


# parts of a query


def is_generator(expression: exp.Expr) -> bool:
    """Whether an expression makes several rows of one."""
    return any(
        isinstance(n, exp.UDTF | exp.Explode | exp.Posexplode | exp.Inline)
        or (isinstance(n, exp.Func) and function_names(n) & spark_functions.GENERATOR_FUNCTIONS)
        for n in expression.walk()
    )


def find_unordered_aggregate(expressions: Iterable[exp.Expr]) -> exp.Expr | None:
    """The first aggregate whose value depends on the order of rows; None if there is none."""
    for expression in expressions:
        for node in expression.find_all(exp.Func):
            names = function_names(node) & _ORDER_SENSITIVE_AGGREGATES
            if names and not (names <= _COLLECTORS and _removes_order(node.parent)):
                return node
    return None


def _removes_order(node: exp.Expr | None) -> bool:
    """Whether a function of an array gives the same value for every order of its elements."""
    if not isinstance(node, exp.Func):
        return False
    names = function_names(node)
    is_default_sort = "array_sort" in names and len(list(node.iter_expressions())) == 1
    return is_default_sort or bool(names & {"array_size", "cardinality", "size", "sort_array"})


def is_rounded(expression: exp.Expr, operator: Operator) -> bool:
    """Whether the value of an output can differ in the last digits each time it is computed.

    Args:
        operator: input of the expression, to whose columns it refers.
    """
    if any(c.name in operator.rounded for c in expression.find_all(exp.Column)):
        return True
    for node in expression.find_all(exp.AggFunc):
        names = function_names(node)
        if names & _ROUNDING_AGGREGATES:
            return True
        is_exact = _has_exact_sum if "sum" in names else _has_exact_average if names & _AVERAGES else None
        if is_exact is not None and not all(is_exact(value_type(n, operator.columns)) for n in _numbers_of(node)):
            return True
    return False


def _numbers_of(aggregate: exp.Expr) -> list[exp.Expr]:
    """The numbers that an aggregate adds up."""
    return aggregate.this.expressions if isinstance(aggregate.this, exp.Distinct) else [aggregate.this]


def _has_exact_sum(type_: DataType | None) -> bool:
    """Whether a sum of numbers of a type does not depend on the order of the rows."""
    return type_ is not None and type_.name in _TYPES_OF_EXACT_SUMS


def _has_exact_average(type_: DataType | None) -> bool:
    if type_ is None or type_.name != "decimal":
        return type_ is not None and type_.name in _TYPES_OF_EXACT_AVERAGES
    return not _DIGITS_OF_SMALL_DECIMALS < type_.args[0] <= _MAX_DIGITS_ADDED_AS_DOUBLES


def check_exact(expressions: Iterable[exp.Expr], operator: Operator) -> None:
    """Check that a decision about rows depends on exact values only. Raises NotMaintainable."""
    for expression in expressions:
        if is_rounded(expression, operator):  # a row that is kept because of 0.30000000000000004 would never be removed
            raise NotMaintainable("a decision that depends on a rounded number", expression)


def find_unordered_window(windows: Sequence[exp.Window], operator: Operator) -> exp.Expr | None:
    """The first window that orders its rows only in part, and whose function depends on the order of equal rows; None
    if there is none. Raises NotMaintainable for a named window.

    Args:
        operator: input of the windows, to whose columns they refer.
    """
    for window in windows:
        if window.args.get("alias"):
            raise NotMaintainable("a named window", window)
        names = function_names(window.this) if isinstance(window.this, exp.Func) else frozenset[str]()
        specification = window.args.get("spec")
        by_rows = specification is not None and str(specification.args.get("kind")).upper() == "ROWS"
        if names & _TIE_FREE_WINDOW_FUNCTIONS:
            continue
        is_plain_aggregate = names & spark_functions.AGGREGATES and not names & _ORDER_SENSITIVE_AGGREGATES
        if is_plain_aggregate and not by_rows:
            continue
        order = window.args.get("order")
        parts = [*(window.args.get("partition_by") or ()), *(o.this for o in (order.expressions if order else ()))]
        ordered = {p.name for p in parts if isinstance(p, exp.Column)}
        if not any(key <= ordered for key in operator.unique_keys):
            return window
    return None
