"""Registered definitions: channels, workflowettes, bindings and triggers, with their versions (Nova 1 and 4)."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from types import FunctionType
from typing import Any, Literal, get_args

from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.channel_registration import definition_fingerprint
from nova_assets.model.data_check import Check
from nova_assets.model.execution import Execution, Firing
from nova_assets.model.task import QueryFunction, Task
from nova_assets.model.workflowette import Workflowette
from nova_assets.short_repr import short_repr

DefinitionKind = Literal["channel", "workflowette", "binding", "trigger"]
"""A trigger has the name of its binding."""

DEFINITION_KINDS: tuple[DefinitionKind, ...] = get_args(DefinitionKind)


@dataclass(frozen=True, slots=True, order=True)
class DefinitionKey:
    """Kind and name of a definition."""

    kind: DefinitionKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition as it is registered.

    Args:
        content: everything on which its effect depends, as JSON. The code of functions is a digest.
        fingerprint: hash of the content.
    """

    __repr__ = short_repr

    key: DefinitionKey
    content: Mapping[str, Any]
    fingerprint: str

    @staticmethod
    def of(kind: DefinitionKind, name: str, content: Mapping[str, Any]) -> Definition:
        return Definition(DefinitionKey(kind, name), content, definition_fingerprint(content))


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """A version of a definition.

    Args:
        number: 1 for the first version.
        registered_by: the person or process that registered it.
        changes: parts that differ from the previous version, such as ``tasks.keep.code``. Empty for the first version.
    """

    __repr__ = short_repr

    key: DefinitionKey
    number: int
    content: Mapping[str, Any]
    registered_at: datetime
    registered_by: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefinitionStatus:
    """Whether a definition is paused or removed.

    Args:
        collected_at: time at which garbage collection made the removal final.
    """

    __repr__ = short_repr

    key: DefinitionKey
    paused_at: datetime | None = None
    paused_by: str | None = None
    removed_at: datetime | None = None
    removed_by: str | None = None
    collected_at: datetime | None = None

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def is_removed(self) -> bool:
        return self.removed_at is not None

    @property
    def state(self) -> Literal["active", "paused", "removed"]:
        return "removed" if self.is_removed else "paused" if self.is_paused else "active"

    @property
    def can_be_taken_back(self) -> bool:
        """Whether the definition is removed, and garbage collection has not made that final."""
        return self.is_removed and self.collected_at is None

    def __str__(self) -> str:
        if self.removed_at is not None:
            final = ", and collected since" if self.collected_at is not None else ""
            return f"removed by {self.removed_by} at {self.removed_at:%Y-%m-%d %H:%M:%S} UTC{final}"
        if self.paused_at is not None:
            return f"paused by {self.paused_by} at {self.paused_at:%Y-%m-%d %H:%M:%S} UTC"
        return "active"


Statuses = Mapping[DefinitionKey, DefinitionStatus]
"""Status of each definition that is paused or removed."""


def user_without_host(actor: str) -> str:
    """Name of the user of an actor such as ``ann@builder``. Callers of the service do not learn names of hosts."""
    return actor.partition("@")[0]


def definitions_to_register(channels: Iterable[Channel], bindings: Iterable[Binding]) -> list[Definition]:
    """Definitions of some channels and bindings, and of the workflowettes and triggers of these bindings."""
    found = [Definition.of("channel", c.name, {**c.as_json(), "maintenance": c.upkeep}) for c in channels]
    bindings = list(bindings)
    workflowettes = {b.workflowette.name: b.workflowette for b in bindings}
    found += [Definition.of("workflowette", w.name, _workflowette_content(w)) for w in workflowettes.values()]
    for binding in bindings:
        found.append(Definition.of("binding", binding.name, binding_content(binding)))
        if binding.when is not None:
            trigger = {"when": str(binding.when), "attempts": binding.attempts, "backoff": binding.backoff}
            found.append(Definition.of("trigger", binding.name, trigger))
    return found


def binding_content(binding: Binding) -> dict[str, Any]:
    """Content of a binding's definition, with digests of its parameters and of the code of its tasks and checks.

    Parameters may be secrets, so their values are not stored.
    """
    params = {name: _value_digest(value) for name, value in sorted(binding.params.items())}
    return {**binding.as_json(), **_workflowette_content(binding.workflowette), "params": params}


def binding_fingerprint(binding: Binding) -> str:
    """Fingerprint of a binding's definition, by which an execution names the version that it runs."""
    return definition_fingerprint(binding_content(binding))


def changed_parts(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of the parts in which two contents differ, such as ``when`` or ``tasks.keep.code``."""
    found: list[str] = []
    for name in sorted({*earlier, *later}):
        before, after = (_by_name(content.get(name)) for content in (earlier, later))
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += [f"{name}.{path}" for path in changed_parts(before, after)]
        else:
            found.append(name)
    return tuple(found)


def _by_name(value: Any) -> Any:
    """A list of named parts as a mapping, so that differences name the part. Other values stay."""
    if isinstance(value, Sequence) and value and all(isinstance(v, Mapping) and "name" in v for v in value):
        return {str(v["name"]): v for v in value}
    return value


def _workflowette_content(workflowette: Workflowette) -> dict[str, Any]:
    return {
        "tasks": [_task_content(t) for t in workflowette.tasks],
        "checks": [_check_content(c) for c in workflowette.checks],
    }


def _task_content(task: Task) -> dict[str, Any]:
    options = {"retries": task.retries, "skip_if_no_new": task.skip_if_no_new, "deterministic": task.deterministic}
    content = {**task.as_json(), **options, "code": _code_digest(task.function)}
    if task.scoped is not None:  # the folder of its file differs between machines, and its text has its meaning
        content["query"] = {k: v for k, v in content["query"].items() if k not in ("file", "meaning")}
    elif isinstance(task.function, QueryFunction):
        content["query"] = task.function.as_json()
    return content


def _check_content(check: Check) -> dict[str, Any]:
    return {**check.as_json(), "code": _code_digest(check.function)}


def _code_digest(function: object) -> str | None:
    """Digest of a function's source; None for objects of other kinds, whose definition says what they do."""
    return _source_digest(function) if isinstance(function, FunctionType) else None


@lru_cache(maxsize=4096)
def _source_digest(function: FunctionType) -> str | None:
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError, ValueError):  # defined in a shell
        return None
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _value_digest(value: object) -> str:
    try:
        text = json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        return type(value).__name__
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Replacement:
    """Rows that replace all rows of the output's channel. They are written as a base instead of a delta.

    Args:
        frame: the rows, without ``_deleted``.
    """

    frame: Any


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
