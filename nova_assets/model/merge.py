"""Merge models: how a channel folds deltas into bases (Nova 2.1).

Each channel has three functions: *merge* (base, delta) -> base, *chain* (delta, delta) -> delta, *diff* (base, base) ->
delta, with the laws of R10: chain is associative; merge(merge(B, d1), d2) = merge(B, chain(d1, d2));
merge(B, diff(B, B')) = B'. A model only says *what* they are; an engine carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nova_assets.errors import DefinitionError
from nova_assets.model.equality import can_be_key
from nova_assets.model.function_reference import FunctionRef, is_associative
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.type_checks import check_argument_types
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

_NUMERIC_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})

COMBINERS = ("sum", "min", "max", "bool_and", "bool_or")
"""The associative functions that ``Keyed(combine=...)`` knows by name. Each passes over nulls."""


class MergeModel:
    """What all merge models share. Compare two by ``as_json``."""

    kind: str

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty where the channel is a bag of rows."""
        return ()

    @property
    def order_by(self) -> tuple[str, ...]:
        """The columns that decide between live rows of one key, least first; empty for arrival order alone."""
        return ()

    @property
    def combines(self) -> bool:
        """Whether a live row of a delta may need what was there before; otherwise the last change of a key decides."""
        return bool(self.order_by)

    @property
    def keyed(self) -> bool:
        """Whether changes carry ``_deleted`` (R11)."""
        return bool(self.key)

    def problems(self, schema: Schema | None) -> list[str]:
        """What is wrong with this model on a channel of that schema."""
        if schema is None:
            return []
        role_by_column = {**dict.fromkeys(self.key, "key"), **dict.fromkeys(self.order_by, "order_by")}
        found = [
            f"{role} column {c!r} is not in the schema ({', '.join(schema.names)}){did_you_mean(c, schema.names)}"
            for c, role in role_by_column.items()
            if c not in schema
        ]
        found += [
            f"{role} column {c!r} is {schema.field(c).type}: a map cannot be compared"
            for c, role in role_by_column.items()
            if c in schema and not can_be_key(schema.field(c).type)
        ]
        found += [
            f"order_by column {c!r} is {schema.field(c).type}: expected a number, text, date or time"
            for c in self.order_by
            if c in schema and schema.field(c).type.fields
        ]
        return found + ([f"the column name {DELETED!r} is kept for changes"] if DELETED in schema else [])

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind}


@dataclass(frozen=True)
class Append(MergeModel):
    """A bag of rows that only grows: merge and chain are bag union, diff is bag difference.

    A base that drops rows cannot be told to a consumer of changes; once there is one, it is refused (R10).
    """

    __repr__ = short_repr

    kind = "append"


@dataclass(frozen=True, init=False)
class Upsert(MergeModel):
    """One row per key; a row of a delta displaces the one with its key, a row with ``_deleted`` true removes it.

    Args:
        key: the column or columns that identify a row; never null.
        order_by: decides which of several live rows of one key stays: the one with the greatest values, wherever and
            whenever it arrives; the later block wins ties. Nulls are least. Without it the later block wins, and two
            live rows of one key in one delta are refused. A deletion is not ordered: it removes what came before it.
    """

    __repr__ = short_repr

    keys: tuple[str, ...]
    order: tuple[str, ...]
    kind = "upsert"

    @check_argument_types("nova.Upsert")
    def __init__(
        self, key: str | list[str] | tuple[str, ...], order_by: str | list[str] | tuple[str, ...] | None = None
    ) -> None:
        object.__setattr__(self, "keys", _parse_column_names(key, "key"))
        object.__setattr__(self, "order", _parse_column_names(order_by, "order_by") if order_by is not None else ())

    @property
    def key(self) -> tuple[str, ...]:
        return self.keys

    @property
    def order_by(self) -> tuple[str, ...]:
        return self.order

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "key": list(self.keys), "order_by": list(self.order)}


