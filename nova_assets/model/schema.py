"""Schemas: the columns of a channel, with Spark's type names.

A type is stored as its name in Spark (``bigint``, ``decimal(10,2)``, ``array<string>``), in one canonical spelling. The
engine and the Arrow reader use a parsed tree of the type. The text is compared, shown and stored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from nova_assets.errors import DefinitionError
from nova_assets.model.json_form import JsonForm, json_key
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

DELETED = "_deleted"
"""Column of a change that marks a row as a deletion (R11). Snapshots never have it."""

HIDDEN_PREFIX = "_nova_hidden_"
"""Beginning of the names of hidden columns."""


@dataclass(frozen=True, slots=True)
class DataType(JsonForm):
    """A Spark SQL type: its name, arguments and nested fields.

    Args:
        name: ``bigint``, ``string``, ``decimal``, ``array``, ``map``, ``struct``, ...
        args: precision and scale of a decimal.
        fields: fields of a struct; one field ``element`` for an array; ``key`` and ``value`` for a map.
    """

    __repr__ = short_repr

    name: str
    args: tuple[int, ...] = ()
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        if self.name == "struct":
            return f"struct<{','.join(f'{quote_identifier(f.name)}:{f.type}' for f in self.fields)}>"
        if self.fields:
            return f"{self.name}<{','.join(str(f.type) for f in self.fields)}>"
        return f"{self.name}({','.join(map(str, self.args))})" if self.args else self.name

    def as_json(self) -> str:
        return str(self)

    @classmethod
    def from_json(cls, data: str) -> DataType:
        return parse_type(data)


UNKNOWN_TYPE = DataType("void")
"""Type of a column that contains only nulls. Data may have such a column, a channel does not. Each type can
represent it.
"""


_IDENTITY_SUFFIX = re.compile(r"@\d+'*$")
"""Ending of the identity of a column that was added to a channel with data."""


@dataclass(frozen=True, slots=True)
class Field(JsonForm):
    """One column: name, type, and whether it may be null.

    Args:
        id: identity of the column in all blocks, across renames; empty means its first name. A column that is added
            under the name of a dropped column has another identity.
    """

    __repr__ = short_repr

    name: str
    type: DataType
    nullable: bool = True
    id: str = dataclasses.field(default="", metadata=json_key(omit_default=True))

    @property
    def identity(self) -> str:
        return self.id or self.name

    @property
    def first_name(self) -> str:
        """Name under which the column was added."""
        return _IDENTITY_SUFFIX.sub("", self.id) or self.name

    def __str__(self) -> str:
        return f"{quote_identifier(self.name)} {self.type}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True, slots=True)
class Schema(JsonForm):
    """Columns of a channel or block, in order. Names are unique, compared without regard to case.

    Args:
        fields: the columns.
        hidden: columns of the files that no reader of the channel sees. The task that maintains the rows keeps values
            in them from which it computes the next rows. Only blocks have them, a channel does not.
    """

    __repr__ = short_repr

    fields: tuple[Field, ...]
    hidden: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in (*self.names, *(f.name for f in self.hidden)):
            if not name:
                raise DefinitionError("a schema has a column without a name", next="give every column a name")
            if name.lower() in seen:
                raise DefinitionError(
                    f"a schema has two columns called {name!r}", expected="names that differ in more than case"
                )
            seen.add(name.lower())
        if len({f.identity for f in self.fields}) != len(self.fields):
            raise DefinitionError(
                "two columns of a schema are the same column",
                found=", ".join(f"{quote_identifier(f.name)} = {f.identity!r}" for f in self.fields),
                expected="each column with an identity of its own, under which the blocks store its values",
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str) -> Field:
        """Column with this name. Raises KeyError."""
        for f in self.fields:
            if f.name == name:
                return f
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def name_of_field(self, field: Field) -> str | None:
        """Name in this schema of a column of another schema of the same channel; None if this schema lacks the
        column.
        """
        return next((f.name for f in self.fields if f.identity == field.identity), None)

    @property
    def visible(self) -> Schema:
        """The schema without hidden columns."""
        return Schema(self.fields) if self.hidden else self

    @property
    def of_files(self) -> Schema:
        """The schema with hidden columns as ordinary columns, as the files have them."""
        return Schema((*self.fields, *self.hidden)) if self.hidden else self

    def with_hidden_prefix(self) -> Schema:
        """Schema of a frame in which columns with the prefix of hidden columns are hidden."""
        visible, hidden = ([f for f in self.fields if f.name.startswith(HIDDEN_PREFIX) is h] for h in (False, True))
        return Schema(tuple(visible), tuple(replace(f, nullable=True) for f in hidden))

    def without_columns(self, *names: str) -> Schema:
        return Schema(tuple(f for f in self.fields if f.name not in names))

    def select_columns(self, names: Iterable[str]) -> Schema:
        return Schema(tuple(self.field(n) for n in names))

    def with_deleted(self) -> Schema:
        """Schema of a change on a keyed channel: these columns and ``_deleted``."""
        return Schema((*self.without_columns(DELETED).fields, Field(DELETED, DataType("boolean"), nullable=False)))

    def with_all_nullable(self) -> Schema:
        """Schema with all columns nullable, for reading files, since a file may be older than a column."""
        return Schema(tuple(replace(f, nullable=True) for f in self.fields))

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    def as_json(self) -> list[dict[str, Any]]:
        return [f.as_json() for f in self.fields] + [f.as_json() | {"hidden": True} for f in self.hidden]

    @classmethod
    def from_json(cls, data: list[dict[str, Any]]) -> Self:
        visible, hidden = ([Field.from_json(d) for d in data if d.get("hidden", False) is h] for h in (False, True))
        return cls(tuple(visible), tuple(hidden))


def quote_identifier(name: str) -> str:
    """Column name in DDL, in backquotes only if necessary."""
    plain = name.isidentifier() and name.isascii()
    return name if plain else "`" + name.replace("`", "``") + "`"


@lru_cache(maxsize=512)
def parse_ddl(text: str) -> Schema:
    """Schema from Spark DDL such as ``url string, price decimal(10,2), `52 week low` double NOT NULL``."""
    plain_columns = _read_plain_columns(text)
    if plain_columns is not None:
        return Schema(plain_columns)
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(
            f"CREATE TABLE t ({text})", dialect="spark"
        ).this  # sqlglot has no entry point for columns alone
    except sqlglot.errors.SqlglotError as error:
        raise _unknown_column_type_error(text) from error
    columns = tree.expressions if isinstance(tree, exp.Schema) else []
    if not columns or not all(isinstance(c, exp.ColumnDef) and c.args.get("kind") for c in columns):
        raise _unknown_column_type_error(text)
    return Schema(tuple(_field_from_column_def(c) for c in columns))


@lru_cache(maxsize=512)
def parse_type(text: str) -> DataType:
    """Type from its name in Spark."""
    plain_columns = _read_plain_columns(f"t {text}")
    if plain_columns is not None and len(plain_columns) == 1 and plain_columns[0].nullable:
        return plain_columns[0].type
    import sqlglot
    from sqlglot import exp

    try:
        return _type_from_node(exp.DataType.build(text, dialect="spark"))
    except (sqlglot.errors.SqlglotError, ValueError) as error:
        raise _invalid_ddl_error(text) from error


def _unknown_column_type_error(text: str) -> DefinitionError:
    """Error for unreadable columns; it names the first column with an unknown type."""
    for column in re.split(r",(?![^(<]*[)>])", text):
        name, _, type_ = column.strip().partition(" ")
        type_name = type_.strip().partition(" ")[0]
        if (
            re.fullmatch(r"\w+", name)
            and re.fullmatch(r"\w+", type_name)
            and type_name.upper() not in _SPARK_NAME_BY_SQLGLOT_NAME
        ):
            known = [*_SPARK_NAME_BY_SQLGLOT_NAME.values(), "decimal", "array", "map", "struct"]
            if type_name.lower() not in known:
                return DefinitionError(
                    f"column {name!r}: there is no type {type_name!r}{did_you_mean(type_name.lower(), known)}",
                    found=repr(text),
                    expected="Spark DDL: 'url string, price decimal(10,2), seen timestamp'",
                )
    return _invalid_ddl_error(text)


def _invalid_ddl_error(text: str) -> DefinitionError:
    return DefinitionError(
        "a schema cannot be read",
        found=repr(text),
        expected="Spark DDL: 'url string, price decimal(10,2), seen timestamp'",
    )


_PLAIN_COLUMN = re.compile(
    r"""\s*(?: (?! (?:any|case|constraint|current_date|current_timestamp|current_user|false|like|not|null|select
                     |session_user|true|unique|with) \s ) ([a-z_]\w*) | `([^`]+)` ) \s+
        (?: (boolean|tinyint|smallint|int|bigint|float|double|string|binary|date|timestamp(?:_ntz)?)
          | decimal\( (\d+) , \s* (\d+) \) )
        ( \s+ NOT \s+ NULL )? \s* (?: , | $ )""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def _read_plain_columns(text: str) -> tuple[Field, ...] | None:
    """Columns without nested types, in the canonical spelling of the types. None for other texts, which sqlglot reads.

    Loading sqlglot takes longer than everything else that a command does if it only lists channels.
    """
    columns: list[Field] = []
    position = 0
    while position < len(text):
        match = _PLAIN_COLUMN.match(text, position)
        if match is None:
            return None
        name, quoted_name, type_name, precision, scale, not_null = match.groups()
        digits = () if type_name else (int(precision), int(scale))
        if digits and not (1 <= digits[0] <= 38 and digits[1] <= digits[0]):
            return None
        columns.append(
            Field(quoted_name or name, DataType((type_name or "decimal").lower(), digits), nullable=not_null is None)
        )
        position = match.end()
    return None if not columns or text.rstrip().endswith(",") else tuple(columns)


# Type names of sqlglot -> canonical type names of Spark.
_SPARK_NAME_BY_SQLGLOT_NAME = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}


def _field_from_column_def(column_def: Any) -> Field:
    from sqlglot import exp

    not_null = any(
        isinstance(c.kind, exp.NotNullColumnConstraint) and not c.kind.args.get("allow_null")
        for c in column_def.constraints
    )
    return Field(column_def.this.name, _type_from_node(column_def.args["kind"]), nullable=not not_null)


def _type_from_node(node: Any) -> DataType:
    kind, children = node.this.name if hasattr(node.this, "name") else str(node.this), node.expressions
    if kind == "DECIMAL":
        precision, scale = (
            [*(int(str(e.this)) for e in children), 10, 0][:2]
            if len(children) != 1
            else (int(str(children[0].this)), 0)
        )
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise DefinitionError(
                f"there is no decimal({precision},{scale})",
                expected="1 to 38 digits, and no more of them after the point than there are",
            )
        return DataType("decimal", (precision, scale))
    if kind in ("ARRAY", "LIST") and len(children) == 1:
        return DataType("array", fields=(Field("element", _type_from_node(children[0])),))
    if kind == "MAP" and len(children) == 2:
        return DataType(
            "map",
            fields=(
                Field("key", _type_from_node(children[0]), nullable=False),
                Field("value", _type_from_node(children[1])),
            ),
        )
    if kind == "STRUCT" and children:
        return DataType("struct", fields=tuple(_field_from_column_def(f) for f in children))
    if kind in _SPARK_NAME_BY_SQLGLOT_NAME:
        return DataType(_SPARK_NAME_BY_SQLGLOT_NAME[kind])
    raise DefinitionError(
        f"the type {node.sql(dialect='spark')!r} is not supported",
        expected=f"one of {sorted(set(_SPARK_NAME_BY_SQLGLOT_NAME.values()))}, decimal(p,s), array<>, map<,>, struct<>",
    )
