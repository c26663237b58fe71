"""``EXISTS`` and ``IN`` inside of other expressions, as counts of rows: ``(SELECT COUNT(*) ...) > 0``."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from nova_assets.sql.incremental.clauses import used_clauses
from nova_assets.sql.incremental.expressions import find_outside_subqueries
from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.incremental.repeatability import is_generator

_SELECT_CLAUSES = frozenset("expressions from_ joins laterals where with_ distinct order".split())
"""Clauses of a subquery that decide nothing but which rows there are."""

_SOURCES = (exp.Table, exp.Subquery, exp.Lateral)

_OTHER_NAME = "nova_in_"
"""Beginning of the name of a source that had the name of an outer source."""


def replace_by_counts(holder: exp.Expr, *, is_condition: bool) -> None:
    """Write counts in place of EXISTS and IN in an expression.

    In SQL, ``IN`` is null, rather than false, if a null prevents a decision. A condition does not distinguish the two,
    unless ``IN`` is negated; for ``NOT IN``, further counts tell null and false apart. Elsewhere, Spark gives false in
    place of null, and which expressions it changes so depends on its plan. There, ``IN`` has no rule.

    Args:
        holder: node with the expression. It is changed.
        is_condition: whether rows are kept if the expression is true.

    Raises:
        NotMaintainable: a test is not known to be such a count.
    """
    for node in list(find_outside_subqueries(holder, exp.Exists)):
        node.replace(_has_rows(_rows_of(node.this, node)))
    tests = [n for n in find_outside_subqueries(holder, exp.In) if n.args.get("query") is not None]
    for node in tests:
        assert isinstance(node, exp.In)
        condition, is_negated = _with_negation(node)
        if not is_condition or not _is_part_of_condition(condition, holder):
            raise NotMaintainable(
                "IN with a subquery in another expression than AND and OR of a condition, where Spark gives false in "
                "place of null; EXISTS has a rule",
                node,
            )
        node.replace(_is_in(node) if is_negated else _has_rows(_matching_rows(node)))


def _is_in(test: exp.In) -> exp.Expr:
    """IN as true, false or null."""
    select, value = _rows_of(test.args["query"], test), test.this.unnest()
    if isinstance(value, exp.Tuple):
        raise NotMaintainable("IN for several columns in another expression than AND and OR of a condition", test)
    column = select.expressions[0].unalias()
    is_null = exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null())
    null_rows = select.where(exp.Is(this=exp.Paren(this=column.copy()), expression=exp.Null()))
    case = exp.Case().when(_has_rows(_matching_rows(test)), exp.true())
    case = case.when(exp.and_(_has_rows(select), exp.or_(is_null, _has_rows(null_rows))), exp.Null())
    return exp.Paren(this=case.else_(exp.false()))


def _matching_rows(test: exp.In) -> exp.Select:
    """The rows of the subquery of IN that equal the value."""
    select, this = _rows_of(test.args["query"], test), test.this.unnest()
    values = this.expressions if isinstance(this, exp.Tuple) else [this]
    columns = [e.unalias() for e in select.expressions]
    if len(values) != len(columns) or any(is_generator(c) or c.find(exp.Query) for c in (*values, *columns)):
        raise NotMaintainable("IN with a subquery under OR, of this kind", test)
    _rename_sources(select, {c.table.lower() for value in values for c in value.find_all(exp.Column)}, test)
    for value, column in zip(values, columns, strict=True):
        select = select.where(exp.EQ(this=column.copy(), expression=value.copy()), copy=False)
    return select


def _rename_sources(select: exp.Select, outer_names: Collection[str], test: exp.In) -> None:
    """Give other names to the sources of a subquery that have the names of outer ones, which they would hide.

    Args:
        select: the subquery, with a source for each column. It is changed, and so are its columns.
        outer_names: in lower case.
    """
    names = _source_names(select)
    for name in names & set(outer_names):
        (source, *others) = [s for s in select.find_all(*_SOURCES) if s.alias_or_name.lower() == name]
        other_name = f"{_OTHER_NAME}{name}"
        is_plain = (
            isinstance(source, exp.Table)
            and not others
            and not any(q is not select for q in select.find_all(exp.Query))
        )
        if not is_plain or other_name in names or other_name in outer_names:
            raise NotMaintainable("IN with a subquery under OR, whose sources have the same names", test)
        columns = source.args["alias"].columns if source.args.get("alias") else []
        source.set("alias", exp.TableAlias(this=exp.to_identifier(other_name), columns=columns))
        for column in select.find_all(exp.Column):
            if column.table.lower() == name:
                column.set("table", exp.to_identifier(other_name))


def _rows_of(query: exp.Expr, test: exp.Expr) -> exp.Select:
    """A copy of a subquery that gives one row for each row of FROM and WHERE."""
    select = unwrap(query)
    if not isinstance(select, exp.Select) or used_clauses(select) - _SELECT_CLAUSES:
        raise NotMaintainable("EXISTS or IN under OR, with a subquery of this kind", test)
    if any(is_generator(e) or e.find(exp.AggFunc, exp.Window) for e in select.expressions):
        raise NotMaintainable("EXISTS or IN under OR, with aggregates, windows or generators", test)
    return select.copy()


def unwrap(query: exp.Expr) -> exp.Expr:
    """The query inside of parentheses. Raises NotMaintainable if other clauses follow the parentheses."""
    while isinstance(query, exp.Subquery):
        if any(value for clause, value in query.args.items() if clause not in ("this", "alias")):
            raise NotMaintainable("a subquery with clauses after its parentheses", query)
        query = query.this
    return query


def _has_rows(select: exp.Select) -> exp.Expr:
    for clause in ("distinct", "order"):
        select.set(clause, None)
    select.set("expressions", [exp.alias_(exp.Count(this=exp.Star(), big_int=True), "n")])
    return exp.Paren(this=exp.GT(this=exp.Subquery(this=select), expression=exp.Literal.number(0)))


def _with_negation(test: exp.In) -> tuple[exp.Expr, bool]:
    """The test with a NOT directly around it, and whether there is one."""
    node: exp.Expr = test
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return (node.parent, True) if isinstance(node.parent, exp.Not) else (test, False)


def _is_part_of_condition(node: exp.Expr, holder: exp.Expr) -> bool:
    parent = node.parent
    while parent is not None and parent is not holder:
        if not isinstance(parent, exp.And | exp.Or | exp.Paren):
            return False
        parent = parent.parent
    return True


def _source_names(select: exp.Select) -> set[str]:
    return {source.alias_or_name.lower() for source in select.find_all(*_SOURCES)}
