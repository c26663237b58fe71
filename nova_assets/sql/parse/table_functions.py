"""Spark's own table functions in FROM: ``RANGE(10)``, ``EXPLODE(ARRAY(1, 2))``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from nova_assets.sql.parse import spark_functions


def with_table_functions_as_sources(tree: exp.Expr) -> exp.Expr:
    """The tree, in which each table function of Spark's is a source whose columns the rules know.

    A generator becomes a LATERAL source. ``RANGE`` becomes a query with one column, ``id``, whose values are unknown.
    The text that Spark runs stays as it is written.
    """
    for table in list(tree.find_all(exp.Table)):
        call = table.this
        name = _name(call)
        if name not in spark_functions.TABLES:
            continue
        alias = _alias(table, name, _columns(call, name))
        source = _range(call, alias) if name == "range" else exp.Lateral(this=call, view=False, alias=alias)
        for key in ("joins", "laterals"):
            source.set(key, table.args.get(key))
        table.replace(source)
    for named in list(tree.find_all(exp.Aliases)):
        _as_lateral(named)
    for values in tree.find_all(exp.Values):
        first = values.expressions[0] if values.expressions else None
        width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
        values.set("alias", _alias(values, "values", [f"col{n}" for n in range(1, width + 1)]))
    return tree


def _as_lateral(named: exp.Aliases) -> None:
    """``SELECT day, POSEXPLODE(a) AS (n, x)``: the columns of a LATERAL source."""
    select = named.parent
    if not isinstance(select, exp.Select) or not isinstance(named.this, exp.Func):
        return
    laterals = select.args.get("laterals") or []
    name = f"generated_{len(laterals)}"
    alias = exp.TableAlias(this=exp.to_identifier(name), columns=[i.copy() for i in named.expressions])
    lateral = exp.Lateral(this=named.this.copy(), view=True, alias=alias)
    if select.args.get("from_") is None:
        select.set("from_", exp.From(this=lateral))
    else:
        select.set("laterals", [*laterals, lateral])
    columns = [exp.column(i.copy(), table=name) for i in named.expressions]
    place = select.expressions.index(named)
    select.set("expressions", [*select.expressions[:place], *columns, *select.expressions[place + 1 :]])


def _alias(source: exp.Expr, name: str, columns: Sequence[str]) -> exp.TableAlias:
    """The alias of a source, with the names that Spark gives where the query gives none."""
    alias: exp.TableAlias = source.args.get("alias") or exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(name))
    if not alias.columns:
        alias.set("columns", [exp.to_identifier(column) for column in columns])
    return alias


def _columns(call: exp.Expr, name: str) -> list[str]:
    """The columns of a generator, as far as its arguments' types do not matter."""
    if name == "json_tuple":
        return [f"c{n}" for n in range(len(call.expressions) - 1)]
    if name == "stack" and call.this.name.isdigit() and int(call.this.name):
        return [f"col{n}" for n in range(-(-len(call.expressions) // int(call.this.name)))]
    return []


def _name(call: exp.Expr) -> str:
    if isinstance(call, exp.Anonymous):
        return call.name.lower()
    return call.sql_name().lower() if isinstance(call, exp.Func) else ""


def _range(call: exp.Expr, alias: exp.TableAlias) -> exp.Subquery:
    value = exp.Cast(this=call, to=exp.DataType.build("bigint"))
    return exp.Subquery(this=exp.Select(expressions=[exp.alias_(value, "id")]), alias=alias)
