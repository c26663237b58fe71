"""Registered definitions of a deployment: list, describe, pause, resume, remove."""

from __future__ import annotations

from nova_assets.execution.actor import current_actor
from nova_assets.execution.runtime import Runtime
from nova_assets.model.definition_description import (
    BindingInfo,
    DefinitionDescription,
    TriggerInfo,
    WorkflowetteInfo,
)
from nova_assets.model.registered_definition import DefinitionKey
from nova_assets.plan.removal import RemovalPlan
from nova_assets.store.definition_operations import DefinitionOperations, parse_definition_key


class StoreDefinitions:
    """Store methods on registered channels, workflowettes, bindings and triggers.

    ``kind`` is ``channel``, ``workflowette``, ``binding`` or ``trigger``. A trigger has the name of its binding.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.operations = DefinitionOperations(runtime)

    def registered_bindings(self) -> list[BindingInfo]:
        """Every registered binding, also those that the project no longer has, with their cursors."""
        return self.operations.bindings()

    def workflowettes(self) -> list[WorkflowetteInfo]:
        """Every workflowette with a binding that is registered or in the project."""
        return self.operations.workflowettes()

    def triggers(self) -> list[TriggerInfo]:
        """The trigger of every binding that has one: its last firing, and whether it is paused or removed."""
        return self.operations.triggers()

    def describe(self, kind: str, name: str) -> DefinitionDescription:
        """A definition with all its versions: who registered each of them, when, and what differed.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
        """
        return self.operations.describe(parse_definition_key(kind, name))

    def pause(self, kind: str, name: str, *, by: str | None = None) -> DefinitionDescription:
        """Stop what nova does automatically because of a definition. Runs by hand are still allowed.

        The triggers of a paused binding or workflowette do not fire. A paused channel gets no arrived files, and the
        triggers of the bindings that write it do not fire.

        Args:
            by: the person who pauses it. By default, the user of this process.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
        """
        key = parse_definition_key(kind, name)
        self.operations.pause(key, by or current_actor())
        return self.operations.describe(key)

    def resume(self, kind: str, name: str) -> DefinitionDescription:
        """End the pause of a definition. A trigger that became due during the pause fires once.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
        """
        key = parse_definition_key(kind, name)
        self.operations.resume(key)
        return self.operations.describe(key)

    def plan_removal(self, kind: str, name: str) -> RemovalPlan:
        """Dry run of ``remove``: what would be removed, and what would be orphaned."""
        return self.operations.plan_removal(parse_definition_key(kind, name))

    def remove(self, kind: str, name: str, *, by: str | None = None) -> RemovalPlan:
        """Remove a definition. Nothing uses it any more, and it cannot be registered again by accident.

        ``undo_removal`` takes the removal back until the next garbage collection. That collection deletes the cursors
        of removed bindings and the blocks of removed channels. Published tables keep the version that they show.

        Args:
            by: the person who removes it. By default, the user of this process.

        Returns:
            What was removed, and what was orphaned.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
            ExecutionInProgress: an execution of the binding, or on the channel, is alive.
        """
        return self.operations.remove(parse_definition_key(kind, name), by or current_actor())

    def undo_removal(self, kind: str, name: str) -> list[DefinitionKey]:
        """Take back the removal of a definition, and of the bindings that were removed with a workflowette.

        Returns:
            The definitions that are registered again. Empty if the definition was not removed.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
            DefinitionRemoved: garbage collection has made the removal final.
        """
        return list(self.operations.take_back_removal(parse_definition_key(kind, name)))

    def removed_with(self, kind: str, name: str) -> list[DefinitionKey]:
        """Dry run of ``undo_removal``: the removed ones among a definition and the bindings of a workflowette."""
        return list(self.operations.removed_with(parse_definition_key(kind, name)))
