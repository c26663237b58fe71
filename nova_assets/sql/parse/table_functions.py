"""Spark's built-in table functions in FROM: ``RANGE(10)``, ``EXPLODE(ARRAY(1, 2))``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from nova_assets.sql.parse import spark_functions


def convert_table_functions(tree: exp.Expr) -> exp.Expr:
    """The tree, with each built-in table function replaced by a source with known columns.

    A generator becomes a LATERAL source. ``RANGE`` becomes a query with one column, ``id``, whose values are unknown.
    The text that Spark runs does not change.
    """
    for table in list(tree.find_all(exp.Table)):
        call = table.this
        name = _function_name(call)
        if name not in spark_functions.TABLE_FUNCTIONS:
            continue
        alias = _complete_alias(table, name, _default_columns(call, name))
        source = _range_subquery(call, alias) if name == "range" else exp.Lateral(this=call, view=False, alias=alias)
        for key in ("joins", "laterals"):
            source.set(key, table.args.get(key))
        table.replace(source)
    for named in list(tree.find_all(exp.Aliases)):
        _move_to_lateral(named)
    for values in tree.find_all(exp.Values):
        first = values.expressions[0] if values.expressions else None
        width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
        values.set("alias", _complete_alias(values, "values", [f"col{n}" for n in range(1, width + 1)]))
    return tree


def _move_to_lateral(aliased_generator: exp.Aliases) -> None:
    """Turn ``SELECT day, POSEXPLODE(a) AS (n, x)`` into a SELECT from a LATERAL source."""
    select = aliased_generator.parent
    if not isinstance(select, exp.Select) or not isinstance(aliased_generator.this, exp.Func):
        return
    laterals = select.args.get("laterals") or []
    name = f"generated_{len(laterals)}"
    alias = exp.TableAlias(this=exp.to_identifier(name), columns=[i.copy() for i in aliased_generator.expressions])
    lateral = exp.Lateral(this=aliased_generator.this.copy(), view=True, alias=alias)
    if select.args.get("from_") is None:
        select.set("from_", exp.From(this=lateral))
    else:
        select.set("laterals", [*laterals, lateral])
    columns = [exp.column(i.copy(), table=name) for i in aliased_generator.expressions]
    place = select.expressions.index(aliased_generator)
    select.set("expressions", [*select.expressions[:place], *columns, *select.expressions[place + 1 :]])


def _complete_alias(source: exp.Expr, default_name: str, default_columns: Sequence[str]) -> exp.TableAlias:
    """The alias of a source, completed with Spark's default names."""
    alias: exp.TableAlias = source.args.get("alias") or exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(default_name))
    if not alias.columns:
        alias.set("columns", [exp.to_identifier(column) for column in default_columns])
    return alias


def _default_columns(call: exp.Expr, function_name: str) -> list[str]:
    """Default column names of a generator. Empty if they depend on the types of its arguments."""
    if function_name == "json_tuple":
        return [f"c{n}" for n in range(len(call.expressions) - 1)]
    if function_name == "stack" and call.this.name.isdigit() and int(call.this.name):
        return [f"col{n}" for n in range(-(-len(call.expressions) // int(call.this.name)))]
    return []


def _function_name(call: exp.Expr) -> str:
    if isinstance(call, exp.Anonymous):
        return call.name.lower()
    return call.sql_name().lower() if isinstance(call, exp.Func) else ""


def _range_subquery(call: exp.Expr, alias: exp.TableAlias) -> exp.Subquery:
    value = exp.Cast(this=call, to=exp.DataType.build("bigint"))
    return exp.Subquery(this=exp.Select(expressions=[exp.alias_(value, "id")]), alias=alias)
