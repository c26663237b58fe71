"""Queries resolved without data: the places where they read datasets, and the source of every column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema

from nova_assets.model.schema import Schema
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.parse.parser_errors import convert_parser_errors
from nova_assets.sql.query.query_checks import check_columns_exist, check_select, check_using_columns_exist
from nova_assets.sql.query.scans import READ_MODES, Scan, mark_scans, scan_number
from nova_assets.sql.query.table_function_calls import (
    TableFunctionCall,
    call_number,
    check_no_outer_columns,
    check_no_outer_ctes,
    mark_table_function_calls,
    replace_call_with_table,
)
from nova_assets.sql.text import Span, SqlText, span_of
from nova_assets.suggestions import similar_names

_UNQUALIFIED_KEY = "nova_bare"
_USING_KEY = "nova_using"
_WRITTEN_KEY = "nova_written"
_MERGED_KEY = "nova_merged"
_UNNAMED_KEY = "nova_nameless"
_ALIASED_KEY = "nova_aliased"


@dataclass(frozen=True)
class Query:
    """A query with resolved columns.

    Args:
        text: the query as its author wrote it.
        tree: syntax tree in which every column is qualified by its source and variables are placeholders (``:day``).
        scans: all places where the query reads a dataset.
        variables: the variables that the query uses, with their Spark types.
        written_names: names of output columns and aliases, as written.
        variables_without_colon: places where the text names a variable without a colon.
        calls: all places where the query calls a table function.
        schemas: schemas of the datasets that the query reads.
    """

    text: SqlText
    tree: exp.Query
    scans: tuple[Scan, ...]
    variables: Mapping[str, str]
    written_names: tuple[str, ...] = ()
    variables_without_colon: tuple[tuple[Span, str], ...] = ()
    calls: tuple[TableFunctionCall, ...] = ()
    schemas: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """The datasets that the query reads, and the table functions that it calls."""
        return tuple(dict.fromkeys((*self.reads, *(c.function for c in self.calls))))

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets that the query reads, in order of first mention."""
        return tuple(dict.fromkeys(s.dataset for s in self.scans))


def mark_calls(text: SqlText, tree: exp.Query) -> tuple[TableFunctionCall, ...]:
    """Find the table function calls of a query and mark their nodes in the tree. Raises SqlError."""
    return mark_table_function_calls(text, tree, READ_MODES)


def is_using_or_natural(join: exp.Join) -> bool:
    """Whether a join of a resolved tree was written with USING or as NATURAL JOIN."""
    return bool(join.meta.get(_USING_KEY))


def is_merged_column(node: exp.Expr) -> bool:
    """Whether a node of a resolved tree stands for a column that USING or NATURAL JOIN merges: COALESCE(a.x, b.x)."""
    return bool(node.meta.get(_MERGED_KEY))


def was_written_unnamed(node: exp.Expr) -> bool:
    """Whether an output column of a resolved tree was written as an expression without a name."""
    return bool(node.meta.get(_UNNAMED_KEY))


def was_written_with_alias(node: exp.Expr) -> bool:
    """Whether an output column of a resolved tree was written with AS. Other aliases were added by resolving."""
    return bool(node.meta.get(_ALIASED_KEY))


