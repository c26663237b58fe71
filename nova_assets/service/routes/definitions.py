"""Routes for registered definitions: list, describe, pause, resume, remove."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Request

from nova_assets.errors import DefinitionNotFound, NotAllowed
from nova_assets.model.registered_definition import (
    BindingInfo,
    DefinitionDescription,
    DefinitionKey,
    DefinitionKind,
    DefinitionStatus,
    DefinitionVersion,
    TriggerInfo,
    WorkflowetteInfo,
    user_without_host,
)
from nova_assets.model.token import Right
from nova_assets.plan.removal import Orphan, OrphanKind
from nova_assets.service.http.guard import Caller
from nova_assets.service.routes.dependencies import (
    CallerDependency,
    ServiceDependency,
    get_caller,
    get_service,
    problem_responses,
)
from nova_assets.service.service_state import ServiceState
from nova_assets.service.shapes import DryRunRequest, Shape

router = APIRouter(prefix="/v1", tags=["definitions"], responses=problem_responses(409, 410, 415, 422))

Kind = Annotated[DefinitionKind, Path(description="Kind of the definition. A trigger has the name of its binding.")]
Name = Annotated[str, Path(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the definition.")]

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


def require_right_on_definition(right: Right) -> Callable[..., Awaitable[Caller]]:
    """Dependency that returns the caller if it has this right on all channels of the definition."""

    async def get_caller_with_right(request: Request, kind: Kind, name: Name) -> Caller:
        caller, service = await get_caller(request), await get_service(request)
        if caller.token is not None:
            _check_right(caller, service, right, kind, name)
        return caller

    return get_caller_with_right


ReaderDependency = Annotated[Caller, Depends(require_right_on_definition("read"))]
OperatorDependency = Annotated[Caller, Depends(require_right_on_definition("operate"))]


@router.get("/bindings")
def bindings(caller: CallerDependency, service: ServiceDependency) -> list[BindingShape]:
    """Registered bindings, by name. Only those whose channels the caller may all read."""
    infos = service.store.registered_bindings()
    return [BindingShape.from_info(i) for i in infos if _has_right_on_all(caller, "read", i.channels)]


@router.get("/workflowettes")
def workflowettes(caller: CallerDependency, service: ServiceDependency) -> list[WorkflowetteShape]:
    """Workflowettes with a binding, by name. Only those whose channels the caller may all read."""
    infos = service.store.workflowettes()
    return [WorkflowetteShape.from_info(i) for i in infos if _has_right_on_all(caller, "read", i.channels)]


@router.get("/triggers")
def triggers(caller: CallerDependency, service: ServiceDependency) -> list[TriggerShape]:
    """Triggers of bindings, by name. Only those of bindings whose channels the caller may all read."""
    infos = service.store.triggers()
    return [TriggerShape.from_info(i) for i in infos if _has_right_on_all(caller, "read", i.channels)]


@router.get("/definitions/{kind}/{name}")
def describe(kind: Kind, name: Name, caller: ReaderDependency, service: ServiceDependency) -> DefinitionShape:
    """A channel, workflowette, binding or trigger with its versions: who registered them, when, and what differed.

    Of the bindings of a channel, only those are included whose channels the caller may all read.
    """
    shape = DefinitionShape.from_description(service.store.describe(kind, name))
    if kind != "channel":
        return shape
    visible = _visible_bindings(caller, service)
    related = {relation: [n for n in names if n in visible] for relation, names in shape.related.items()}
    return shape.model_copy(update={"related": related})


@router.post("/definitions/{kind}/{name}/pause")
def pause(kind: Kind, name: Name, caller: OperatorDependency, service: ServiceDependency) -> DefinitionStateShape:
    """Stop what runs automatically because of a definition. Runs by hand are still allowed."""
    return DefinitionStateShape.from_status(service.store.pause(kind, name, by=_actor_name(caller)).status)


@router.post("/definitions/{kind}/{name}/resume")
def resume(kind: Kind, name: Name, caller: OperatorDependency, service: ServiceDependency) -> DefinitionStateShape:
    """End the pause of a definition."""
    return DefinitionStateShape.from_status(service.store.resume(kind, name).status)


@router.post("/definitions/{kind}/{name}/remove")
def remove(
    kind: Kind, name: Name, caller: OperatorDependency, service: ServiceDependency, removal_request: DryRunRequest
) -> RemovalShape:
    """Remove a definition, or with `dry_run` list what that would orphan. The removal can be taken back until the next
    garbage collection."""
    if removal_request.dry_run:
        removal = service.store.plan_removal(kind, name)
    else:
        removal = service.store.remove(kind, name, by=_actor_name(caller))
    visible = _visible_bindings(caller, service)
    return RemovalShape(
        removes=[DefinitionKeyShape.from_key(key) for key in removal.removed],
        orphans=[OrphanShape.from_orphan(o, _is_visible(caller, o, visible)) for o in removal.orphans],
        removed=not removal_request.dry_run,
    )


@router.post("/definitions/{kind}/{name}/undo-removal")
def undo_removal(
    kind: Kind, name: Name, caller: OperatorDependency, service: ServiceDependency
) -> list[DefinitionKeyShape]:
    """Take back a removal that garbage collection has not made final. Returns the definitions that were removed."""
    return [DefinitionKeyShape.from_key(key) for key in service.store.undo_removal(kind, name)]


def _check_right(caller: Caller, service: ServiceState, right: Right, kind: DefinitionKind, name: str) -> None:
    """Check that a caller with a token has a right on all channels of a definition.

    Raises:
        NotAllowed: it has not, or there is no such definition. The caller does not learn which.
    """
    try:
        channels = service.store.describe(kind, name).channels
    except DefinitionNotFound:
        channels = ()
    if not channels or not _has_right_on_all(caller, right, channels):
        raise NotAllowed(
            f"there is no {kind} {name!r} on whose channels the token {caller.name!r} has the right to {right}",
            expected=f"a token with --{right} for all channels of the {kind}",
            next=f"GET /v1/{kind}s lists what the token may read",
            right=right,
        )


def _has_right_on_all(caller: Caller, right: Right, channels: tuple[str, ...]) -> bool:
    return caller.token is None or (bool(channels) and all(caller.has_right(right, c) for c in channels))


def _visible_bindings(caller: Caller, service: ServiceState) -> set[str]:
    """Bindings whose channels the caller may all read."""
    infos = service.store.registered_bindings()
    return {i.name for i in infos if _has_right_on_all(caller, "read", i.channels)}


def _is_visible(caller: Caller, orphan: Orphan, visible_bindings: set[str]) -> bool:
    """Whether the caller may know the name of what a removal orphans. Tables belong to a channel of its own."""
    if orphan.kind in ("reader", "writer", "trigger", "cursor"):
        return caller.token is None or orphan.name in visible_bindings
    return orphan.kind == "table" or caller.has_right("read", orphan.name)


def _actor_name(caller: Caller) -> str | None:
    """The token, as the person who makes a change. None for a caller of this machine: the user of the service."""
    return None if caller.token is None else f"token {caller.name}"
