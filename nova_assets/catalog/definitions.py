"""Registered channels and bindings."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace as _replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, func, insert, select, true, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.channel_rows import channel_state_from_row, load_channel_state
from nova_assets.catalog.cursors import has_active_consumers
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.definition_states import (
    delete_collected_tombstones,
    raise_if_removed,
    read_statuses,
    without_renewable,
)
from nova_assets.catalog.definition_versions import definition_states, insert_versions, unversioned_definitions
from nova_assets.catalog.scheduler_state import mark_redefined_outputs, upsert_backfill_requests
from nova_assets.catalog.tables import bindings, blocks, catalog_identity, channels, commit_numbers, commits
from nova_assets.catalog.timeline_steps import append_step
from nova_assets.errors import DefinitionConflict, DefinitionError
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.channel_registration import (
    ColumnsByBase,
    ReplacementPreview,
    check_partitions_keep_names,
    definition_fingerprint,
    mutable_settings_after_register,
)
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.partitions import WHOLE, Dimension
from nova_assets.model.registered_definition import (
    Definition,
    DefinitionKey,
    DefinitionStatus,
    definitions_to_register,
)
from nova_assets.model.schema import Schema
from nova_assets.model.schema_evolution import redeclare_schema
from nova_assets.plan.required_base import recomputable_channels

_MAX_REGISTRATION_ATTEMPTS = 5
"""Number of attempts at a registration, if other processes register the same names at the same time."""


class Definitions(CatalogPart):
    """Registers channels and bindings, and reads their definitions."""

    def register(
        self,
        new_channels: Sequence[Channel],
        new_bindings: Sequence[Binding] = (),
        replace: bool = False,
        by: str = "",
    ) -> None:
        """Register channels and bindings. Registering the same definitions again is silent and costs one read.

        Args:
            replace: accept changed definitions, and bindings whose removal is final.
            by: the person or process that registers them, for the versions.

        Raises:
            DefinitionConflict: a channel is registered with another definition, and ``replace`` is false.
            DefinitionRemoved: a channel, binding or workflowette was removed.
        """
        definitions = definitions_to_register(new_channels, new_bindings)
        if self.database.read(lambda c: self._is_already_registered(c, definitions)):
            return
        channel_rows = {c.name: c.as_json() for c in new_channels}
        binding_rows = {b.name: b.as_json() for b in new_bindings}
        maintenance_by_channel = {c.name: c.upkeep for c in new_channels}

        def register_all(c: Connection) -> None:
            self._check_not_removed(c, definitions, replace)
            self._register_all(c, channel_rows, binding_rows, maintenance_by_channel, replace)
            _run_unless_raced(
                lambda: insert_versions(c, unversioned_definitions(c, definitions), by, self.database.clock())
            )

        for attempt in range(1, _MAX_REGISTRATION_ATTEMPTS + 1):
            try:
                self.database.write(register_all)
                return
            except _ConcurrentRegistration:  # another process registered the same name first: compare again
                if attempt == _MAX_REGISTRATION_ATTEMPTS:
                    raise

    def check_registration(self, new_channels: Sequence[Channel]) -> None:
        """Run all checks of ``register`` without ``replace``. Changes nothing.

        Raises:
            DefinitionConflict: a channel is registered with another definition.
        """
        by_name = {c.name: c for c in new_channels}
        query = select(channels).where(channels.c.name.in_(list(by_name))).order_by(channels.c.name)
        for row in self.database.read(lambda c: c.execute(query).mappings().all()):
            name = row["name"]
            _check_same_definition(name, row["definition"], by_name[name].as_json())
            mutable_settings_after_register(name, row["upkeep"], by_name[name].upkeep, replace_definition=False)

    def preview_replacements(
        self, new_channels: Sequence[Channel], new_bindings: Sequence[Binding] = ()
    ) -> ReplacementPreview:
        """Dry run of ``register`` with ``replace``, for channels that have data."""
        by_name = {c.name: c.as_json() for c in new_channels}
        recomputable = _recomputable_channels({b.name: b.as_json() for b in new_bindings})
        refused: dict[str, DefinitionError] = {}
        by_base: dict[str, ColumnsByBase] = {}

        def check_all(c: Connection) -> None:
            query = select(channels).where(channels.c.name.in_(list(by_name)))
            for row in c.execute(query.order_by(channels.c.name)).mappings().all():
                name = row["name"]
                try:
                    present, next_ = _replaced_schemas(c, row, by_name[name], can_recompute=name in recomputable)
                except DefinitionError as error:
                    refused[name] = error
                    continue
                if next_ is not None:
                    by_base[name] = ColumnsByBase(Schema.from_json(present), Schema.from_json(next_))

        self.database.read(check_all)
        return ReplacementPreview(refused, by_base)

    def channel(self, name: str) -> ChannelState:
        """State of a channel, without its sizes. Raises ChannelNotFound."""
        return load_channel_state(self.database, name)

    def channels(self, name: str | None = None) -> list[ChannelState]:
        """States of all channels that are not removed, by name. With a name, the state of that channel, or an empty
        list.
        """
        return self.database.read(lambda c: self._read_channel_states(c, name))

    def bindings(self) -> dict[str, dict[str, Any]]:
        """JSON definition of each registered binding, by name."""
        query = select(bindings.c.name, bindings.c.definition).order_by(bindings.c.name)
        return self.database.read(lambda c: query_as_dict(c, query))

    def _is_already_registered(self, c: Connection, definitions: Sequence[Definition]) -> bool:
        """Whether each definition is the latest version of its name, and none is removed."""
        return not self._removed_among(c, definitions) and not unversioned_definitions(c, definitions)

    def _removed_among(self, c: Connection, definitions: Sequence[Definition]) -> dict[DefinitionKey, DefinitionStatus]:
        """Removed definitions among these. A removed trigger does not count: its binding runs by hand."""
        keys = {d.key for d in definitions if d.key.kind != "trigger"}
        return {k: s for k, s in read_statuses(c, keys).items() if s.is_removed}

    def _check_not_removed(self, c: Connection, definitions: Sequence[Definition], replace: bool) -> None:
        removed = self._removed_among(c, definitions).values()
        raise_if_removed(without_renewable(c, removed) if replace else removed)
        if replace:
            delete_collected_tombstones(c, [d.key for d in definitions])

    def _register_all(
        self,
        c: Connection,
        channel_definitions: dict[str, Any],
        binding_definitions: dict[str, Any],
        maintenance_by_channel: dict[str, dict[str, Any]],
        replace: bool,
    ) -> None:
        now, recomputable = self.database.clock(), _recomputable_channels(binding_definitions)
        for name, definition in sorted(channel_definitions.items()):
            self._register_channel(c, name, definition, replace, now, can_recompute=name in recomputable)
            stored_maintenance = c.execute(select(channels.c.upkeep).where(channels.c.name == name)).scalar() or {}
            merged_maintenance = mutable_settings_after_register(
                name, stored_maintenance, maintenance_by_channel[name], replace
            )
            if merged_maintenance != stored_maintenance:
                c.execute(update(channels).where(channels.c.name == name).values(upkeep=merged_maintenance))
        _check_awaited_bases(c, binding_definitions, recomputable)
        for name, definition in sorted(binding_definitions.items()):
            values = {"definition": definition, "fingerprint": definition_fingerprint(definition)}
            mark_redefined_outputs(c, name, definition, now)
            if not c.execute(update(bindings).where(bindings.c.name == name).values(**values)).rowcount:
                _insert_unless_raced(c, insert(bindings).values(name=name, registered_at=now, **values))
            base_ports = {e["port"] for t in definition["tasks"] for e in t["produces"] if e["kind"] == "base"}
            base_channels = [channel for port, channel in definition["channels"].items() if port in base_ports]
            c.execute(
                update(channels)
                .where(channels.c.name.in_(base_channels), channels.c.bases.is_(False))
                .values(bases=True)
            )

    def _register_channel(
        self,
        c: Connection,
        name: str,
        definition: dict[str, Any],
        replace: bool,
        now: datetime,
        *,
        can_recompute: bool,
    ) -> None:
        existing = c.execute(select(channels).where(channels.c.name == name).with_for_update()).mappings().first()
        new_fingerprint = definition_fingerprint(definition)
        if existing is None:
            values = {
                "definition": definition,
                "fingerprint": new_fingerprint,
                "schema": definition["schema"],
                "head": 0,
                "registered_at": now,
                "used_until": select(catalog_identity.c.used_until).scalar_subquery(),
            }
            _insert_unless_raced(c, insert(channels).values(name=name, **values))
            return
        if existing["fingerprint"] == new_fingerprint:
            return
        if not replace:
            _check_same_definition(name, existing["definition"], definition)
        schema, next_schema = _replaced_schemas(c, existing, definition, can_recompute=can_recompute)
        changed = {"definition": definition, "fingerprint": new_fingerprint}
        changed |= {"schema": schema, "next_schema": next_schema}
        c.execute(update(channels).where(channels.c.name == name).values(**changed))
        if next_schema is not None:
            upsert_backfill_requests(c, name, [WHOLE], "", "its columns have changed", 0, now)
        append_step(c, name, "define", uuid.uuid4().hex, now)

    def _read_channel_states(self, c: Connection, name: str | None) -> list[ChannelState]:
        sizes = (
            select(
                blocks.c.channel,
                func.count().label("blocks"),
                func.sum(blocks.c.rows).label("rows"),
                func.sum(blocks.c.bytes).label("bytes"),
            )
            .where(blocks.c.collected_at.is_(None), true() if name is None else blocks.c.channel == name)
            .group_by(blocks.c.channel)
            .subquery()
        )
        latest = select(commits.c.at).join(commit_numbers, commit_numbers.c.commit_id == commits.c.id)
        head_committed_at = latest.where(
            and_(commit_numbers.c.channel == channels.c.name, commit_numbers.c.seq == channels.c.head)
        ).scalar_subquery()
        query = select(channels, sizes.c.blocks, sizes.c.rows, sizes.c.bytes, head_committed_at.label("moved"))
        query = query.outerjoin(sizes, sizes.c.channel == channels.c.name).order_by(channels.c.name)
        if name is not None:
            query = query.where(channels.c.name == name)
        else:
            removed = select(definition_states.c.name).where(
                definition_states.c.kind == "channel", definition_states.c.removed_at.is_not(None)
            )
            query = query.where(channels.c.name.not_in(removed))
        return [
            _replace(
                channel_state_from_row(r),
                rows=int(r["rows"] or 0),
                bytes=int(r["bytes"] or 0),
                blocks=int(r["blocks"] or 0),
                updated_at=r["moved"],
            )
            for r in c.execute(query).mappings()
        ]


def _recomputable_channels(binding_definitions: Mapping[str, Any]) -> frozenset[str]:
    """Channels all of whose rows an execution of one of these bindings can make again, in other columns."""
    return frozenset(c for definition in binding_definitions.values() for c in recomputable_channels(definition))


def _check_awaited_bases(c: Connection, binding_definitions: Mapping[str, Any], recomputable: Collection[str]) -> None:
    """Check that each channel whose next base brings other columns (R23) is not left to a writer that makes no base.

    Raises:
        DefinitionError: a binding writes such a channel, and would wait for its base for ever.
    """
    written = {
        d["channels"].get(e["port"])
        for d in binding_definitions.values()
        for t in d["tasks"]
        for e in t["produces"]
        if "query" in t or e["kind"] != "base"
    }
    awaiting = channels.c.name.in_(written - set(recomputable)) & channels.c.next_schema.is_not(None)
    for row in c.execute(select(channels).where(awaiting).order_by(channels.c.name).limit(1)).mappings():
        raise DefinitionError(
            f"channel {row['name']!r} waits for a base that brings other columns, and its writer makes no base",
            found=f"columns {Schema.from_json(row['schema'])} until the base, then "
            f"{Schema.from_json(row['next_schema'])}",
            expected="a query that makes all rows again: INSERT OVERWRITE, without PARTITION and FROZEN",
            next="keep INSERT OVERWRITE until nova tick has committed the base; or give the query the present columns",
        )


def _replaced_schemas(
    c: Connection, existing: RowMapping, definition: dict[str, Any], *, can_recompute: bool
) -> tuple[Any, Any]:
    """Schemas of a channel under a new definition.

    Args:
        can_recompute: whether a query can make all rows of the channel again.

    Returns:
        The schema from now on, and the schema from the next base on. The second is None if no column is dropped or
        renamed, or if no base has to bring the columns.

    Raises:
        DefinitionError: stored rows cannot have these columns or partitions.
    """
    channel, head = existing["name"], existing["head"]
    registered, declared = (
        [Dimension.from_json(p) for p in d["partitions"]] for d in (existing["definition"], definition)
    )
    check_partitions_keep_names(channel, registered, declared, head)
    if head == 0 or existing["schema"] is None or definition.get("external"):  # the owner sets the schema
        return definition["schema"], None
    old_schema = existing["definition"]["schema"]
    renamed, registered_renames = (d.get("renamed", {}) for d in (definition, existing["definition"]))
    if definition["schema"] is None or (definition["schema"] == old_schema and renamed in ({}, registered_renames)):
        return existing["schema"], existing["next_schema"]
    current, new = Schema.from_json(existing["schema"]), Schema.from_json(definition["schema"])
    if existing["next_schema"] is not None:  # the registered columns and renames have not taken effect
        old_schema, registered_renames = existing["schema"], {}
    merge_columns, key_columns = _merge_model_columns(c, channel, current)
    if can_recompute and definition["on_schema_change"] == "freeze" and _accepts_any_base(c, channel, definition):
        # Stored rows cannot follow a changed query: nobody knows their values of a renamed column, and a Multiset finds
        # rows by all columns. So the columns come with a base, in which a new name is a new column.
        next_step = "give a column that changes its type another name: a base then brings it (nova init --replace)"
        by_base = redeclare_schema(
            channel, current, current, new, renamed, head, key_columns, registered_renames, next_step
        )
        if any(by_base.name_of_field(f) != f.name for f in current.fields):
            return existing["schema"], by_base.as_json()
    previous = None if old_schema is None else Schema.from_json(old_schema)
    now = redeclare_schema(channel, current, previous, new, renamed, head, merge_columns, registered_renames)
    return now.as_json(), None


def _accepts_any_base(c: Connection, channel: str, definition: Mapping[str, Any]) -> bool:
    """Whether consumers can get the difference that a base with other columns makes (R10)."""
    return definition["merge"]["kind"] != "append" or not has_active_consumers(c, channel, None)


def _merge_model_columns(c: Connection, channel: str, schema: Schema) -> tuple[frozenset[str], frozenset[str]]:
    """Columns by which the newest block, and blocks with a model of their own, merge rows: of a ``Multiset``, all.

    Returns:
        These columns, and those of them that a model names. A difference between two versions needs the latter on both
        sides.
    """
    query = select(blocks.c.merge, blocks.c.channel_merge).where(
        blocks.c.channel == channel, blocks.c.collected_at.is_(None)
    )
    newest = c.execute(query.order_by(blocks.c.hi.desc(), blocks.c.kind, blocks.c.id).limit(1)).all()
    with_own_models = c.execute(query.where(blocks.c.channel_merge.is_not(None))).all()
    merges = [m for row in (*newest, *with_own_models) for m in row if m is not None]
    named = frozenset(n for m in merges for part in ("key", "order_by", "combine") for n in m.get(part, ()))
    return (frozenset(schema.names) if any(m["kind"] == "multiset" for m in merges) else named), named


class _ConcurrentRegistration(Exception):
    """Another process has registered the name meanwhile."""


def _insert_unless_raced(c: Connection, statement: Any) -> None:
    _run_unless_raced(lambda: c.execute(statement))


def _run_unless_raced(insert_rows: Callable[[], object]) -> None:
    try:
        insert_rows()
    except IntegrityError as error:
        raise _ConcurrentRegistration from error


def _check_same_definition(channel: str, registered: dict[str, Any], definition: dict[str, Any]) -> None:
    """Check that a channel is registered with the same definition. Raises DefinitionConflict."""
    if definition_fingerprint(registered) == definition_fingerprint(definition):
        return
    differences = [k for k in definition if definition[k] != registered.get(k)]
    raise DefinitionConflict(
        f"channel {channel!r} is registered with another definition (different: {', '.join(differences)})",
        found="; ".join(f"{k}={_format_definition_part(k, definition[k])}" for k in differences),
        expected="; ".join(f"{k}={_format_definition_part(k, registered.get(k))}" for k in differences),
        next="register the same definition, or accept the new one: register(..., replace=True) or nova init --replace",
        channel=channel,
        differences=differences,
    )


def _format_definition_part(name: str, value: Any) -> str:
    return str(Schema.from_json(value)) if name == "schema" and value is not None else str(value)