def resolve_query(
    text: SqlText,
    tree: exp.Query,
    schemas: Mapping[str, Schema],
    variable_types: Mapping[str, str] | None = None,
    table_functions: Mapping[str, Schema] | None = None,
) -> Query:
    """Resolve every column of a query.

    Args:
        schemas: schemas of all available datasets.
        variable_types: Spark types of the scope's variables, by name.
        table_functions: output schemas of the table functions, by name.

    Raises:
        SqlError: a dataset, function or column does not exist, or a name is both a column and a variable.
    """
    tree, table_functions = tree.copy(), table_functions or {}
    scans, calls = mark_scans(text, tree), mark_calls(text, tree)
    for scan in scans:
        if scan.dataset not in schemas:
            raise _unknown_dataset_error(text, scan, schemas, table_functions)
    calls = tuple(_resolve_call(text, call, table_functions) for call in calls)
    for table in reversed(list(tree.find_all(exp.Table))):  # inner calls first
        number, call_index = scan_number(table), call_number(table)
        if number is not None:
            _name_table_by_dataset(table, scans[number])
        if call_index is not None:
            replace_call_with_table(table, calls[call_index])
    for column in tree.find_all(exp.Column):
        column.meta[_UNQUALIFIED_KEY] = not column.table
    for join in tree.find_all(exp.Join):
        if join.args.get("using") or join.method.upper() == "NATURAL":
            join.meta[_USING_KEY] = True
    for alias in tree.find_all(exp.Alias):
        alias.meta[_ALIASED_KEY] = True
    for function in tree.find_all(exp.Coalesce):
        function.meta[_WRITTEN_KEY] = True
    for node in tree.selects:
        named = node.unnest().this if isinstance(node, exp.Cast | exp.TryCast) else node  # named by its column
        if not isinstance(named, exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Star):
            node.meta[_UNNAMED_KEY] = True
    used_schemas = {s.dataset: schemas[s.dataset] for s in scans} | {
        c.function: table_functions[c.function] for c in calls
    }
    names = (*(a.alias for a in tree.find_all(exp.Alias)), *(n for n in tree.named_selects if n))
    qualified_tree = _qualify_columns(text, tree, used_schemas)
    for function in qualified_tree.find_all(exp.Coalesce):
        function.meta[_MERGED_KEY] = not function.meta.get(_WRITTEN_KEY)
    for column in qualified_tree.find_all(exp.Column):
        if column.meta.get(_UNQUALIFIED_KEY) and column.table:
            column.args["table"].meta.clear()  # the qualifier's position in FROM is not the column's position
    _undo_column_aliases(text, qualified_tree, used_schemas)
    used_variables, names_by_span = _replace_variables(text, qualified_tree, variable_types or {})
    check_no_outer_columns(text, qualified_tree)
    for scope in traverse_scope(qualified_tree):
        check_columns_exist(text, scope, used_schemas, scans)
        check_select(text, scope)
    return Query(
        text,
        qualified_tree,
        scans,
        used_variables,
        names,
        names_by_span,
        calls,
        {s.dataset: schemas[s.dataset] for s in scans},
    )


def _resolve_call(text: SqlText, call: TableFunctionCall, table_functions: Mapping[str, Schema]) -> TableFunctionCall:
    """The call, with the function's name in its declared spelling. Names are case-insensitive."""
    name = next((n for n in table_functions if n.lower() == call.function.lower()), None)
    if name is None:
        raise _unknown_function_error(text, call, table_functions)
    check_no_outer_ctes(text, call)
    return replace(call, function=name)


def _unknown_function_error(text: SqlText, call: TableFunctionCall, table_functions: Mapping[str, Schema]) -> Exception:
    return text.error(
        f"there is no table function {call.function}(...)",
        call.node,
        expected=", ".join(f"{n}(...)" for n in table_functions)
        or "a dataset, NEW(dataset), OLD(dataset) or WHOLE(dataset)",
        next=f'nova.datasets(..., functions=[{call.function}]), of @nova.sql_function(returns="table(...)")',
    )


def _unknown_dataset_error(
    text: SqlText, scan: Scan, schemas: Mapping[str, Schema], table_functions: Mapping[str, Schema]
) -> Exception:
    if scan.dataset in table_functions:
        return text.error(
            f"{scan.dataset} is a table function, not a dataset", scan.span, expected=f"{scan.dataset}(...)"
        )
    near = similar_names(scan.dataset, schemas) or sorted(schemas)[:5]
    return text.error(
        f"there is no dataset {scan.dataset!r}",
        scan.span,
        expected=f"a dataset of the project, such as {', '.join(near)}" if near else "a dataset of the project",
    )


def _name_table_by_dataset(table: exp.Table, scan: Scan) -> None:
    """Name a table node by its dataset. The query keeps the alias, or uses the dataset's name as alias."""
    name = exp.to_identifier(scan.dataset)
    for key, value in next(iter(table.find_all(exp.Identifier)), name).meta.items():
        name.meta[key] = value
    table.set("this", name)
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(scan.dataset)))


def make_mapping_schema(
    schemas: Mapping[str, Schema], function_types: Mapping[str, str] | None = None
) -> MappingSchema:
    """Schemas and return types of user-defined functions, in the format of sqlglot's optimizer."""
    types_by_table: dict[str, object] = {n: {f.name: str(f.type) for f in s.fields} for n, s in schemas.items()}
    return MappingSchema(types_by_table, dialect=DIALECT, udf_mapping=dict(function_types or {}))


