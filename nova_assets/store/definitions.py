"""Registered definitions: list, describe, pause, resume, remove (Nova 4, "user interface")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_assets.errors import DefinitionNotFound
from nova_assets.execution.actor import current_actor
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.execution import Firing
from nova_assets.model.registered_definition import (
    DEFINITION_KINDS,
    BindingInfo,
    DefinitionDescription,
    DefinitionKey,
    DefinitionKind,
    DefinitionStatus,
    TriggerInfo,
    WorkflowetteInfo,
)
from nova_assets.plan.due import why_bound_trigger_is_off
from nova_assets.plan.removal import (
    RemovalFacts,
    RemovalPlan,
    channels_read,
    channels_written,
    definitions_removed_with,
    plan_removal,
)
from nova_assets.store.retention import channel_retention_seconds
from nova_assets.suggestions import did_you_mean, format_valid_names

_EXECUTIONS_SHOWN = 10


class RegisteredDefinitions:
    """Store methods on registered channels, workflowettes, bindings and triggers, and on those of the project that are
    not registered yet.

    ``kind`` is ``channel``, ``workflowette``, ``binding`` or ``trigger``. A trigger has the name of its binding.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog

    # lists

    def registered_bindings(self) -> list[BindingInfo]:
        """Every registered binding, also those that the project no longer has, with their cursors."""
        statuses, definitions = self.catalog.definition_states.statuses(), self._binding_definitions()
        in_project = {b.name for b in self.runtime.project.bindings}
        cursors: dict[str, dict[str, int]] = {}
        for cursor in self.catalog.cursors.find():
            positions = cursors.setdefault(cursor.binding, {})
            positions[cursor.channel] = min(cursor.seq, positions.get(cursor.channel, cursor.seq))
        numbers = self.catalog.definition_versions.latest_numbers("binding")
        return [
            BindingInfo(
                name,
                definition["workflowette"],
                tuple(sorted(set(definition["channels"].values()))),
                definition["when"],
                self._status(DefinitionKey("binding", name), statuses),
                why_bound_trigger_is_off(name, definition["workflowette"], channels_written(definition), statuses),
                name in in_project,
                numbers.get(name),
                cursors.get(name, {}),
            )
            for name, definition in sorted(definitions.items())
        ]

    def workflowettes(self) -> list[WorkflowetteInfo]:
        """Every workflowette with a binding that is registered or in the project."""
        statuses = self.catalog.definition_states.statuses()
        by_name: dict[str, dict[str, Mapping[str, Any]]] = {}
        for name, definition in sorted(self._binding_definitions().items()):
            by_name.setdefault(definition["workflowette"], {})[name] = definition
        in_project = {b.workflowette.name for b in self.runtime.project.bindings}
        found = []
        for name, definitions in sorted(by_name.items()):
            tasks = [t for definition in definitions.values() for t in definition["tasks"]]
            ports = dict.fromkeys(edge["port"] for t in tasks for edge in (*t["consumes"], *t["produces"]))
            channels = {channel for definition in definitions.values() for channel in definition["channels"].values()}
            status = self._status(DefinitionKey("workflowette", name), statuses)
            task_names = tuple(dict.fromkeys(t["name"] for t in tasks))
            bindings, sorted_channels = tuple(definitions), tuple(sorted(channels))
            found.append(
                WorkflowetteInfo(name, task_names, tuple(ports), bindings, sorted_channels, status, name in in_project)
            )
        return found

    def triggers(self) -> list[TriggerInfo]:
        """The trigger of every binding that has one: its last firing, and whether it is paused or removed."""
        statuses = self.catalog.definition_states.statuses()
        last_firings: dict[str, Firing] = {}
        for firing in self.catalog.firings.find(limit=1000):  # latest first
            last_firings.setdefault(firing.binding, firing)
        return [
            TriggerInfo(
                info.name,
                info.when,
                info.channels,
                self._status(DefinitionKey("trigger", info.name), statuses),
                info.off,
                info.in_project,
                last_firings.get(info.name) or self.catalog.firings.last(info.name),
            )
            for info in self.registered_bindings()
            if info.when is not None
        ]

    def describe(self, kind: str, name: str) -> DefinitionDescription:
        """A definition with all its versions: who registered each of them, when, and what differed.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
        """
        key = self._existing_key(kind, name)
        definitions = self._binding_definitions()
        executions = (
            self.catalog.executions.find(key.name, _EXECUTIONS_SHOWN) if key.kind in ("binding", "trigger") else []
        )
        return DefinitionDescription(
            key,
            self._status(key, self.catalog.definition_states.statuses()),
            self._channels_of(key),
            _related(key, definitions),
            tuple(self.catalog.definition_versions.of(key.kind, key.name)),
            tuple(executions),
        )

    def _channels_of(self, key: DefinitionKey) -> tuple[str, ...]:
        """Channels of a definition, sorted: the channel itself, or the channels of its bindings."""
        if key.kind == "channel":
            return (key.name,)
        definitions = self._binding_definitions()
        bound = [d for name, d in definitions.items() if key.name in (name, d["workflowette"])]
        bound = bound if key.kind == "workflowette" else [d for d in [definitions.get(key.name)] if d is not None]
        return tuple(sorted({channel for d in bound for channel in d["channels"].values()}))

    # changes

    def pause(self, kind: str, name: str, *, by: str | None = None) -> DefinitionDescription:
        """Stop what nova does automatically because of a definition. Runs by hand are still allowed.

        The triggers of a paused binding or workflowette do not fire. A paused channel gets no arrived files, and the
        triggers of the bindings that write it do not fire.

        Args:
            by: the person who pauses it. By default, the user of this process.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
        """
        self.catalog.definition_states.set_paused(self._registered_key(kind, name), by or current_actor())
        return self.describe(kind, name)

    def resume(self, kind: str, name: str) -> DefinitionDescription:
        """End the pause of a definition. A trigger that became due during the pause fires once.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
        """
        self.catalog.definition_states.set_paused(self._existing_key(kind, name), None)
        return self.describe(kind, name)

    def plan_removal(self, kind: str, name: str) -> RemovalPlan:
        """Dry run of ``remove``: what would be removed, and what would be orphaned."""
        key = self._existing_key(kind, name)
        return plan_removal(key, self._load_removal_facts(key))

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
        self._registered_key(kind, name)
        removal = self.plan_removal(kind, name)
        self.catalog.definition_states.remove(removal.removed, by or current_actor())
        return removal

    def undo_removal(self, kind: str, name: str) -> list[DefinitionKey]:
        """Take back the removal of a definition, and of the bindings that were removed with a workflowette.

        Returns:
            The definitions that are registered again. Empty if the definition was not removed.

        Raises:
            DefinitionNotFound: no such definition is registered or in the project.
            DefinitionRemoved: garbage collection has made the removal final.
        """
        removed = self.removed_with(kind, name)
        if removed:
            self.catalog.definition_states.take_back_removals(removed)
        return removed

    def removed_with(self, kind: str, name: str) -> list[DefinitionKey]:
        """Dry run of ``undo_removal``: the removed ones among a definition and the bindings of a workflowette."""
        key = self._existing_key(kind, name)
        statuses = self.catalog.definition_states.statuses()
        keys = definitions_removed_with(key, self.catalog.definitions.bindings())
        return [k for k in keys if k in statuses and statuses[k].is_removed]

    def _load_removal_facts(self, key: DefinitionKey) -> RemovalFacts:
        catalog, statuses = self.catalog, self.catalog.definition_states.statuses()
        bindings = {
            name: definition
            for name, definition in self._binding_definitions().items()
            if not self._status(DefinitionKey("binding", name), statuses).is_removed
        }
        cursors = catalog.cursors.find()
        if key.kind == "channel":
            tables = sorted({v.table for v in catalog.published_versions.find(key.name)})
            states = {s.channel.name: s for s in catalog.definitions.channels(key.name)}
            waiting = catalog.arrivals.counts(key.name).waiting
            return RemovalFacts(bindings, cursors, states, tables=tables, waiting_files=waiting)
        removed = {k.name for k in definitions_removed_with(key, bindings) if k.kind == "binding"}
        consumed = sorted({c.channel for c in cursors if c.binding in removed})
        retention = {
            c: catalog.garbage.retention_state(c, channel_retention_seconds(self.runtime, c)) for c in consumed
        }
        return RemovalFacts(bindings, cursors, retention=retention)

    # names

    def _existing_key(self, kind: str, name: str) -> DefinitionKey:
        """Key of a definition that is registered or in the project.

        Raises:
            DefinitionNotFound: with the valid kinds or names.
        """
        key = _parse_definition_key(kind, name)
        names = self._names(key.kind)
        if key.name not in names:
            raise DefinitionNotFound(
                f"no {key.kind} is called {key.name!r}{did_you_mean(key.name, names)}",
                expected=format_valid_names(names, "(none is registered yet)"),
                next=f"nova {key.kind}s",
                kind=key.kind,
                name=key.name,
            )
        return key

    def _names(self, kind: DefinitionKind) -> list[str]:
        if kind == "channel":
            return sorted({*self.catalog.scheduler.heads(), *(c.name for c in self.runtime.project.channels)})
        definitions = self._binding_definitions()
        if kind == "workflowette":
            return sorted({d["workflowette"] for d in definitions.values()})
        return sorted(n for n, d in definitions.items() if kind == "binding" or d["when"] is not None)

    def _binding_definitions(self) -> dict[str, Mapping[str, Any]]:
        """Definitions of all bindings. That of the project wins over the registered one."""
        return {**self.catalog.definitions.bindings(), **{b.name: b.as_json() for b in self.runtime.project.bindings}}

    def _registered_key(self, kind: str, name: str) -> DefinitionKey:
        """Key of a definition, which is registered if only the project has it. Raises DefinitionNotFound."""
        key = self._existing_key(kind, name)
        if key.kind == "channel":
            if key.name not in self.catalog.scheduler.heads():
                self.catalog.definitions.register([self.runtime.project.channel(key.name)])
            return key
        registered = self.catalog.definitions.bindings()
        for binding in self.runtime.project.bindings:
            if binding.name not in registered and _belongs_to(binding, key):
                self.runtime.register_binding(binding)
        return key

    @staticmethod
    def _status(key: DefinitionKey, statuses: Mapping[DefinitionKey, DefinitionStatus]) -> DefinitionStatus:
        return statuses.get(key, DefinitionStatus(key))


