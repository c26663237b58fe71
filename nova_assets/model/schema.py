"""Schemas: the columns of a channel, in Spark's own type names.

A type is kept as the text that Spark calls it by (``bigint``, ``decimal(10,2)``, ``array<string>``), in one canonical
spelling, with a parsed tree beside it for those who need to walk it (the engine, the Arrow reader). The text is what is
compared, shown and stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from nova_assets.errors import DefinitionError
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

DELETED = "_deleted"
"""The column that says of a row of a change that it is a deletion (R11). Snapshots never have it."""


@dataclass(frozen=True, slots=True)
class DataType:
    """A Spark SQL type: its name, and what it is made of.

    Args:
        name: ``bigint``, ``string``, ``decimal``, ``array``, ``map``, ``struct``, ...
        args: precision and scale of a decimal.
        fields: of a struct; one field called ``element`` for an array; ``key`` and ``value`` for a map.
    """

    __repr__ = short_repr

    name: str
    args: tuple[int, ...] = ()
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        if self.name == "struct":
            return f"struct<{','.join(f'{quoted(f.name)}:{f.type}' for f in self.fields)}>"
        if self.fields:
            return f"{self.name}<{','.join(str(f.type) for f in self.fields)}>"
        return f"{self.name}({','.join(map(str, self.args))})" if self.args else self.name


UNKNOWN = DataType("void")
"""Of a column that holds nothing but nulls: data may have it, and no channel does. Every type has its values."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column: name, type, and whether it may be null.

    Args:
        id: what it is known by in all blocks, whatever they call it; its first name, where nothing is said. A column
            that came later has another than one of the same name that was dropped before.
    """

    __repr__ = short_repr

    name: str
    type: DataType
    nullable: bool = True
    id: str = ""

    @property
    def identity(self) -> str:
        return self.id or self.name

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a channel or block, in order. Names are unique, and told apart by case-insensitive comparison."""

    __repr__ = short_repr

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in self.names:
            if not name:
                raise DefinitionError("a schema has a column without a name", next="give every column a name")
            if name.lower() in seen:
                raise DefinitionError(
                    f"a schema has two columns called {name!r}", expected="names that differ in more than case"
                )
            seen.add(name.lower())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str) -> Field:
        """The column of that name. Raises KeyError."""
        for f in self.fields:
            if f.name == name:
                return f
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def named_in(self, field: Field) -> str | None:
        """What these columns call a column of another schema of the same channel; None where they lack it."""
        return next((f.name for f in self.fields if f.identity == field.identity), None)

    def without(self, *names: str) -> Schema:
        return Schema(tuple(f for f in self.fields if f.name not in names))

    def select(self, names: Iterable[str]) -> Schema:
        return Schema(tuple(self.field(n) for n in names))

    def with_deleted(self) -> Schema:
        """The schema of a change on a keyed channel: the columns, and ``_deleted``."""
        return Schema((*self.without(DELETED).fields, Field(DELETED, DataType("boolean"), nullable=False)))

    def relaxed(self) -> Schema:
        """All columns nullable: how files are read, since a file may be older than a column."""
        return Schema(tuple(replace(f, nullable=True) for f in self.fields))

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"name": f.name, "type": str(f.type), "nullable": f.nullable, **({"id": f.id} if f.id else {})}
            for f in self.fields
        ]

    @staticmethod
    def from_json(data: list[dict[str, Any]]) -> Schema:
        return Schema(
            tuple(Field(d["name"], parse_type(d["type"]), d.get("nullable", True), d.get("id", "")) for d in data)
        )


def quoted(name: str) -> str:
    """A column's name as DDL wants it: bare where it can be, in backquotes where it must."""
    plain = name.isidentifier() and name.isascii()
    return name if plain else "`" + name.replace("`", "``") + "`"


