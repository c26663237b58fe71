"""External tables, which other systems write: ``CREATE EXTERNAL TABLE``, as in Spark and Hive (BigDataFlow, part 2).

    FOR t IN TIMESERIES(start => '2022-03-01'), store IN ('Detroit', 'Paris')
    LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
    CREATE EXTERNAL TABLE tickets (product_id STRING, day STRING, store STRING)
    USING parquet
    PARTITIONED BY (day, store)
    LOCATION '/data/tickets'

Instead of files, a table of a database: ``USING jdbc OPTIONS (url 'postgresql://...', dbtable '...')``.

The scopes before the statement determine the expected partitions, and readers wait for a partition that is missing.
Without scopes, the expected partitions are the existing ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from sqlglot import exp

from nova_assets.errors import DefinitionError, SqlError
from nova_assets.masking import remember_secrets
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import DatabaseTable, normalize_database_url, with_default_user
from nova_assets.model.external_table import External, ExternalFormat
from nova_assets.model.names import check_name
from nova_assets.model.partitions import Dimension, dynamic
from nova_assets.model.schema import Field, Schema, parse_type
from nova_assets.sql.parse.dialect import For
from nova_assets.sql.statement.dataset_statement import comment_and_owner
from nova_assets.sql.statement.header import StatementHeader, parse_header, partition_dimensions, variables_used_by
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean

_EXPECTED = "CREATE EXTERNAL TABLE name (column TYPE, ...) USING parquet PARTITIONED BY (column, ...) LOCATION '...'"

_DONE_PROPERTY = "done"
"""The only supported table property: the name of the file that marks a partition as complete."""


class ExpectedPartitions(Protocol):
    """Function that returns the partitions that should exist at a time."""

    def __call__(self, moment: datetime, /) -> Iterable[str]: ...


FIELD_BY_OPTION = {
    "url": "url",
    "user": "user",
    "dbtable": "table",
    "query": "query",
    "passwordEnv": "password_env",
    "passwordFile": "password_file",
    "freshnessColumn": "freshness_column",
    "freshnessQuery": "freshness_query",
    "partitionColumn": "split_by",
    "numPartitions": "splits",
    "splitBy": "split",
    "incremental": "incremental",
    "settle": "settle",
    "fetchsize": "fetch_size",
}
"""Option -> field of ``DatabaseTable``, or ``user``."""

_NUMBERS = ("splits", "fetch_size")

_EXPECTED_JDBC = (
    "CREATE EXTERNAL TABLE name (column TYPE, ...) USING jdbc OPTIONS (url 'postgresql://USER@HOST:PORT/DATABASE', "
    "dbtable 'public.name') PARTITIONED BY (column, ...)"
)


@dataclass(frozen=True)
class ExternalView:
    """An external table, as its statement declares it.

    Args:
        text: the statement as written.
        channel: the channel that represents the table.
        header: the expected partitions. None if the existing partitions are the expected ones.
    """

    text: SqlText
    channel: Channel
    header: StatementHeader | None = None

    @property
    def name(self) -> str:
        return self.channel.name


def is_external_view(statement: exp.Expr) -> bool:
    """Whether a statement is a CREATE statement, with or without scopes."""
    inner = statement.this if isinstance(statement, For) else statement
    return isinstance(inner, exp.Create)


def parse_external_view(text: SqlText, statement: exp.Expr) -> ExternalView:
    """The external table that a statement declares.

    Raises:
        SqlError: the statement does not create an external table, or contains an unsupported clause.
    """
    loop = statement if isinstance(statement, For) else None
    create = loop.this if loop is not None else statement
    assert isinstance(create, exp.Create)
    properties = {type(p): p for p in (create.args["properties"].expressions if create.args.get("properties") else ())}
    _check_create_statement(text, create, properties)
    columns = [_parse_column(text, c) for c in create.this.expressions]
    partitioned_by = properties.get(exp.PartitionedByProperty)
    partition_only_columns, partition_names = _parse_partition_columns(
        text, partitioned_by.this.expressions if partitioned_by is not None else (), columns
    )
    header = None if loop is None else _parse_header(text, loop, partitioned_by, partition_names)
    description, owner = comment_and_owner(statement)
    comment = properties.get(exp.SchemaCommentProperty)
    try:
        schema = Schema((*columns, *partition_only_columns))
        channel = Channel(
            check_name(create.this.this.name, f"the view of {text.name}"),
            schema=schema,
            partitions=_partition_dimensions(text, header, partition_names, schema, _table_name_node(create)),
            external=_parse_source(text, create, properties, header),
            description=description or (comment.this.name if comment is not None else None) or None,
            owners=[owner] if owner else (),
        )
    except SqlError:
        raise
    except DefinitionError as error:
        raise text.error(
            error.what.partition(": ")[2] or error.what, _table_name_node(create), expected=_EXPECTED
        ) from error
    return ExternalView(text, channel, header)


def _parse_source(
    text: SqlText, create: exp.Create, properties: dict[type[exp.Expr], exp.Expr], header: StatementHeader | None
) -> External:
    """The folder of files, or the table of a database."""
    expected_partitions = None if header is None else header.scopes_by_partition
    if _is_database(properties):
        node = _table_name_node(create)
        return _parse_jdbc_options(text, properties.get(exp.OptionsProperty), node, expected_partitions)
    return External(
        properties[exp.LocationProperty].this.name,
        _file_format(text, properties),
        _done_file_name(text, create),
        expected_partitions,
    )


def _is_database(properties: dict[type[exp.Expr], exp.Expr]) -> bool:
    using = properties.get(exp.FileFormatProperty)
    return using is not None and isinstance(using.this, exp.Expr) and using.this.name.lower() == "jdbc"


def _table_name_node(create: exp.Create) -> exp.Expr:
    """The node of the table name."""
    name_node: exp.Expr = create.this.this if isinstance(create.this, exp.Schema) else create.this
    return name_node


def _check_create_statement(text: SqlText, create: exp.Create, properties: dict[type[exp.Expr], exp.Expr]) -> None:
    table = create.this
    if create.kind != "TABLE" or exp.ExternalProperty not in properties:
        what = "is neither a query nor an external table"
        raise text.error(what, _table_name_node(create), expected=f"SELECT ..., or {_EXPECTED}")
    if create.expression is not None:
        raise text.error(
            "an external table has no query, because another system writes it",
            create.expression,
            expected="a query without CREATE",
        )
    if not isinstance(table, exp.Schema) or not table.expressions:
        raise text.error("an external table needs columns", table, expected=_EXPECTED)
    if table.this.args.get("db") is not None:
        raise text.error("an external table is named with a database", table.this, expected="a name without a database")
    location = properties.get(exp.LocationProperty)
    is_database = _is_database(properties)
    if is_database and location is not None:
        raise text.error("a table of a database has no location", location, expected=_EXPECTED_JDBC)
    has_location = location is not None and isinstance(location.this, exp.Literal) and location.this.is_string
    if not is_database and not has_location:
        raise text.error("an external table needs a location", table.this, expected="LOCATION '...'")
    known = (
        exp.ExternalProperty,
        exp.FileFormatProperty,
        exp.PartitionedByProperty,
        exp.LocationProperty,
        exp.SchemaCommentProperty,
        *((exp.OptionsProperty,) if is_database else (exp.Property,)),
    )
    for kind, node in properties.items():
        if kind not in known:
            raise text.error(f"{node.sql('spark')} is not supported here", _table_name_node(create), expected=_EXPECTED)


def _parse_column(text: SqlText, node: exp.Expr) -> Field:
    if not isinstance(node, exp.ColumnDef) or node.args.get("kind") is None:
        raise text.error("a column has no type", node, expected="name TYPE")
    kinds = [c.kind for c in node.args.get("constraints") or ()]
    for kind in kinds:
        if not isinstance(kind, exp.CommentColumnConstraint | exp.NotNullColumnConstraint):
            raise text.error(
                f"{kind.sql('spark')} is not supported here", node.this, expected="name TYPE [NOT NULL] [COMMENT '...']"
            )
    try:
        type_ = parse_type(node.args["kind"].sql("spark"))
    except DefinitionError as error:
        raise text.error(error.what, node.this, expected="a Spark type") from error
    return Field(node.name, type_)  # other systems may write nulls despite NOT NULL


def _parse_partition_columns(
    text: SqlText, partition_nodes: Sequence[exp.Expr], columns: list[Field]
) -> tuple[list[Field], list[str]]:
    """Columns declared only in PARTITIONED BY, as in Hive, and the names of all partition columns."""
    extra_columns = [_parse_column(text, c) for c in partition_nodes if isinstance(c, exp.ColumnDef)]
    known = {f.name.lower(): f.name for f in (*columns, *extra_columns)}
    names = []
    for node in partition_nodes:
        if node.name.lower() not in known:
            raise text.error(f"there is no column {node.name!r}", node, expected=", ".join(f.name for f in columns))
        names.append(known[node.name.lower()])
    return extra_columns, names


def _parse_header(
    text: SqlText, loop: For, partitioned_by: exp.Expr | None, partition_names: list[str]
) -> StatementHeader:
    """The header. Raises SqlError unless each scope determines a different partition."""
    partition_nodes = list(partitioned_by.this.expressions) if partitioned_by is not None else []
    if not partition_nodes:
        raise text.error("all scopes have the same partition", loop.this.this, expected="PARTITIONED BY (column, ...)")
    columns = [_copy_position(exp.column(n), p) for n, p in zip(partition_names, partition_nodes, strict=True)]
    head = parse_header(text, loop, exp.Partition(expressions=columns))
    used_variables = {v for _, computed in head.partition_expressions for v in variables_used_by(head, computed)}
    for node in loop.args["generators"]:
        if node.this.name not in used_variables:
            raise text.error(
                f"no partition column depends on {node.this.name!r}, so several scopes would share a partition",
                node.this,
                expected="a partition column for each variable of FOR",
            )
    return head


def _copy_position(column: exp.Expr, text_node: exp.Expr) -> exp.Expr:
    """The column, with the text position of another node."""
    meta = next((n.meta for n in text_node.walk() if n.meta.get("start") is not None), {})
    column.this.meta.update(meta)
    return column


def _partition_dimensions(
    text: SqlText, header: StatementHeader | None, partition_names: list[str], schema: Schema, error_node: exp.Expr
) -> tuple[Dimension, ...]:
    if header is None:
        return tuple(dynamic(n) for n in partition_names)
    types = header.partition_column_types
    for name in partition_names:
        if str(schema.field(name).type) != types[name]:
            raise text.error(
                f"partition column {name!r} is {schema.field(name).type}, and the scopes produce {types[name]}",
                error_node,
                expected=f"{name} {types[name].upper()}",
            )
    return tuple(replace(d, keep=None) for d in partition_dimensions(header))  # the other system drops partitions


def _file_format(text: SqlText, properties: dict[type[exp.Expr], exp.Expr]) -> ExternalFormat:
    node = properties.get(exp.FileFormatProperty)
    if node is not None and not isinstance(node.this, exp.Expr):
        raise text.error("USING has no format", node, expected="USING parquet, or USING orc")
    return "parquet" if node is None else node.this.name.lower()


def _done_file_name(text: SqlText, create: exp.Create) -> str | None:
    file_name = None
    for node in _custom_properties(create):
        if node.this.name != _DONE_PROPERTY:
            raise text.error(
                f"TBLPROPERTIES does not support {node.this.name!r}",
                node.this,
                expected=f"'{_DONE_PROPERTY}' = '_SUCCESS'",
            )
        file_name = node.args["value"].name
    return file_name


def _custom_properties(create: exp.Create) -> Iterator[exp.Expr]:
    return (p for p in create.args["properties"].expressions if type(p) is exp.Property)


# the options of a database, with the names that Spark's JDBC source uses where it has them


def _parse_jdbc_options(
    text: SqlText, options: exp.Expr | None, error_node: exp.Expr, expected_partitions: ExpectedPartitions | None
) -> External:
    """The database table that the options name.

    Raises:
        SqlError: an option is missing, unknown, written twice, or no constant.
    """
    values: dict[str, Any] = {}
    for option in options.expressions if options is not None else ():
        name, field = _known_option(text, option)
        if field in values:
            raise text.error(f"option {name!r} is written twice", option, expected="each option once")
        values[field] = _option_value(text, name, field, option)
    if "url" not in values:
        raise text.error("a table of a database needs an address", error_node, expected=_EXPECTED_JDBC)
    url, url_user = normalize_database_url(values.pop("url"))
    database = DatabaseTable(with_default_user(url, values.pop("user", None) or url_user), **values)
    return External(database.url, "parquet", None, expected_partitions, database)


def _known_option(text: SqlText, option: exp.Expr) -> tuple[str, str]:
    """Name and field of an option. Names are compared without regard to case, as in Spark."""
    name = option.this.name
    known = {o.lower(): o for o in FIELD_BY_OPTION}
    if name.lower() == "password":
        remember_secrets(values={"password": option.args["value"].name})  # errors show the line
        raise text.error(
            "a password in a definition would be stored in the catalog and in version control",
            option.this,
            expected="passwordEnv 'VARIABLE', or passwordFile '/path'",
        )
    if name.lower() not in known:
        raise text.error(
            f"OPTIONS does not support {name!r}{did_you_mean(name, FIELD_BY_OPTION)}",
            option.this,
            expected=", ".join(FIELD_BY_OPTION),
        )
    return known[name.lower()], FIELD_BY_OPTION[known[name.lower()]]


def _option_value(text: SqlText, name: str, field: str, option: exp.Expr) -> Any:
    value = option.args["value"]
    if not isinstance(value, exp.Literal):
        raise text.error(f"option {name!r} is no constant", option.this, expected=f"{name} '...'")
    if field not in _NUMBERS:
        return value.name
    if not value.name.isdigit():
        raise text.error(f"option {name!r} is no whole number", option.this, expected=f"{name} '8'")
    return int(value.name)
