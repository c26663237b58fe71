"""Spark's default names of unnamed output columns: ``count(1)``, ``(price * 2)``."""

from __future__ import annotations

from sqlglot import exp

from nova_assets.sql.parse.spark_syntax import TYPED_LITERAL_KEY

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