def _qualify_columns(text: SqlText, tree: exp.Query, schemas: Mapping[str, Schema]) -> exp.Query:
    _check_source_names_unique(text, tree)
    check_using_columns_exist(text, tree, schemas)
    with convert_parser_errors(text):
        return qualify(
            tree,
            dialect=DIALECT,
            schema=make_mapping_schema(schemas),
            validate_qualify_columns=False,
            allow_partial_qualification=True,
            quote_identifiers=False,
            identify=False,
        )


def _check_source_names_unique(text: SqlText, tree: exp.Query) -> None:
    """Raise SqlError if two sources of one FROM clause have the same name."""
    for select in tree.find_all(exp.Select):
        names: set[str] = set()
        first = select.args.get("from_")
        joined = [j.this for j in select.args.get("joins") or ()]
        for part in [*([first.this] if first is not None else ()), *joined]:
            name = part.alias_or_name.lower()
            if name and name in names:
                raise text.error(f"two sources are called {name!r}", part, expected="different names")
            names.add(name)


def _undo_column_aliases(text: SqlText, tree: exp.Query, schemas: Mapping[str, Schema]) -> None:
    """Replace the column aliases of ``sales AS s(a, b)`` by the dataset's own column names.

    Raises:
        SqlError: the alias does not name all columns.
    """
    renamed: dict[int, tuple[exp.Column, str]] = {}
    tables: list[exp.Table] = []
    for scope in traverse_scope(tree):
        for name, source in scope.sources.items():
            if not isinstance(source, exp.Table) or not source.alias_column_names or source.name not in schemas:
                continue
            tables.append(source)
            aliases, columns = source.alias_column_names, schemas[source.name].names
            if len(aliases) != len(columns):
                raise text.error(
                    f"{name} has aliases for {len(aliases)} of {len(columns)} columns",
                    source,
                    expected=f"a name for each of {', '.join(columns)}",
                )
            by_alias = {a.lower(): c.lower() for a, c in zip(aliases, columns, strict=True)}
            for column in scope.columns:
                if column.table == name and column.name.lower() in by_alias:
                    renamed[id(column)] = column, by_alias[column.name.lower()]
    for column, name in renamed.values():
        column.this.set("this", name)
    for table in tables:
        table.args["alias"].set("columns", None)


def _replace_variables(
    text: SqlText, tree: exp.Query, variable_types: Mapping[str, str]
) -> tuple[dict[str, str], tuple[tuple[Span, str], ...]]:
    """Replace the scope's variables by typed placeholders. Returns the types of the variables used, and the places
    in the text where a variable is named without a colon.
    """
    name_by_lower_name = {name.lower(): name for name in variable_types}
    used: dict[str, str] = {}
    name_by_span: dict[Span, str] = {}
    for node in list(tree.find_all(exp.Column, exp.Placeholder)):
        name = name_by_lower_name.get(node.name.lower())
        if isinstance(node, exp.Column) and node.table:
            if name is not None and node.meta.get(_UNQUALIFIED_KEY):
                raise text.error(
                    f"{node.name!r} is a column and a variable of the scope",
                    node,
                    expected=f":{name} for the variable, {node.table}.{node.name} for the column",
                )
            continue
        if name is None:
            if isinstance(node, exp.Placeholder):
                raise text.error(
                    f"there is no variable {node.name!r}",
                    node,
                    expected=", ".join(variable_types) or "no variable: the statement has no FOR",
                )
            continue
        used[name] = variable_types[name]
        place = span_of(node)
        if isinstance(node, exp.Column) and place is not None:
            name_by_span[place] = name
        node.replace(_make_variable_marker(name, variable_types[name], node))
    return used, tuple(name_by_span.items())


def _make_variable_marker(name: str, type_: str, replaced_node: exp.Expr) -> exp.Expr:
    marker = exp.Placeholder(this=name)
    for part in replaced_node.walk():
        for key in ("line", "col", "start", "end"):
            if key in part.meta:
                marker.meta[key] = part.meta[key]
    return exp.Cast(this=marker, to=exp.DataType.build(type_, dialect=DIALECT))


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The operands of a (nested) AND. A condition without AND is its only operand."""
    if condition is None:
        return
    if isinstance(condition, exp.Paren):
        yield from conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        yield from conjuncts(condition.left)
        yield from conjuncts(condition.right)
    else:
        yield condition
