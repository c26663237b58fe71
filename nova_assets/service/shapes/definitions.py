"""JSON shapes of registered bindings, workflowettes and triggers, of versions, and of removals."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from nova_assets.model.definition_description import (
    BindingInfo,
    DefinitionDescription,
    TriggerInfo,
    WorkflowetteInfo,
)
from nova_assets.model.registered_definition import (
    DefinitionKey,
    DefinitionKind,
    DefinitionStatus,
    DefinitionVersion,
    user_without_host,
)
from nova_assets.plan.removal import Orphan, OrphanKind
from nova_assets.service.shapes.shape import Shape

DefinitionState = Literal["active", "paused", "removed"]


class BindingShape(Shape):
    """A registered binding. ``off`` is true if nothing runs it automatically because something is paused or removed."""

    name: str
    workflowette: str
    channels: list[str]
    when: str | None
    state: DefinitionState
    off: bool
    version: int | None
    cursors: dict[str, int]

    @staticmethod
    def from_info(info: BindingInfo) -> BindingShape:
        return BindingShape(
            name=info.name,
            workflowette=info.workflowette,
            channels=list(info.channels),
            when=info.when,
            state=info.status.state,
            off=bool(info.off),
            version=info.version,
            cursors=dict(info.cursors),
        )


class WorkflowetteShape(Shape):
    """A workflowette with its bindings."""

    name: str
    tasks: list[str]
    ports: list[str]
    bindings: list[str]
    state: DefinitionState

    @staticmethod
    def from_info(info: WorkflowetteInfo) -> WorkflowetteShape:
        return WorkflowetteShape(
            name=info.name,
            tasks=list(info.tasks),
            ports=list(info.ports),
            bindings=list(info.bindings),
            state=info.status.state,
        )


class TriggerShape(Shape):
    """The trigger of a binding. ``off`` is true if it does not fire because something is paused or removed."""

    binding: str
    when: str
    state: DefinitionState
    off: bool
    last_fired_at: datetime | None

    @staticmethod
    def from_info(info: TriggerInfo) -> TriggerShape:
        return TriggerShape(
            binding=info.binding,
            when=info.when,
            state=info.status.state,
            off=bool(info.off),
            last_fired_at=None if info.last_firing is None else info.last_firing.at,
        )


class VersionShape(Shape):
    """A version of a definition. ``changes`` are the parts that differ from the previous version."""

    version: int
    at: datetime
    by: str
    changes: list[str]

    @staticmethod
    def from_version(version: DefinitionVersion) -> VersionShape:
        return VersionShape(
            version=version.number,
            at=version.registered_at,
            by=user_without_host(version.registered_by),
            changes=list(version.changes),
        )


class RanVersionShape(Shape):
    """The version that an execution of a binding ran."""

    execution: str
    version: int | None


class DefinitionStateShape(Shape):
    """Whether a definition is paused or removed."""

    kind: DefinitionKind
    name: str
    state: DefinitionState

    @staticmethod
    def from_status(status: DefinitionStatus) -> DefinitionStateShape:
        return DefinitionStateShape(kind=status.key.kind, name=status.key.name, state=status.state)


class DefinitionShape(Shape):
    """A definition with its versions, oldest first."""

    kind: DefinitionKind
    name: str
    state: DefinitionState
    paused_at: datetime | None
    paused_by: str | None
    removed_at: datetime | None
    removed_by: str | None
    related: dict[str, list[str]]
    versions: list[VersionShape]
    executions: list[RanVersionShape]

    @staticmethod
    def from_description(description: DefinitionDescription) -> DefinitionShape:
        key, status = description.key, description.status
        return DefinitionShape(
            kind=key.kind,
            name=key.name,
            state=status.state,
            paused_at=status.paused_at,
            paused_by=None if status.paused_by is None else user_without_host(status.paused_by),
            removed_at=status.removed_at,
            removed_by=None if status.removed_by is None else user_without_host(status.removed_by),
            related={relation: list(names) for relation, names in description.related.items()},
            versions=[VersionShape.from_version(v) for v in description.versions],
            executions=[RanVersionShape(execution=e.id, version=e.version) for e in description.executions],
        )


class DefinitionKeyShape(Shape):
    """Kind and name of a definition."""

    kind: DefinitionKind
    name: str

    @staticmethod
    def from_key(key: DefinitionKey) -> DefinitionKeyShape:
        return DefinitionKeyShape(kind=key.kind, name=key.name)


class OrphanShape(Shape):
    """Something that a removal orphans. Name and detail are empty if the caller may not read all its channels."""

    kind: OrphanKind
    name: str
    detail: str

    @staticmethod
    def from_orphan(orphan: Orphan, is_visible: bool) -> OrphanShape:
        name, detail = (orphan.name, orphan.detail) if is_visible else ("", "")
        return OrphanShape(kind=orphan.kind, name=name, detail=detail)


class RemovalShape(Shape):
    """A removal: what it removes and orphans. ``removed`` is false for a dry run."""

    removes: list[DefinitionKeyShape]
    orphans: list[OrphanShape]
    removed: bool