def _parse_definition_key(kind: str, name: str) -> DefinitionKey:
    """Key of a definition, from texts.

    Raises:
        DefinitionNotFound: there is no such kind.
    """
    for known in DEFINITION_KINDS:
        if kind == known:
            return DefinitionKey(known, name)
    raise DefinitionNotFound(
        f"{kind!r} is no kind of definition", expected=", ".join(DEFINITION_KINDS), kind=kind, name=name
    )


def _belongs_to(binding: Binding, key: DefinitionKey) -> bool:
    return key.name == (binding.workflowette.name if key.kind == "workflowette" else binding.name)


def _related(key: DefinitionKey, definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Relation -> names, as ``DefinitionDescription.related``."""
    if key.kind == "channel":
        readers = (n for n, d in definitions.items() if key.name in channels_read(d))
        writers = (n for n, d in definitions.items() if key.name in channels_written(d))
        return {"read by": tuple(sorted(readers)), "written by": tuple(sorted(writers))}
    if key.kind == "workflowette":
        return {"bindings": tuple(sorted(n for n, d in definitions.items() if d["workflowette"] == key.name))}
    definition = definitions[key.name]
    trigger = () if definition["when"] is None else (definition["when"],)
    if key.kind == "trigger":
        return {"binding": (key.name,), "when": trigger}
    return {
        "workflowette": (definition["workflowette"],),
        "reads": tuple(sorted(channels_read(definition))),
        "writes": tuple(sorted(channels_written(definition))),
        "when": trigger,
    }
