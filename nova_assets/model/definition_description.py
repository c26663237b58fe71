"""Descriptions of registered definitions, for lists and for ``nova describe``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.model.registered_definition import DefinitionKey, DefinitionStatus, DefinitionVersion
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class DefinitionDescription:
    """A registered definition with its versions and what it is connected to.

    Args:
        status: whether it is paused or removed.
        channels: channels of the definition. The rights of callers of the service depend on them.
        related: relation, such as ``read by`` -> names.
        versions: oldest first; empty for a definition that an older version of nova registered.
        executions: latest executions of a binding, with the version that each of them ran.
    """

    __repr__ = short_repr

    key: DefinitionKey
    status: DefinitionStatus
    channels: tuple[str, ...]
    related: Mapping[str, tuple[str, ...]]
    versions: tuple[DefinitionVersion, ...] = ()
    executions: tuple[Execution, ...] = ()

    @property
    def content(self) -> Mapping[str, Any]:
        """Content of the newest version."""
        return self.versions[-1].content if self.versions else {}


@dataclass(frozen=True, slots=True)
class WorkflowetteInfo:
    """A workflowette that is bound at least once.

    Args:
        bindings: names of its bindings.
        in_project: whether the project of this process has it.
    """

    __repr__ = short_repr

    name: str
    tasks: tuple[str, ...]
    ports: tuple[str, ...]
    bindings: tuple[str, ...]
    channels: tuple[str, ...]
    status: DefinitionStatus
    in_project: bool


@dataclass(frozen=True, slots=True)
class TriggerInfo:
    """The trigger of a binding.

    Args:
        when: the trigger as text.
        off: why the trigger does not fire; empty if nothing prevents it.
        last_firing: latest firing in any partition.
    """

    __repr__ = short_repr

    binding: str
    when: str
    channels: tuple[str, ...]
    status: DefinitionStatus
    off: str
    in_project: bool
    last_firing: Firing | None = None


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """A binding that the catalog knows.

    Args:
        off: why nothing runs the binding automatically; empty if nothing prevents it.
    """

    __repr__ = short_repr

    name: str
    workflowette: str
    channels: tuple[str, ...]
    when: str | None
    status: DefinitionStatus
    off: str
    in_project: bool
    version: int | None = None
    cursors: Mapping[str, int] = field(default_factory=dict)
