"""Versions of registered definitions: who registered which content, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import JSON, Column, Connection, Integer, String, Table, Text, func, insert, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.database.transactions import batched, query_as_dict
from nova_assets.catalog.tables import metadata
from nova_assets.model.registered_definition import (
    Definition,
    DefinitionKey,
    DefinitionKind,
    DefinitionVersion,
    changed_parts,
)

definition_versions = Table(
    "nova_definition_versions",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("definition", JSON, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("by", Text, nullable=False),
)

definition_states = Table(
    "nova_definition_states",
    metadata,
    # Only definitions that are paused or removed have a row.
    Column("kind", String(16), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("paused_at", UtcMicroseconds),
    Column("paused_by", Text),
    Column("removed_at", UtcMicroseconds),
    Column("removed_by", Text),
    # Time at which garbage collection made the removal final.
    Column("collected_at", UtcMicroseconds),
)


_NAMES_PER_QUERY = 500


class DefinitionVersions(CatalogPart):
    """Reads the versions of definitions. ``Definitions.register`` records them."""

    def of(self, kind: DefinitionKind, name: str) -> list[DefinitionVersion]:
        """Versions of a definition, oldest first; empty for an unknown name."""
        query = select(definition_versions).where(
            definition_versions.c.kind == kind, definition_versions.c.name == name
        )
        rows = self.database.read(lambda c: c.execute(query.order_by(definition_versions.c.number)).mappings().all())
        versions: list[DefinitionVersion] = []
        for row in rows:
            changes = changed_parts(versions[-1].content, row["definition"]) if versions else ()
            key = DefinitionKey(kind, name)
            versions.append(DefinitionVersion(key, row["number"], row["definition"], row["at"], row["by"], changes))
        return versions

    def latest_numbers(self, kind: DefinitionKind) -> dict[str, int]:
        """Number of the newest version of each definition of a kind, by name."""
        columns = definition_versions.c
        query = select(columns.name, func.max(columns.number)).where(columns.kind == kind).group_by(columns.name)
        return self.database.read(lambda c: query_as_dict(c, query))


def unversioned_definitions(c: Connection, definitions: Sequence[Definition]) -> list[tuple[Definition, int]]:
    """Definitions that have to be recorded as a new version, each with the number of this version.

    Several workflowettes may have the same name, since only bindings are told apart by name. So a workflowette has a
    new version only if no earlier version has its content.
    """
    numbers: dict[DefinitionKey, int] = {}
    fingerprints: dict[DefinitionKey, list[str]] = {}
    names = sorted({d.key.name for d in definitions})
    columns = (definition_versions.c.kind, definition_versions.c.name, definition_versions.c.number)
    for batch in batched(names, _NAMES_PER_QUERY):
        query = select(*columns, definition_versions.c.fingerprint).where(definition_versions.c.name.in_(batch))
        for kind, name, number, fingerprint in c.execute(query.order_by(definition_versions.c.number)):
            key = DefinitionKey(kind, name)
            numbers[key] = number
            fingerprints.setdefault(key, []).append(fingerprint)
    return [
        (d, numbers.get(d.key, 0) + 1)
        for d in definitions
        if d.fingerprint not in fingerprints.get(d.key, [])[0 if d.key.kind == "workflowette" else -1 :]
    ]


def insert_versions(c: Connection, versions: Iterable[tuple[Definition, int]], by: str, now: datetime) -> None:
    """Record new versions, given as (definition, number)."""
    rows = [
        {
            "kind": definition.key.kind,
            "name": definition.key.name,
            "number": number,
            "definition": dict(definition.content),
            "fingerprint": definition.fingerprint,
            "at": now,
            "by": by,
        }
        for definition, number in versions
    ]
    if rows:
        c.execute(insert(definition_versions), rows)


def version_number_of_fingerprint(c: Connection, binding: str, fingerprint: str) -> int | None:
    """Newest version of a binding that has this fingerprint; None if no version has."""
    columns = definition_versions.c
    query = select(columns.number).where(
        columns.kind == "binding", columns.name == binding, columns.fingerprint == fingerprint
    )
    number: int | None = c.execute(query.order_by(columns.number.desc()).limit(1)).scalar()
    return number
