"""Routes for registered definitions: list, describe, pause, resume, remove."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from nova_assets.errors import DefinitionNotFound, NotAllowed
from nova_assets.model.registered_definition import DefinitionKind
from nova_assets.model.token import Right
from nova_assets.plan.removal import Orphan
from nova_assets.service.http.guard import Caller
from nova_assets.service.routes.dependencies import (
    CallerDependency,
    ServiceDependency,
    get_caller,
    get_service,
    problem_responses,
)
from nova_assets.service.service_state import ServiceState
from nova_assets.service.shapes.definitions import (
    BindingShape,
    DefinitionKeyShape,
    DefinitionShape,
    DefinitionStateShape,
    OrphanShape,
    RemovalShape,
    TriggerShape,
    WorkflowetteShape,
)
from nova_assets.service.shapes.requests import DryRunRequest

router = APIRouter(prefix="/v1", tags=["definitions"], responses=problem_responses(409, 410, 415, 422))

Kind = Annotated[DefinitionKind, Path(description="Kind of the definition. A trigger has the name of its binding.")]
Name = Annotated[str, Path(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the definition.")]


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
