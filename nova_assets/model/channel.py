"""Channels: named data containers that change block by block (Nova 2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.compaction import Compaction
from nova_assets.model.declared_schema import schema_from_declaration
from nova_assets.model.external_table import External
from nova_assets.model.file_source import Files
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key
from nova_assets.model.merge import Append, Custom, MergeModel, Multiset
from nova_assets.model.names import check_name, find_duplicates
from nova_assets.model.partitions import Dimension
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds, period_seconds_or_zero
from nova_assets.model.published_table import PublishedTable
from nova_assets.model.schema import Schema
from nova_assets.model.seal import Sealing
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

MIN_FRESHNESS_SECONDS = 60
"""Smallest ``fresh_within``, in seconds: Dagster checks freshness no more often."""

OnSchemaChange = Literal["freeze", "evolve"]


def _declared_schema(channel: str, declaration: Any) -> Schema | None:
    """Schema of a channel from its declaration. Raises DefinitionError, which names the channel."""
    try:
        return schema_from_declaration(declaration)
    except DefinitionError as error:
        raise DefinitionError(
            f"channel {channel!r}: {error.what}", found=error.found, expected=error.expected, next=error.next
        ) from error


@dataclass(frozen=True, init=False)
class Channel(JsonForm):
    """A named container of data, append-only or keyed. In Dagster, each channel is an asset.

    Args:
        name: unique in the project. By default, the port of an edge to this channel has the same name.
        merge: merge model, which decides how deltas merge into
            bases: Append, Upsert, Keyed or Custom.
        schema: columns and types, as Spark DDL or as a ``pyarrow.Schema``. By default, the first block determines them.
        partitions: partition dimensions, outermost first. In a keyed channel, the columns of the dimensions belong to
            the key (R13).
        cluster_by: key columns whose new values lie close together, such as dates or growing numbers. Files are then
            split by ranges of these columns, not by a hash of the key. So new data touches few files.
        on_schema_change: handling of data with other columns or types. ``freeze`` rejects the data. ``evolve`` accepts
            new columns and wider types (R18).
        description, owners, group, tags: properties of the asset that Dagster shows.
        retain: period for which old versions can be read with ``at=`` and ``since=``, for example ``"30d"``. By
            default, and with ``"0s"``, a version is kept only while a consumer needs it. If a retention is registered,
            a definition without ``retain`` is rejected. To remove the retention, write ``"0s"`` or call ``register(...,
            replace=True)``.
        compaction: limits at which maintenance under Dagster compacts the channel. With None, maintenance never
            compacts the channel.
        fresh_within: maximum age of the newest data, for example ``"25h"``. If the newest data is older, Dagster
            reports the asset as stale.
        source: source of the files that arrive for this channel, made with ``nova.files(...)``. Records that cannot be
            ingested go to the channel ``NAME_quarantine``.
        external: table that another system writes, made with ``nova.external(...)``. Nova reads the table in place and
            never writes it.
        seal: rule for when a day or an hour of the channel is complete, made with ``nova.seal(...)``.
        publish: one or several tables through which other tools read the channel, made with ``nova.hive(...)`` or
            ``nova.iceberg(...)``.
        renamed: new name -> old name of each column that this definition renames. Requires a ``schema``.
            All renames are made at once, so columns may exchange their names, and each rename is made once.
            ``register(..., replace=True)`` accepts renamed columns, and also added, dropped and widened columns.

    Raises:
        DefinitionError: a name, a schema, a key or an option is invalid. The error lists all problems.
    """

    __repr__ = short_repr

    name: str
    merge: MergeModel
    schema: Schema | None
    partitions: tuple[Dimension, ...]
    on_schema_change: OnSchemaChange
    cluster_by: tuple[str, ...] = field(default=(), compare=False, metadata=json_key(omit_default=True))
    description: str | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    owners: tuple[str, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)
    group: str | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    tags: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False, metadata=NOT_IN_JSON)
    fresh_within: str | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    retain: str | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    compaction: Compaction | None = field(default=Compaction(), compare=False, metadata=NOT_IN_JSON)
    source: Files | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    external: External | None = field(default=None, metadata=json_key(omit_default=True))
    seal: Sealing | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    publish: tuple[PublishedTable, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)
    renamed: Mapping[str, str] = field(
        default_factory=dict, compare=False, hash=False, metadata=json_key(omit_default=True)
    )

    @check_argument_types("nova.Channel")
    def __init__(
        self,
        name: str,
        merge: MergeModel | None = None,
        schema: str | Schema | pa.Schema | None = None,
        partitions: Sequence[Dimension] | Dimension = (),
        on_schema_change: OnSchemaChange = "freeze",
        *,
        cluster_by: str | Sequence[str] = (),
        description: str | None = None,
        owners: Sequence[str] = (),
        group: str | None = None,
        tags: Mapping[str, str] | None = None,
        fresh_within: str | None = None,
        retain: str | None = None,
        compaction: Compaction | None = Compaction(),  # noqa: B008  it is frozen
        source: Files | None = None,
        external: External | None = None,
        seal: Sealing | None = None,
        publish: PublishedTable | Sequence[PublishedTable] = (),
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        def set_fields(**values: Any) -> None:
            for key, value in values.items():
                object.__setattr__(self, key, value)

        set_fields(
            name=check_name(name, "a channel"),
            merge=merge if merge is not None else Append(),
            schema=_declared_schema(name, schema),
        )
        set_fields(
            partitions=(partitions,) if isinstance(partitions, Dimension) else tuple(partitions),
            on_schema_change=on_schema_change,
            cluster_by=(cluster_by,) if isinstance(cluster_by, str) else tuple(cluster_by),
        )
        set_fields(description=description, owners=tuple(owners), group=group, tags=dict(tags or {}))
        set_fields(renamed=dict(renamed or {}), fresh_within=fresh_within, retain=retain, compaction=compaction)
        set_fields(
            source=source,
            external=external,
            seal=seal,
            publish=(publish,) if isinstance(publish, PublishedTable) else tuple(publish),
        )
        problems = self._problems()
        if problems:
            raise DefinitionError.of(problems, f"channel {name!r}")

    def __hash__(self) -> int:
        # Equal channels have equal names. Hashing the other fields dominated the loading time of projects.
        return hash(self.name)

    def redefined(self, schema: Schema, partitions: Sequence[Dimension]) -> Channel:
        """Copy of this channel with a schema and dimensions that were derived elsewhere, such as from a query.

        Raises:
            DefinitionError: the channel declares another schema or other dimensions, or the derived values conflict
                with the rest of the definition.
        """
        for what, own, other in (("schema", self.schema, schema), ("partitions", self.partitions, tuple(partitions))):
            if own and own != other:
                raise DefinitionError(
                    f"channel {self.name!r} declares another {what} than its query gives",
                    found=str(own),
                    expected=str(other),
                    next=f"leave {what}= out",
                )
        found = copy(self)
        object.__setattr__(found, "schema", schema)
        object.__setattr__(found, "partitions", tuple(partitions))
        problems = found._problems()
        if problems:
            raise DefinitionError.of(problems, f"channel {self.name!r}")
        return found

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(d.column for d in self.partitions)

    @property
    def upkeep(self) -> dict[str, Any]:
        """Settings that may change without ``replace``: retention of versions and of partitions, and the seal.

        Keys: ``retain``, ``keep`` (partition column -> period), ``seal``. A setting that is left out is None or empty.
        """
        return {
            "retain": self.retain,
            "keep": {d.column: d.keep for d in self.partitions if d.keep is not None},
            "seal": None if self.seal is None else self.seal.as_json(),
        }

    def _problems(self) -> list[str]:
        if not isinstance(self.merge, MergeModel):
            return [
                f"merge is {self.merge!r}; "
                "expected nova.Append(), nova.Multiset(), nova.Upsert(key=...), nova.Keyed(...) or nova.Custom(...)"
            ]
        found = self.merge.problems(self.schema)
        if self.on_schema_change not in ("freeze", "evolve"):
            near = did_you_mean(self.on_schema_change, ("freeze", "evolve"))
            found.append(f'on_schema_change is {self.on_schema_change!r}; expected "freeze" or "evolve"{near}')
        if self.fresh_within is not None and (period_seconds(self.fresh_within) or 0) < MIN_FRESHNESS_SECONDS:
            found.append(f"fresh_within is {self.fresh_within!r}; expected {EXPECTED_PERIOD}, at least one minute")
        if self.retain is not None and period_seconds_or_zero(self.retain) is None:
            found.append(f'retain is {self.retain!r}; expected {EXPECTED_PERIOD}, or "0s" to keep no old versions')
        if self.compaction is not None:
            found += self.compaction.problems()
        found += [
            f"renamed maps {o!r} to {n!r}, but {n!r} is not in the schema"
            for n, o in self.renamed.items()
            if self.schema is None or n not in self.schema
        ]
        found += [
            f"renamed gives the data of column {o!r} to several columns" for o in find_duplicates(self.renamed.values())
        ]
        found += self._cluster_problems() + self._source_problems() + self._seal_problems() + self._external_problems()
        found += [p for t in self.publish for p in t.problems()]
        found += [f"it is published twice in {t}" for t in find_duplicates(t.id for t in self.publish)]
        columns = self.partition_columns
        if len(set(columns)) != len(columns):
            found.append(f"a partition column is named twice ({', '.join(columns)})")
        if self.schema is not None:
            found += [
                f"partition column {c!r} is not in the schema{did_you_mean(c, self.schema.names)}"
                for c in columns
                if c not in self.schema
            ]
            for d in self.partitions:
                if d.column in self.schema and self.schema.field(d.column).type.name not in d.allowed_column_types:
                    given = self.schema.field(d.column).type
                    allowed = " or ".join(d.allowed_column_types)
                    found.append(f"{d.kind} partition column {d.column!r} is {given}; expected {allowed}")
                found += _derived_column_problems(d, self.schema)
        if self.merge.key:
            found += [f"partition column {c!r} must be part of the key" for c in columns if c not in self.merge.key]
        return found

    def _cluster_problems(self) -> list[str]:
        """Problems of ``cluster_by``.

        The key of a row alone must determine its file. Otherwise an older row of the same key could not be located.
        """
        not_in_key = [c for c in self.cluster_by if c not in self.merge.key]
        found = [
            f"cluster_by names {c!r}, which is no column of the key{did_you_mean(c, self.merge.key)}"
            for c in not_in_key
        ]
        if len(set(self.cluster_by)) != len(self.cluster_by):
            found.append(f"cluster_by names a column twice ({', '.join(self.cluster_by)})")
        if self.schema is not None:
            kinds = {c: self.schema.field(c).type for c in self.cluster_by if c in self.schema}
            unordered_types = {c: t for c, t in kinds.items() if t.name in ("binary", "boolean")}
            found += [f"cluster_by column {c!r} is {t}, which has no ranges" for c, t in unordered_types.items()]
        return found

    def _source_problems(self) -> list[str]:
        if self.source is None:
            return []
        found = self.source.problems()
        if self.source.format == "text" and (self.schema is None or len(self.schema.names) != 1):
            found.append("files of text have one column; expected a schema such as 'line string'")
        if self.on_schema_change != "freeze":
            found.append('a channel with a source needs on_schema_change="freeze"')
        if self.merge.key and not self.merge.order_by:
            found.append("files arrive in any order: a keyed channel with a source needs order_by in its merge model")
        if isinstance(self.merge, Custom | Multiset):
            found.append(f"a channel with merge=nova.{type(self.merge).__name__}(...) cannot have a source")
        return found

    def _seal_problems(self) -> list[str]:
        calendars = [d.column for d in self.partitions if d.kind in ("daily", "hourly")]
        if self.seal is None or self.seal.by in calendars:
            return []
        expected_columns = ", ".join(calendars) or "it has none"
        return [
            f"it is sealed by {self.seal.by!r}; expected one of its daily or hourly dimensions ({expected_columns})"
        ]

    def _external_problems(self) -> list[str]:
        """Problems of ``external``, including settings that have no effect because another system writes the table."""
        if self.external is None:
            return []
        found = self.external.problems()
        if self.schema is None:
            found.append("an external channel needs a schema: nova does not infer it from the files")
        if not isinstance(self.merge, Append):
            found.append("an external channel has no merge model; leave merge= out")
        for name in ("source", "seal", "publish", "renamed"):
            if getattr(self, name):
                found.append(f"{name}= has no effect on an external channel, which another system writes")
        found += [
            f"partition column {d.column!r} has keep={d.keep!r}, but another system drops partitions"
            for d in self.partitions
            if d.keep
        ]
        types = {} if self.schema is None else {f.name: f.type.name for f in self.schema.fields}
        if self.external.database is not None:
            found += [
                f"partition column {d.column!r} is {types[d.column]}; expected a date, text or whole number"
                for d in self.partitions
                if types.get(d.column, "").startswith("timestamp")
            ]
        found += [
            f"partition column {d.column!r} is a timestamp in {d.tz}, and Spark reads the folders' names in UTC; "
            "expected string"
            for d in self.partitions
            if d.kind == "hourly" and (d.tz or "UTC") != "UTC" and types.get(d.column) == "timestamp"
        ]
        found += [
            f"partition column {d.column!r} is derived from {d.of!r}, but the other system determines it"
            for d in self.partitions
            if d.of
        ]
        return found

    def refuse_changes(self) -> None:
        """Raise DefinitionError if only the newest state of the channel is known, so no changes can be read. This is so
        for external channels, except incremental tables of a database.
        """
        if self.external is not None and not self.external.has_changes:
            raise DefinitionError(
                f"channel {self.name!r} is external and has no changes to read: only its newest state is known",
                expected="a read of the whole channel, without since=",
            )

    def refuse_external(self) -> None:
        """Raise DefinitionError if the channel is external. Only another system writes an external channel."""
        if self.external is not None:
            raise DefinitionError(
                f"channel {self.name!r} is external: another system writes it",
                found=self.external.location,
                next=f"to read what the other system has written: nova refresh {self.name}",
            )

    @classmethod
    def from_json(cls, data: Mapping[str, Any], upkeep: Mapping[str, Any] | None = None) -> Self:
        """Channel from its stored definition: settings that affect data, without those that only Dagster shows.

        Args:
            upkeep: the mutable settings, which are stored separately.
        """
        channel = super().from_json(data)
        settings = upkeep or {}
        keep: Mapping[str, str] = settings.get("keep") or {}
        values = {
            "retain": settings.get("retain"),
            "seal": Sealing.from_json(settings["seal"]) if settings.get("seal") else None,
            "partitions": tuple(replace(d, keep=keep.get(d.column)) for d in channel.partitions),
        }
        for name, value in values.items():
            object.__setattr__(channel, name, value)
        return channel


def _derived_column_problems(dimension: Dimension, schema: Schema) -> list[str]:
    """Problems of a partition column that is derived from another column."""
    if dimension.of is None:
        return []
    if dimension.of not in schema:
        return [
            f"partition column {dimension.column!r} is derived from {dimension.of!r}, which is not in the schema"
            + did_you_mean(dimension.of, schema.names)
        ]
    fitting = ("timestamp",) if dimension.kind == "hourly" else ("timestamp", "timestamp_ntz", "date")
    found = [(dimension.of, schema.field(dimension.of).type, fitting)]
    if dimension.kind == "hourly" and dimension.column in schema:
        found.append((dimension.column, schema.field(dimension.column).type, fitting))
    return [f"column {name!r} is {t}; expected {' or '.join(f)}" for name, t, f in found if t.name not in f]
