"""Merge models: how a channel merges deltas into bases (Nova 2.1).

Each channel has three functions: *merge* (base, delta) -> base, *chain* (delta, delta) -> delta, *diff* (base, base) ->
delta. They obey the laws of R10: chain is associative; merge(merge(B, d1), d2) = merge(B, chain(d1, d2));
merge(B, diff(B, B')) = B'. A model only declares these functions. An engine executes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.function_reference import FunctionRef, is_associative
from nova_assets.model.json_form import JsonForm, json_key, register_form
from nova_assets.model.partition_values import can_be_key
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

_NUMERIC_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})

COMBINERS = ("sum", "min", "max", "bool_and", "bool_or")
"""Associative functions that ``Keyed(combine=...)`` accepts by name. Each ignores nulls."""


Combiners: TypeAlias = tuple[tuple[str, str], ...]
"""(column, combiner), in the order of the columns."""

register_form(Combiners, dict, lambda data: tuple(sorted(data.items())))


class MergeModel(JsonForm):
    """Base class of all merge models. Two models are equal if their ``as_json`` is equal."""

    kind: str

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row; empty for an append-only channel, which is a multiset of rows."""
        return ()

    @property
    def order_by(self) -> tuple[str, ...]:
        """Columns that decide between live rows of one key, in order of significance; empty for arrival order."""
        return ()

    @property
    def needs_earlier_row(self) -> bool:
        """Whether merging a live row may need the earlier row of its key. Otherwise the last change of a key
        decides.
        """
        return bool(self.order_by)

    @property
    def has_deletions(self) -> bool:
        """Whether a delta may remove rows, so that changes carry ``_deleted`` (R11)."""
        return bool(self.key)

    def problems(self, schema: Schema | None) -> list[str]:
        """Problems of this model on a channel with this schema."""
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
        return found + ([f"the column name {DELETED!r} is reserved for changes"] if DELETED in schema else [])

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **super().as_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MergeModel:
        """Merge model of any kind. Functions stay references until they are called."""
        model = _MODEL_BY_KIND[data["kind"]]
        found: MergeModel = super(MergeModel, model).from_json(data)
        return found


@dataclass(frozen=True)
class Append(MergeModel):
    """A multiset of rows that only grows. Merge and chain are the multiset union. Diff is the multiset difference.

    A change cannot express removed rows. So nova rejects a base that drops rows, once a consumer reads changes (R10).
    """

    __repr__ = short_repr

    kind = "append"


@dataclass(frozen=True)
class Multiset(MergeModel):
    """A multiset of rows without a key. A delta row adds one row, or removes one equal row if ``_deleted`` is true.

    Rows are equal if all columns are equal, and nulls are equal to nulls. A row that was added twice is there twice.
    Within a delta, deletions apply first. The deletion of a row that is not there has no effect.
    """

    __repr__ = short_repr

    kind = "multiset"

    @property
    def has_deletions(self) -> bool:
        return True


@dataclass(frozen=True, init=False)
class Upsert(MergeModel):
    """One row per key. A delta row replaces the existing row of the key, or removes this row if ``_deleted`` is true.

    Args:
        key: the column or columns that identify a row. A key is never null.
        order_by: the column or columns that decide which of several live rows of one key wins. The row with the
            greatest values wins, in whatever order the rows arrive. If the values are equal, the row of the later block
            wins. A null is less than any value. Without ``order_by``, the row of the later block wins, and a delta with
            two live rows of one key is rejected. Deletions ignore ``order_by``: a deletion removes all earlier rows of
            the key.
    """

    __repr__ = short_repr

    keys: tuple[str, ...] = field(metadata=json_key("key"))
    order: tuple[str, ...] = field(metadata=json_key("order_by"))
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


@dataclass(frozen=True, init=False)
class Keyed(MergeModel):
    """One row per key. Each column of a delta row is combined with the existing value: for example, the ``amount`` of a
    delta is added to the existing amount.

    Args:
        key: the column or columns that identify a row, as in ``Upsert``.
        combine: column -> ``sum``, ``min``, ``max``, ``bool_and``, ``bool_or``, or a function marked with
            ``nova.associative``. All other columns take the value of the later row. These functions cannot express
            every change, for example a smaller maximum. Such a change consists of a deletion and a live row of the same
            key. The deletion applies first.
        order_by: decides which row gives the values of the columns that are not combined, as in ``Upsert``.
    """

    __repr__ = short_repr

    keys: tuple[str, ...] = field(metadata=json_key("key"))
    combine: Combiners
    order: tuple[str, ...] = field(metadata=json_key("order_by"))
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
    def needs_earlier_row(self) -> bool:
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
                if c in schema and (expected := _accepted_types_if_rejected(f, schema.field(c).type)) is not None
            ]
        return found


@dataclass(frozen=True, init=False)
class Custom(MergeModel):
    """User-defined merge, chain and diff: functions from two frames to a frame.

    The functions must be importable and obey the laws of R10 (``nova_assets.testing.check_laws`` tests them). A delta
    may have other columns than a base. Under this model, ``_deleted`` has no special meaning.

    Args:
        merge: ``merge(base, delta)`` returns the new base.
        chain: ``chain(earlier, later)`` returns one delta with the effect of both deltas.
        diff: ``diff(old, new)`` returns the delta between two bases.
        version: part of the name under which the catalog records this model. Change the version when the meaning of the
            functions changes. The new version takes effect with the next base (R18).
    """

    __repr__ = short_repr

    merge_ref: str = field(metadata=json_key("merge"))
    chain_ref: str = field(metadata=json_key("chain"))
    diff_ref: str = field(metadata=json_key("diff"))
    kind = "custom"

    @check_argument_types("nova.Custom")
    def __init__(
        self, merge: Callable[..., Any], chain: Callable[..., Any], diff: Callable[..., Any], version: str = "1"
    ) -> None:
        for role, function in (("merge", merge), ("chain", chain), ("diff", diff)):
            object.__setattr__(self, f"{role}_ref", str(FunctionRef.of(function, role, version)))


_MODEL_BY_KIND: Mapping[str, type[MergeModel]] = {c.kind: c for c in (Append, Multiset, Upsert, Keyed, Custom)}


def _accepted_types_if_rejected(combiner: str, type_: DataType) -> str | None:
    """Types that a combiner accepts, if this type is not accepted; None if it is. User functions accept any type."""
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
            f"combine of column {column!r} is unknown{did_you_mean(function, COMBINERS)}",
            found=function,
            expected=f"one of {', '.join(COMBINERS)}, or a function marked with nova.associative",
        )
    ref = FunctionRef.of(function, f"combine ({column})", getattr(function, "__nova_version__", "1"))
    if not is_associative(function):
        raise DefinitionError(
            f"the combine function of column {column!r} is not declared associative",
            found=str(ref),
            next="mark it with @nova.associative if f(f(a,b),c) = f(a,f(b,c))",
        )
    return str(ref)
