"""Output schema of a query, and types of expressions, derived from the schemas of their inputs without data or Spark.

sqlglot's type annotator walks the query, with Spark's rules where they differ from sqlglot's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.optimizer.annotate_types import TypeAnnotator
from sqlglot.optimizer.scope import Scope

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import DataType, Field, Schema
from nova_assets.sql.parse.parser_errors import convert_parser_errors
from nova_assets.sql.parse.spark_functions import EXPRESSION_FUNCTIONS
from nova_assets.sql.parse.spark_syntax import TYPED_LITERAL_KEY
from nova_assets.sql.query.resolved_query import Query, make_mapping_schema, was_written_unnamed
from nova_assets.sql.query.table_function_calls import scalar_function_types
from nova_assets.sql.types.node_types import NODE_TYPE_RULES
from nova_assets.sql.types.type_nodes import data_type_of_node, generator_columns, node_of_data_type
from nova_assets.sql.types.widening import VOID, wider_type
from nova_assets.suggestions import similar_names

_OPERATOR_SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NullSafeEQ: "<=>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}


def spark_column_name(node: exp.Expr) -> str:
    """Spark's default name of a column that is written as an expression without an alias.

    Expressions without a rule are named by their SQL text in lower case. If Spark uses another name, the comparison of
    the derived columns with Spark's columns shows the difference.
    """
    inner = {
        name: spark_column_name(node.args[name])
        for name in ("this", "expression")
        if isinstance(node.args.get(name), exp.Expr)
    }
    if isinstance(node, exp.Paren | exp.Distinct):
        return inner.get("this") or "DISTINCT " + ", ".join(map(spark_column_name, node.expressions))
    if isinstance(node, exp.Column | exp.Literal):
        return node.name
    if isinstance(node, exp.Dot):
        return f"{inner['this']}.{node.expression.name}"
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.Star):
        return "1"
    if type(node) in _OPERATOR_SYMBOLS:
        return f"({inner['this']} {_OPERATOR_SYMBOLS[type(node)]} {inner['expression']})"
    if isinstance(node, exp.NEQ):
        return f"(NOT ({inner['this']} = {inner['expression']}))"
    if isinstance(node, exp.Neg):
        return f"-{node.this.name}" if isinstance(node.this, exp.Literal) else f"(- {inner['this']})"
    if isinstance(node, exp.Not) and isinstance(node.this, exp.Is):
        return f"({spark_column_name(node.this.this)} IS NOT NULL)"
    if isinstance(node, exp.Not):
        return f"(NOT {inner['this']})"
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return f"({inner['this']} IS NULL)"
    if isinstance(node, exp.In) and node.expressions:
        return f"({inner['this']} IN ({', '.join(map(spark_column_name, node.expressions))}))"
    if TYPED_LITERAL_KEY in node.meta:
        return f"{node.meta[TYPED_LITERAL_KEY]} '{inner['this']}'"
    if isinstance(node, exp.Cast):
        cast = node.sql("spark").partition("(")[0]
        return f"{cast}({inner['this']} AS {node.to.sql('spark').upper().replace(', ', ',')})"
    if isinstance(node, exp.Between):
        return f"between({', '.join(spark_column_name(node.args[key]) for key in ('this', 'low', 'high'))})"
    if isinstance(node, exp.Like) and len(inner) == 2 and not node.args.get("negate"):
        return f"{inner['this']} LIKE {inner['expression']}"
    if isinstance(node, exp.DPipe):
        return f"concat({inner['this']}, {inner['expression']})"
    if isinstance(node, exp.Bracket):
        return f"{inner['this']}[{', '.join(map(spark_column_name, node.expressions))}]"
    if isinstance(node, exp.Case) and "this" not in inner:
        branches = [
            f"WHEN {spark_column_name(b.this)} THEN {spark_column_name(b.args['true'])}" for b in node.args["ifs"]
        ]
        default = node.args.get("default")
        return " ".join(
            ["CASE", *branches, *([f"ELSE {spark_column_name(default)}"] if default is not None else []), "END"]
        )
    if isinstance(node, exp.Anonymous) and node.name.lower() == "if":
        return f"(IF({', '.join(map(spark_column_name, node.expressions))}))"
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return f"{node.name.lower()}({', '.join(map(spark_column_name, node.expressions))})"
    if isinstance(node, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max) and "this" in inner:
        others = map(spark_column_name, node.expressions)
        return f"{node.key}({', '.join([inner['this'], *others])})"
    return node.sql("spark").lower()


class SparkTypeAnnotator(TypeAnnotator):
    """sqlglot's type annotator, with Spark's common type of two types."""

    def _maybe_coerce(self, type1: Any, type2: Any) -> Any:
        node1, node2 = (t if isinstance(t, exp.DataType) else exp.DataType.build(t) for t in (type1, type2))
        a, b = data_type_of_node(node1), data_type_of_node(node2)
        common_type = None if a is None or b is None else wider_type(a, b)
        return exp.DType.UNKNOWN if common_type is None else node_of_data_type(common_type)

    def _get_source_scope_selects(self, source: Scope) -> dict[str, Any]:
        lateral = source.expression
        if not isinstance(lateral, exp.Lateral):
            return super()._get_source_scope_selects(source)
        columns = generator_columns(lateral.this)
        names = lateral.alias_column_names or [name for name, _ in columns]
        return {n: node_of_data_type(t) for n, (_, t) in zip(names, columns, strict=False) if t is not None}


def schema_of_query(query: Query, schemas: Mapping[str, Schema], functions: Mapping[str, str] | None = None) -> Schema:
    """Output columns of a query and their types.

    Args:
        schemas: schemas of the datasets and table functions that the query reads.
        functions: return types of the user-defined functions, by function name.

    Raises:
        SqlError: a column has no name or a duplicate name, or its type cannot be derived.
    """
    annotator, tree = _annotate_types(query, schemas, functions)
    with convert_parser_errors(query.text):
        names = spelling_by_name(query, schemas)
        types = _output_types(annotator, tree)
        fields = [_make_field(query, node, type_, names) for node, type_ in zip(tree.selects, types, strict=True)]
    try:
        return Schema(tuple(fields))
    except DefinitionError as error:
        what = error.what.replace("a schema", "the output")
        raise query.text.error(what, _find_duplicate_name(tree.selects), expected=error.expected) from None


def typed_tree(query: Query, schemas: Mapping[str, Schema], functions: Mapping[str, str] | None = None) -> exp.Query:
    """Syntax tree of a query, with the types of its expressions. The arguments are those of ``schema_of_query``."""
    return _annotate_types(query, schemas, functions)[1]


def _annotate_types(
    query: Query, schemas: Mapping[str, Schema], functions: Mapping[str, str] | None
) -> tuple[SparkTypeAnnotator, exp.Query]:
    mapping_schema = make_mapping_schema(
        {name: schemas[name] for name in query.tables}, scalar_function_types(functions or {})
    )
    tree = query.tree.copy()
    annotator = SparkTypeAnnotator(mapping_schema, NODE_TYPE_RULES)
    with convert_parser_errors(query.text):
        annotator.annotate(tree)
    return annotator, tree


def _find_duplicate_name(selects: Sequence[exp.Expr]) -> exp.Expr | None:
    """The first column whose name is the name of an earlier column."""
    names: set[str] = set()
    for node in selects:
        if node.alias_or_name.lower() in names:
            return node
        names.add(node.alias_or_name.lower())
    return None


def _output_types(annotator: SparkTypeAnnotator, tree: exp.Query) -> Sequence[exp.DataType | None]:
    if isinstance(tree, exp.SetOperation):
        columns = annotator._get_setop_column_types(tree)
        return [t if isinstance(t, exp.DataType) else exp.DataType.build(t) for _, t in columns]
    return [s.type for s in tree.selects]


def _make_field(query: Query, node: exp.Expr, type_node: exp.DataType | None, spellings: Mapping[str, str]) -> Field:
    name = (
        spark_column_name(_without_table_qualifiers(node.unalias())) if is_generated_name(node) else node.alias_or_name
    )
    type_ = None if type_node is None else data_type_of_node(type_node)
    if type_ is None:
        _check_functions_exist(query, node)
        raise query.text.error(
            f"the type of column {name!r} cannot be derived from the query",
            node,
            next=f"declare it: CAST({node.unalias().sql('spark')[:60]} AS ...)",
        )
    if type_ == VOID:
        raise query.text.error(
            f"column {name!r} contains only nulls, and has no type", node, next="declare it: CAST(NULL AS ...)"
        )
    return Field(spellings.get(name, name), type_)


def _check_functions_exist(query: Query, node: exp.Expr) -> None:
    """Raise SqlError if an expression without a type calls a misspelt function of Spark."""
    for call in node.find_all(exp.Anonymous):
        name = str(call.this)
        near = similar_names(name, EXPRESSION_FUNCTIONS, 1)
        if near and name.lower() not in EXPRESSION_FUNCTIONS:
            raise query.text.error(
                f"Spark has no function {name.upper()}; did you mean {near[0].upper()}?",
                call,
                next=f"if it is a function of your session, declare its type: CAST({call.sql('spark')[:60]} AS ...)",
            )


def is_generated_name(node: exp.Expr) -> bool:
    """Whether the only name of an output column is the one that the parser generated."""
    if not isinstance(node, exp.Alias):
        return False
    return was_written_unnamed(node.this) or re.fullmatch(r"_col_\d+", node.alias) is not None


def _without_table_qualifiers(node: exp.Expr) -> exp.Expr:
    unqualified = node.copy()
    for column in unqualified.find_all(exp.Column):
        column.set("table", None)
    return unqualified


def spelling_by_name(query: Query, schemas: Mapping[str, Schema]) -> dict[str, str]:
    """Lower-case name -> its spelling in the query, or else in the input schemas."""
    spelling_by_lower_name = {n.lower(): n for table in query.tables for n in schemas[table].names}
    return spelling_by_lower_name | {n.lower(): n for n in query.written_names}


_SOURCE = "t"


def type_of_expression(expression: exp.Expr, types: Mapping[str, DataType | None]) -> DataType | None:
    """Type that Spark gives to an expression; None if the type cannot be derived.

    Args:
        expression: an expression over plain columns, without a subquery.
        types: column -> its type; None if the type is not known.
    """
    names = list(dict.fromkeys(c.name for c in expression.find_all(exp.Column)))
    if any(types.get(name) is None for name in names):
        return None
    short = {name: f"c{n}" for n, name in enumerate(names)}
    fields = [Field("no_column", DataType("int"))]  # a source has at least one column
    fields += [Field(short[name], type_) for name in names if (type_ := types[name]) is not None]

    def rename(node: exp.Expr) -> exp.Expr:
        return exp.column(short[node.name], table=_SOURCE) if isinstance(node, exp.Column) else node

    tree = exp.select(exp.alias_(expression.copy().transform(rename), "value")).from_(_SOURCE)
    annotator = SparkTypeAnnotator(make_mapping_schema({_SOURCE: Schema(tuple(fields))}), NODE_TYPE_RULES)
    annotator.annotate(tree)
    node = tree.selects[0].type
    return None if node is None else data_type_of_node(node)