_WIDENINGS = {
    "tinyint": {"smallint", "int", "bigint"},
    "smallint": {"int", "bigint"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "date": {"timestamp_ntz"},
}


def widens(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of ``narrow`` is exactly a value of ``wide``."""
    if narrow == UNKNOWN or _shape(narrow) == _shape(wide):
        return True
    if narrow.name == wide.name == "decimal":
        return wide.args[1] >= narrow.args[1] and wide.args[0] - wide.args[1] >= narrow.args[0] - narrow.args[1]
    if narrow.fields and narrow.name == wide.name and len(narrow.fields) == len(wide.fields):
        same = narrow.name != "struct" or [f.name for f in narrow.fields] == [f.name for f in wide.fields]
        return same and all(widens(a.type, b.type) for a, b in zip(narrow.fields, wide.fields, strict=True))
    return wide.name in _WIDENINGS.get(narrow.name, set())


def _shape(type_: DataType) -> str:
    return str(type_)


@lru_cache(maxsize=512)
def parse_ddl(text: str) -> Schema:
    """A schema from Spark DDL such as ``url string, price decimal(10,2), `52 week low` double NOT NULL``."""
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(
            f"CREATE TABLE t ({text})", dialect="spark"
        ).this  # sqlglot has no entry point for columns alone
    except sqlglot.errors.SqlglotError as error:
        raise _bad_columns(text) from error
    columns = tree.expressions if isinstance(tree, exp.Schema) else []
    if not columns or not all(isinstance(c, exp.ColumnDef) and c.args.get("kind") for c in columns):
        raise _bad_columns(text)
    return Schema(tuple(_field(c) for c in columns))


@lru_cache(maxsize=512)
def parse_type(text: str) -> DataType:
    """A type from the name that Spark calls it by."""
    import sqlglot
    from sqlglot import exp

    try:
        return _type(exp.DataType.build(text, dialect="spark"))
    except (sqlglot.errors.SqlglotError, ValueError) as error:
        raise _bad_ddl(text) from error


def _bad_columns(text: str) -> DefinitionError:
    """The error for columns that cannot be read: it names the first of them whose type is none."""
    for column in re.split(r",(?![^(<]*[)>])", text):
        name, _, type_ = column.strip().partition(" ")
        kind = type_.strip().partition(" ")[0]
        if re.fullmatch(r"\w+", name) and re.fullmatch(r"\w+", kind) and kind.upper() not in _NAMES:
            known = [*_NAMES.values(), "decimal", "array", "map", "struct"]
            if kind.lower() not in known:
                return DefinitionError(
                    f"column {name!r}: there is no type {kind!r}{did_you_mean(kind.lower(), known)}",
                    found=repr(text),
                    expected="Spark DDL: 'url string, price decimal(10,2), seen timestamp'",
                )
    return _bad_ddl(text)


def _bad_ddl(text: str) -> DefinitionError:
    return DefinitionError(
        "a schema cannot be read",
        found=repr(text),
        expected="Spark DDL: 'url string, price decimal(10,2), seen timestamp'",
    )


# sqlglot's names of Spark's types, and Spark's canonical ones.
_NAMES = {
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


def _field(column: Any) -> Field:
    from sqlglot import exp

    not_null = any(
        isinstance(c.kind, exp.NotNullColumnConstraint) and not c.kind.args.get("allow_null")
        for c in column.constraints
    )
    return Field(column.this.name, _type(column.args["kind"]), nullable=not not_null)


def _type(node: Any) -> DataType:
    kind, inner = node.this.name if hasattr(node.this, "name") else str(node.this), node.expressions
    if kind == "DECIMAL":
        precision, scale = (
            [*(int(str(e.this)) for e in inner), 10, 0][:2] if len(inner) != 1 else (int(str(inner[0].this)), 0)
        )
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise DefinitionError(
                f"there is no decimal({precision},{scale})",
                expected="1 to 38 digits, and no more of them after the point than there are",
            )
        return DataType("decimal", (precision, scale))
    if kind in ("ARRAY", "LIST") and len(inner) == 1:
        return DataType("array", fields=(Field("element", _type(inner[0])),))
    if kind == "MAP" and len(inner) == 2:
        return DataType("map", fields=(Field("key", _type(inner[0]), nullable=False), Field("value", _type(inner[1]))))
    if kind == "STRUCT" and inner:
        return DataType("struct", fields=tuple(_field(f) for f in inner))
    if kind in _NAMES:
        return DataType(_NAMES[kind])
    raise DefinitionError(
        f"the type {node.sql(dialect='spark')!r} is not supported",
        expected=f"one of {sorted(set(_NAMES.values()))}, decimal(p,s), array<>, map<,>, struct<>",
    )
