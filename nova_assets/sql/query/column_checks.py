"""Checks that the columns that a query names exist, each in one source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.errors import SqlError
from nova_assets.model.schema import Schema
from nova_assets.sql.query.scans import Scan, scan_number
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean, similar_names


def check_columns_exist(text: SqlText, scope: Scope, schemas: Mapping[str, Schema], scans: tuple[Scan, ...]) -> None:
    for column in (*scope.columns, *_columns_of_group_conditions(scope)):
        if not column.table:
            if _is_output_alias(column):
                continue
            raise _unresolved_column_error(text, scope, column, schemas)
        source = scope.sources.get(column.table)
        # The parser gives names of its own to some queries, such as PIVOT.
        if (
            source is None
            and f"{column.table}.{column.name}".lower() in text.sql.lower()
            and not _is_visible_source(scope, column.table)
        ):
            raise text.error(
                f"there is no table or alias {column.table!r}{did_you_mean(column.table, scope.sources)}",
                column,
                expected=f"a column of {' or '.join(scope.sources) or 'a table'}",
            )
        names = None if source is None else column_names_of_source(source, schemas, scans)
        if names is not None and column.name.lower() not in names:
            raise text.error(
                f"{column.table} has no column {column.name!r}",
                column,
                expected=_format_similar_names(column.name, names),
            )


def _unresolved_column_error(
    text: SqlText, scope: Scope, column: exp.Column, schemas: Mapping[str, Schema]
) -> SqlError:
    """Error for a name without a table: no source has the column, or several have it."""
    columns_by_source = {n: column_names_of_source(s, schemas, ()) or {} for n, s in scope.sources.items()}
    owners = [name for name, columns in columns_by_source.items() if column.name.lower() in columns]
    if len(owners) > 1:
        return text.error(
            f"column {column.name!r} is in {' and in '.join(owners)}",
            column,
            expected=" or ".join(f"{owner}.{column.name}" for owner in owners),
        )
    visible_columns = {n: spelling for columns in columns_by_source.values() for n, spelling in columns.items()}
    return text.error(
        f"there is no column {column.name!r}", column, expected=_format_similar_names(column.name, visible_columns)
    )


def _columns_of_group_conditions(scope: Scope) -> Iterator[exp.Column]:
    """Columns without a table in HAVING and QUALIFY, which are not among the columns of the scope."""
    for clause in filter(None, map(scope.expression.args.get, ("having", "qualify"))):
        for node in clause.walk(prune=lambda n: isinstance(n, exp.Query)):
            if isinstance(node, exp.Column) and not node.table:
                yield node


def _is_visible_source(scope: Scope | None, name: str) -> bool:
    """Whether a query or a query around it reads a source of this name. The parser keeps aliases of PIVOT apart."""
    while scope is not None:
        if name in scope.sources or any(pivot.alias == name for pivot in scope.expression.find_all(exp.Pivot)):
            return True
        scope = scope.parent
    return False


def _is_output_alias(column: exp.Column) -> bool:
    """Whether an unqualified name refers to an output column, in a clause where SQL allows such references."""
    query = column.find_ancestor(exp.Select, exp.SetOperation)
    clause = column.find_ancestor(exp.Order, exp.Having, exp.Group, exp.Qualify, exp.Sort)
    names = {name.lower() for name in query.named_selects} if query is not None else set()
    return clause is not None and column.name.lower() in names


def check_using_columns_exist(text: SqlText, tree: exp.Query, schemas: Mapping[str, Schema]) -> None:
    """Raise SqlError if a joined dataset has no column of its USING clause. Other tables, such as those of WITH, and
    columns with aliases are left to the parser.
    """
    for join in tree.find_all(exp.Join):
        if scan_number(join.this) is None or join.this.alias_column_names:
            continue
        names = {n.lower(): n for n in schemas[join.this.name].names}
        for column in join.args.get("using") or ():
            if column.name.lower() not in names:
                raise text.error(
                    f"{join.this.alias_or_name} has no column {column.name!r}, which USING names",
                    column,
                    expected=_format_similar_names(column.name, names),
                )


def column_names_of_source(
    source: Any, schemas: Mapping[str, Schema], scans: tuple[Scan, ...]
) -> dict[str, str] | None:
    """The columns of a source, by lower-case name. None if the columns are unknown."""
    if isinstance(source, exp.Table):
        number = scan_number(source)
        schema = schemas.get(scans[number].dataset if scans and number is not None else source.name)
        return None if schema is None else {n.lower(): n for n in schema.names}
    if isinstance(source, Scope) and isinstance(source.expression, exp.Query):
        return {n.lower(): n for n in source.outer_columns or source.expression.named_selects}
    return None


def _format_similar_names(name: str, known_names: Mapping[str, str]) -> str:
    near = similar_names(name, known_names) or list(known_names)[:8]
    return ", ".join(known_names[n] for n in near) or "a column of the sources of the query"