@dataclass(frozen=True, init=False)
class Keyed(MergeModel):
    """One row per key, whose columns are combined: a delta's ``amount`` is added to what is there.

    Args:
        key: as for Upsert.
        combine: column -> ``sum``, ``min``, ``max``, ``bool_and``, ``bool_or``, or a function marked with
            ``nova.associative``. Columns not named take the later row's value. A change that these cannot express (a
            smaller maximum) travels as a deletion and a live row of the key; the deletion applies first.
        order_by: as for Upsert, for the columns that are not combined.
    """

    __repr__ = short_repr

    keys: tuple[str, ...]
    combine: tuple[tuple[str, str], ...]
    order: tuple[str, ...]
    kind = "keyed"

    @check_argument_types("nova.Keyed")
    def __init__(
        self,
        key: str | list[str] | tuple[str, ...],
        combine: Mapping[str, str | Callable[..., Any]],
        order_by: str | list[str] | tuple[str, ...] | None = None,
    ) -> None:
        object.__setattr__(self, "keys", _parse_column_names(key, "key"))
        object.__setattr__(self, "combine", tuple(sorted((c, _combiner_reference(c, f)) for c, f in combine.items())))
        object.__setattr__(self, "order", _parse_column_names(order_by, "order_by") if order_by is not None else ())

    @property
    def combines(self) -> bool:
        return True

    @property
    def key(self) -> tuple[str, ...]:
        return self.keys

    @property
    def order_by(self) -> tuple[str, ...]:
        return self.order

    def problems(self, schema: Schema | None) -> list[str]:
        found = super().problems(schema)
        both = sorted({c for c, _ in self.combine} & {*self.keys, *self.order})
        found += [f"column {c!r} is combined and also part of key or order_by" for c in both]
        if schema is not None:
            found += [
                f"combined column {c!r} is not in the schema ({', '.join(schema.names)}){did_you_mean(c, schema.names)}"
                for c, _ in self.combine
                if c not in schema
            ]
            found += [
                f"combined column {c!r} is {schema.field(c).type}; {f} takes {expected}"
                for c, f in self.combine
                if c in schema and (expected := _expected_type_if_unfit(f, schema.field(c).type)) is not None
            ]
        return found

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "key": list(self.keys), "combine": dict(self.combine), "order_by": list(self.order)}


@dataclass(frozen=True, init=False)
class Custom(MergeModel):
    """Merge, chain and diff of the user's own: functions of two frames that give a frame.

    Args:
        merge: ``merge(base, delta) -> base``.
        chain: ``chain(earlier, later) -> delta``.
        diff: ``diff(old, new) -> delta``.
        version: part of the recorded name; change it when the functions change their meaning. The change takes effect
            by a base (R18).

    The functions must be importable and keep the laws of R10 (``nova_assets.testing.check_laws`` tries them). A delta
    may have other columns than a base; ``_deleted`` means nothing here.
    """

    __repr__ = short_repr

    merge_ref: str
    chain_ref: str
    diff_ref: str
    kind = "custom"

    @check_argument_types("nova.Custom")
    def __init__(
        self, merge: Callable[..., Any], chain: Callable[..., Any], diff: Callable[..., Any], version: str = "1"
    ) -> None:
        for role, function in (("merge", merge), ("chain", chain), ("diff", diff)):
            object.__setattr__(self, f"{role}_ref", str(FunctionRef.of(function, role, version)))

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "merge": self.merge_ref, "chain": self.chain_ref, "diff": self.diff_ref}


def merge_model_from_json(data: Mapping[str, Any]) -> MergeModel:
    """The model that ``as_json`` described; functions stay references until they are called."""
    if data["kind"] == "append":
        return Append()
    if data["kind"] == "upsert":
        return Upsert(data["key"], data["order_by"] or None)
    if data["kind"] == "keyed":
        model = Keyed(data["key"], {}, data["order_by"] or None)
        object.__setattr__(model, "combine", tuple(sorted(data["combine"].items())))
        return model
    custom = object.__new__(Custom)
    for role in ("merge", "chain", "diff"):
        object.__setattr__(custom, f"{role}_ref", data[role])
    return custom


def _expected_type_if_unfit(combiner: str, type_: DataType) -> str | None:
    """What a combiner takes, where that is no value of a type; functions of the user's may take anything."""
    if combiner == "sum" and type_.name not in _NUMERIC_TYPES:
        return "numbers"
    if combiner in ("min", "max") and not can_be_key(type_):
        return "values that can be ordered"
    return "booleans" if combiner in ("bool_and", "bool_or") and type_.name != "boolean" else None


def _parse_column_names(columns: str | list[str] | tuple[str, ...], argument: str) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names or not all(isinstance(n, str) and n for n in names) or len(set(names)) != len(names):
        raise DefinitionError(
            f"{argument} must name one column or several different ones",
            found=repr(columns),
            expected=f'{argument}="id" or {argument}=["site", "url"]',
        )
    return names


def _combiner_reference(column: str, function: str | Callable[..., Any]) -> str:
    if isinstance(function, str):
        if function in COMBINERS:
            return function
        raise DefinitionError(
            f"combine of column {column!r} is not known{did_you_mean(function, COMBINERS)}",
            found=function,
            expected=f"one of {', '.join(COMBINERS)}, or a function marked with nova.associative",
        )
    ref = FunctionRef.of(function, f"combine ({column})", getattr(function, "__nova_version__", "1"))
    if not is_associative(function):
        raise DefinitionError(
            f"combine of column {column!r} is a function that is not declared associative",
            found=str(ref),
            next="mark it with @nova.associative if f(f(a,b),c) = f(a,f(b,c))",
        )
    return str(ref)
